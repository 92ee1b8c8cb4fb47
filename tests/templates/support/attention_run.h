// One launch of a generated attention kernel without a GPU: arrays, the emulator, and what the program
// means according to the reference.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/kernel_source.h"
#include "dsl/attention_spec.h"
#include "dsl/program.h"
#include "runtime/emulator/emulator.h"
#include "runtime/tensor.h"

namespace flashcore {

/// The lengths of one launch and what fills its inputs.
struct AttentionInputs {
  int batch = 1, heads = 1, kv_heads = 1, q_len = 1, kv_len = 1;
  int row_gap = 0;    ///< elements that lie unused behind every row, a multiple of 8
  double spread = 1;  ///< standard deviation of the elements of q
  unsigned seed = 1;
};

/// An array that owns its bytes. All of them start as NaN, so that what is read by mistake shows.
class StridedArray {
 public:
  StridedArray(DType dtype, const std::vector<std::int64_t>& shape, int row_gap);

  [[nodiscard]] const TensorView& view() const { return view_; }
  /// Calls visit(offset in elements) in the order of the dense array.
  template <class Visit>
  void for_each_offset(Visit&& visit) const {
    walk(0, 0, visit);
  }

 private:
  template <class Visit>
  void walk(int dim, std::int64_t offset, Visit& visit) const {
    if (dim == view_.rank) {
      visit(offset);
      return;
    }
    for (std::int64_t i = 0; i < view_.shape[dim]; ++i)
      walk(dim + 1, offset + i * view_.strides[dim], visit);
  }

  std::vector<std::uint64_t> bytes_;
  TensorView view_;
};

/// q, k, v, o and, if the spec asks, lse.
class AttentionRun {
 public:
  AttentionRun(const AttentionSpec& spec, const AttentionInputs& inputs);

  /// Throws what the launch or the emulator refuses.
  EmulationReport emulate(const KernelSource& source);
  /// Differences between what emulate() left in the outputs and the reference, one line each; empty if
  /// every output is as near to the exact values as storage in its dtype allows (times two).
  [[nodiscard]] std::string compare(const Program& program) const;

  [[nodiscard]] std::vector<TensorView> views() const;
  /// The elements of a tensor, in the order of the dense array.
  [[nodiscard]] std::vector<double> values(int tensor) const;

 private:
  std::vector<StridedArray> arrays_;
  double scale_;
};

/// The kernel's line, for messages.
std::string line_of(const KernelSource& source, int line);

}  // namespace flashcore
