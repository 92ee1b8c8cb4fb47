// What the two programs of split keys hand over: for every row and split of the keys, the values weighted
// by exponentials, and the maximum and the sum of the weights.
#pragma once

#include <optional>
#include <vector>

#include "templates/attention_tensors.h"

namespace flashcore {

/// f32 tensors over [batch, head, split, row]; without batch where sequences are packed. `values` have
/// columns besides.
struct DecodePartials {
  const AttentionTensors& t;
  Tensor values, maxima, sums;

  /// `declare` makes inputs of them, or outputs, from a name and dimensions.
  template <class Declare>
  DecodePartials(const AttentionTensors& tensors, const Declare& declare) : t(tensors) {
    std::vector<Extent> dims{t.heads, Extent("splits"), t.q_len};
    if (!t.spec->packed()) dims.insert(dims.begin(), t.batch_size);
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
    if (!t.spec->packed()) indices.insert(indices.begin(), t.batch);
    if (columns) indices.emplace_back(*columns);
    return tensor.access(indices);
  }

  /// The number of splits, as one of the tensors has it.
  [[nodiscard]] Tile count_splits(const Tensor& tensor) const {
    return length(tensor, t.spec->packed() ? 1 : 2);
  }
};

}  // namespace flashcore
