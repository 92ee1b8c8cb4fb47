// One launch of a generated kernel without a GPU: arrays filled by chance, the emulator, and what
// the program means according to the reference.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "codegen/kernel_source.h"
#include "dsl/program.h"
#include "runtime/emulator/emulator.h"
#include "runtime/tensor.h"

namespace flashcore {

/// An array that owns its bytes. All of them start as NaN, so that what is read by mistake shows.
class StridedArray {
 public:
  /// `row_gap` elements lie unused behind every row.
  /// Elements of a row lie `step` apart.
  StridedArray(DType dtype, const std::vector<std::int64_t>& shape, int row_gap, int step = 1);

  [[nodiscard]] const TensorView& view() const { return view_; }
  /// From the first element on, gaps and what lies behind included.
  [[nodiscard]] std::span<std::uint64_t> bytes() const {
    return {static_cast<std::uint64_t*>(view_.data), words_};
  }
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
  std::size_t words_ = 0;
  TensorView view_;
};

struct RunInputs {
  std::map<std::string, std::int64_t> extents;  ///< every named one
  std::vector<ScalarValue> scalars = {};
  /// Floats are normal with this standard deviation, 1 where a tensor has none here. Integers are
  /// drawn from 0 up to it, exclusive.
  std::map<std::string, double> spread = {};
  /// Elements of a row of a gathered tensor lie so far apart, unless it has unit stride.
  int gathered_step = 1;
  int row_gap = 0;  ///< of tensors with two dimensions or more; a multiple of 8
  /// Tensors whose rows begin at multiples of 16 bytes, as those of a module's workspaces do.
  std::set<std::string> aligned_rows = {};
  unsigned seed = 1;
  /// The elements of an input, in the order of the dense array, in place of chance.
  std::map<std::string, std::vector<double>> values = {};
};

class KernelRun {
 public:
  KernelRun(const Program& program, RunInputs inputs);

  /// Throws what the launch or the emulator refuses. What the emulator does depends on the kernel and its
  /// arguments alone (it has one worker), so a launch of a kernel on the same bytes is emulated once in a
  /// process.
  EmulationReport emulate(const KernelSource& source);
  /// Differences between what emulate() left in the outputs and the reference, a line an output;
  /// empty if every output is as near to the exact values as storage in its dtype allows (times
  /// two).
  [[nodiscard]] std::string compare() const;

  [[nodiscard]] std::vector<TensorView> views() const;
  /// The elements of a tensor, in the order of the dense array.
  [[nodiscard]] std::vector<double> values(std::size_t tensor) const;

 private:
  /// Everything about the arguments that a launch or the reference may depend on.
  [[nodiscard]] std::string arguments() const;
  [[nodiscard]] std::string difference_from_reference() const;
  /// Elements behind each row, so that the next one begins where the tensor promises.
  [[nodiscard]] std::int64_t gap_behind_rows(const ir::Tensor& tensor, std::int64_t width) const;

  Program program_;
  RunInputs inputs_;
  std::vector<StridedArray> arrays_;
};

/// The kernel's line, for messages.
std::string line_of(const KernelSource& source, int line);

}  // namespace flashcore
