// The refusals of a launch, kept apart from the path that does not fail.
#pragma once

#include <span>
#include <string>

#include "codegen/kernel_source.h"
#include "dsl/error.h"
#include "runtime/tensor.h"

namespace flashcore {

/// A tensor that a kernel cannot address where it lies; a copy of it would do.
class LayoutError : public DeviceError {
 public:
  LayoutError(Complaint complaint, int tensor)
      : DeviceError(std::move(complaint)), tensor_(tensor) {}
  /// Which of a launch's tensors.
  [[nodiscard]] int tensor() const { return tensor_; }

 private:
  int tensor_;
};

/// More blocks than CUDA's grid has in a dimension. The kernel under a schedule with `flat_grid`
/// would do.
class GridError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

/// Throws for one launch of one kernel. Each function states one fact: SpecError about what was
/// given, LayoutError about how it lies in memory, DeviceError about where and about the GPU.
class LaunchRefusal {
 public:
  LaunchRefusal(const KernelSource& source, std::span<const TensorView> tensors)
      : source_(source), tensors_(tensors) {}

  [[noreturn, gnu::cold]] void tensor_count() const;
  [[noreturn, gnu::cold]] void scalar_count(std::size_t given) const;
  [[noreturn, gnu::cold]] void dtype(int tensor) const;
  [[noreturn, gnu::cold]] void rank(int tensor) const;
  [[noreturn, gnu::cold]] void size(int tensor, int dim) const;
  [[noreturn, gnu::cold]] void last_stride(int tensor) const;
  [[noreturn, gnu::cold]] void stride(int tensor, int dim) const;
  [[noreturn, gnu::cold]] void far_stride(int tensor, int dim) const;
  [[noreturn, gnu::cold]] void map_stride(int tensor, int dim) const;
  [[noreturn, gnu::cold]] void map(int tensor, const std::string& reason) const;
  [[noreturn, gnu::cold]] void repeated_output(int tensor, int dim) const;
  [[noreturn, gnu::cold]] void address(int tensor) const;
  [[noreturn, gnu::cold]] void device(int tensor) const;
  [[noreturn, gnu::cold]] void overlap(int output, int other) const;
  [[noreturn, gnu::cold]] void scalar(int index, const ScalarValue& given) const;
  [[noreturn, gnu::cold]] void grid(const GridAxis& axis, std::int64_t blocks,
                                    std::int64_t limit) const;
  [[noreturn, gnu::cold]] void work(const GridAxis& axis, std::int64_t blocks) const;

 private:
  [[nodiscard]] Complaint complaint(std::string what, std::string why, std::string fix) const;
  [[noreturn]] void refuse(std::string what, std::string why, std::string fix) const;
  [[noreturn]] void refuse_given(std::string what, std::string why, std::string fix) const;
  [[noreturn]] void refuse_layout(int tensor, std::string what, std::string why,
                                  std::string fix) const;
  [[nodiscard]] std::string expected_shape(int tensor) const;

  const KernelSource& source_;
  std::span<const TensorView> tensors_;
};

}  // namespace flashcore
