// What the two programs of split keys hand over: for every row and split of the keys, the values weighted
// by exponentials, and the maximum and the sum of the weights.
#pragma once

#include <optional>
#include <vector>

#include "templates/attention_decode.h"
#include "templates/attention_tensors.h"

namespace flashcore {

/// f32 tensors over [batch, head, split, row]; without batch where sequences are packed, or splits are those
/// of all sequences; with packed sequences the rows then are those of one sequence. `values` have columns
/// besides.
struct DecodePartials {
  const AttentionTensors& t;
  bool by_batch;
  Tensor values, maxima, sums;

  /// `declare` makes inputs of them, or outputs, from a name and dimensions.
  template <class Declare>
  DecodePartials(const AttentionTensors& tensors, const DecodeSpec& spec, const Declare& declare)
      : t(tensors), by_batch(!spec.attention.packed() && !spec.balances) {
    const bool of_a_sequence = spec.attention.packed() && spec.balances;
    std::vector<Extent> dims{t.heads, Extent("splits"),
                             of_a_sequence ? Extent("most_rows") : t.q_len};
    if (by_batch) dims.insert(dims.begin(), t.batch_size);
    std::vector<Extent> with_columns = dims;
    with_columns.emplace_back(t.spec->stored_value_dim());
    values = declare("partial", with_columns);
    maxima = declare("partial_max", dims);
    sums = declare("partial_sum", dims);
  }

  /// One of them at a split and rows, over its columns where it has some.
  [[nodiscard]] Access at(const Tensor& tensor, const Index& head, const Index& split,
                          const Index& rows, std::optional<Axis> columns = {}) const {
    std::vector<Index> indices{head, split, rows};
    if (by_batch) indices.insert(indices.begin(), t.batch);
    if (columns) indices.emplace_back(*columns);
    return tensor.access(indices);
  }

  /// The number of splits, as one of the tensors has it.
  [[nodiscard]] Tile count_splits(const Tensor& tensor) const {
    return length(tensor, by_batch ? 2 : 1);
  }
};

}  // namespace flashcore
