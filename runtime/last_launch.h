// What a thread launched last of each of a few kernels. Calls that follow each other mostly have
// tensors of the same shapes and strides at other addresses, or at the same: such a launch checks
// and packs the addresses alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/launch.h"
#include "runtime/tensor.h"

namespace flashcore {

/// Of one thread, so that nothing is locked.
class LastLaunch {
 public:
  /// The one that keeps launches of this plan in the calling thread, whichever plan it keeps now.
  static LastLaunch& of(const LaunchPlan& plan);

  /// Checks the arguments and packs them, tensor maps included, into `block`; the calling thread
  /// has a context where the tensors lie. Throws as LaunchPlan::bind and encode_maps, and forgets.
  const LaunchPlan::Bound& bind(const LaunchPlan& plan, const Driver& driver,
                                std::span<const TensorView> tensors,
                                std::span<const ScalarValue> scalars, CudaAddress zeros);

  /// Filled by `bind`; the next launch of this thread may use it again.
  ParameterBlock block;

 private:
  static constexpr std::size_t max_tensors = 12;  // a launch with more is packed anew
  static constexpr std::size_t max_scalars = 8;

  [[nodiscard]] bool is_like(std::span<const TensorView> tensors,
                             std::span<const ScalarValue> scalars) const;
  void keep(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars);

  std::uint64_t plan_ = 0;  ///< LaunchPlan::number of what is kept; 0 for nothing
  std::size_t tensor_count_ = 0, scalar_count_ = 0;
  std::array<TensorView, max_tensors> tensors_{};
  std::array<ScalarValue, max_scalars> scalars_{};
  LaunchPlan::Bound bound_;
};

}  // namespace flashcore
