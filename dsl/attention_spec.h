// What attention to compute, as data. templates/attention.h turns it into a tile program.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dsl/dtype.h"
#include "dsl/expression.h"
#include "dsl/variants.h"

namespace flashcore {

/// Order of the dimensions of q, k, v and o.
enum class TensorLayout {
  bhsd,  ///< [batch, heads, length, head_dim]
  bshd,  ///< [batch, length, heads, head_dim]
  thd,   ///< [total, heads, head_dim]: the sequences of a batch one behind the other
};

/// How queries are multiplied by keys, and weights by values.
enum class Products {
  full,  ///< every element as it is; f32 in the accuracy of f32, as three bf16 parts
  tf32,  ///< f32 elements rounded to tf32, which has ten bits behind the first: several times faster
};

/// The widest rows of q and k, beside values of another width, and of v and o: 64 query rows of an
/// output of 512 columns are half of a multiprocessor's registers.
constexpr int most_head_dim = 576, most_head_dim_v = 512;
/// The same where f32 is multiplied in three parts.
constexpr int most_split_dim = 256;

/// Scaled dot-product attention, softmax(score(scale q k^T) + mask) v, computed without storing the
/// scores (Dao et al., FlashAttention-2, arXiv:2307.08691).
///
/// q [batch, heads, q_len, head_dim], k [batch, kv_heads, kv_len, head_dim],
/// v [batch, kv_heads, kv_len, head_dim_v], o [batch, heads, q_len, head_dim_v], all of `dtype`;
/// lse, if asked for, fp32 [batch, heads, q_len], natural logarithm. Query head h reads key head
/// h / (heads / kv_heads). A head_dim between multiples of 8 is stored with zeros up to the next
/// one (stored_dim): a kernel for 100 takes tensors of 104, and the scale stays 1 / sqrt(100).
/// First comes the scale, then the score expression, then the mask. A row that sees no key gives
/// zeros and, without a sink, an lse of -inf. The tensors that the expressions capture are passed
/// after the others: the mask's, the score's, the sink's, one of a name.
///
/// Sequences of different lengths come packed or padded. Packed (layout thd): q [total_q, heads,
/// head_dim], k [total_k, kv_heads, head_dim], v and o alike, lse [heads, total_q]; cu_seqlens_q
/// and cu_seqlens_k, i32 [batch + 1], say where each sequence begins and where the last one ends,
/// and the scalar max_q_len what the longest one is at most. Padded: the layouts of a batch, and
/// q_lens and kv_lens, i32 [batch], how much of each sequence there is; rows beyond it become zeros
/// with an lse of -inf. Expressions see positions within a sequence and its own lengths. Any length
/// may be 0.
///
/// Keys in pages, as servers keep them (PagedAttention, Kwon et al., arXiv:2309.06180): k and v are
/// [pages, page_size, kv_heads, head_dim], and page_table, i32 [batch, max_pages], names the pages of
/// each sequence in order. kv_lens says how many keys it has, also where its query rows are packed;
/// what the table says beyond has no effect.
struct AttentionSpec {
  int head_dim = 0;    ///< 1 to 512, with another head_dim_v to 576
  int head_dim_v = 0;  ///< 0: head_dim
  int heads = 0;       ///< 0: inferred from the tensors, without grouping
  int kv_heads = 0;    ///< 0: heads
  DType dtype = DType::bf16;
  Products products = Products::full;  ///< tf32: of dtype f32 only
  Mask mask = {};
  Score score = {};
  Sink sink = {};
  TensorLayout layout = TensorLayout::bhsd;
  bool lse = false;                      ///< also return the log-sum-exp of every row
  bool q_lens = false, kv_lens = false;  ///< padded: the sequences have lengths of their own
  int page_size = 0;                     ///< keys of a page; 0: keys are not in pages
  /// Right for every finite score, at the cost of a few operations a row and tile; otherwise up to
  /// 2^28 in base-2 units, beyond which a row's weights may not be finite.
  bool large_scores = false;
  /// Gradients have the same bits at every launch. Otherwise their terms may be added up in any order,
  /// where that is faster.
  bool deterministic = true;

  // A length given here is compiled in; otherwise a launch infers it from the tensors.
  std::optional<int> batch, q_len, kv_len;

  [[nodiscard]] int value_dim() const { return head_dim_v ? head_dim_v : head_dim; }
  /// The last dimension of q and k, and of v and o, in memory: tiles go in steps of 8.
  [[nodiscard]] int stored_dim() const { return (head_dim + 7) / 8 * 8; }
  [[nodiscard]] int stored_value_dim() const { return (value_dim() + 7) / 8 * 8; }
  [[nodiscard]] int group() const { return kv_heads ? heads / kv_heads : 1; }
  /// Whether every element is multiplied in parts (templates/split_products.h).
  [[nodiscard]] bool splits_products() const {
    return dtype == DType::f32 && products == Products::full;
  }
  [[nodiscard]] bool packed() const { return layout == TensorLayout::thd; }
  [[nodiscard]] bool paged() const { return page_size > 0; }
};

/// The tensors that the spec's expressions capture, one of a name, in the order of a launch.
std::vector<Captured> captured_tensors(const AttentionSpec& spec);

/// Every reason the spec contradicts itself or asks for what FlashCore does not do; empty if none.
std::vector<std::string> check(const AttentionSpec& spec);

/// The spec with every field that check() refuses changed to the nearest valid value, so that
/// further reasons against it can be found.
AttentionSpec nearest_valid(AttentionSpec spec);

std::string_view name_of(TensorLayout layout);
std::string_view name_of(Products products);

}  // namespace flashcore
