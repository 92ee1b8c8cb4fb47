// Programs that are not attention: what else the language can say.
#pragma once

#include "dsl/flashcore.h"

namespace flashcore {

/// y = tanh(x * scale) + bias, f16 in and out, `columns` wide.
Program elementwise(int columns);
/// c = a b^T over a loop along k; the output's dtype is f32 or `dtype`.
Program matrix_product(DType dtype, DType output);
/// c = a^T b: the left operand lies the other way round, and the right one does if it is `turned`.
Program transposed_product(bool transposed = false);
/// c = a^T b for every group of rows of a and b.
Program grouped_product();
/// y = a (b c / 8): a product whose right operand is a product, made the other way round if it is
/// `turned`.
Program chained_product(bool transposed = false);
/// o = tril(q k^T) v, chunk by chunk with the state q meets; keys are an alias of queries. With a
/// `part`, each block begins anew and covers that many positions; there are so many `parts`.
Program linear_attention(int dim = 64, int value_dim = 32, int part = 0, int parts = 1);
/// y = softmax of every row of x: one loop finds the maximum and the sum, a second one stores.
Program row_softmax();
/// Sums and largest elements of the columns of x, by a loop over its rows.
Program column_reductions();
/// y = x minus its row's mean, over its row's deviation; rows of 96.
Program layer_norm();
/// A loop whose carried values change places every iteration.
Program exchanging();
/// The mean squared deviation of every row of x, of parts that are put together in any order.
Program deviations();
/// The largest element of every row in the part of x that a loop visits last.
Program last_segment(LoopOrder order);
/// y = i32 arithmetic on positions and on x.
Program integers();
/// The sum of every row of x, how far its elements lie apart, and the last position of a row:
/// scalars.
Program totals();
/// y = x[row of a table], a tile a block, read through a scalar load.
Program gather();
/// y[i, :] = x[i, :] * scales[the group of row i], a block a row. Rows behind the last group stay as they are.
Program rows_of_groups();
/// Of each sequence, as many heads as a list says.
Program products_of_listed_heads();
/// s = the sums of the rows of q k^T up to a row's own position: rows are those of the three heads of
/// q beside its positions, and columns come through a table of pages.
Program paged_products(int page_size, int dim, bool left_in_registers = false, int heads = 3);
/// o = (a b) c: the first product is the left operand of the second.
Program chained_products();
/// With w = max(0, (a / 2) b^T), a tile that is stored as well: o = w c and z = w^T (a / 2). One
/// left operand is made in front of the loop, one in it, and one is read the other way round.
Program computed_left_operands();
/// Softmax attention without a running maximum: one loop finds it, the next one uses it.
Program two_passes();
/// A loaded tile that is both an operand of products and read element by element.
Program mixed_use();

}  // namespace flashcore
