// Launches that may start beside the end of the kernel in front. Their blocks are placed on the multiprocessors that the
// kernel in front leaves first, as many as fit, while others get none: so they ask for so much shared memory that no more
// than an even share of them fits on one.
#pragma once

#include <cstdint>
#include <string>

#include "codegen/kernel_source.h"
#include "runtime/cuda/driver.h"

namespace flashcore {

/// What shared memory spreads the blocks of a kernel evenly over the multiprocessors of a GPU.
struct BlockSpread {
  /// That run a block at once. A cluster lies within a part of the GPU, whose last multiprocessors may be too few for one
  /// more: clusters of four reach 120 of the 132 of an H200.
  std::int64_t multiprocessors = 1;
  std::int64_t own_shared_bytes = 0;   ///< of a block
  std::int64_t most_shared_bytes = 0;  ///< that a block may ask for

  /// Of a loaded function on a GPU of so many multiprocessors. Throws DeviceError: `what` failed.
  static BlockSpread of(const Driver& driver, CudaFunction function, const KernelSource& source,
                        int multiprocessors, int most_shared_bytes, const std::string& what);

  /// What each of so many blocks asks for: the least shared memory of which no more than an even share of them fits on a
  /// multiprocessor; what is left is for kernels of other streams.
  [[nodiscard]] unsigned shared_bytes(std::int64_t blocks) const;
};

}  // namespace flashcore
