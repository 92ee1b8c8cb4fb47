// How the blocks of a launch that starts early (programmatic dependent launch) are spread over the GPU. They are placed on
// the multiprocessors that the kernel in front leaves first, as many as fit, while other multiprocessors get none: so each
// block asks for so much shared memory that no more than an even share of all blocks fits on a multiprocessor.
#pragma once

#include <cstdint>
#include <string>

#include "codegen/kernel_source.h"
#include "runtime/cuda/driver.h"

namespace flashcore {

/// By how much shared memory the blocks of a kernel are spread evenly over the multiprocessors of a GPU.
struct BlockSpread {
  /// Those over which blocks are spread. A cluster lies within one graphics processing cluster (GPC), whose last
  /// multiprocessors may be too few for one more: clusters of four blocks reach 120 of the 132 multiprocessors of an H200.
  std::int64_t multiprocessors = 1;
  std::int64_t own_shared_bytes = 0;   ///< of a block
  std::int64_t most_shared_bytes = 0;  ///< that a block may ask for

  /// Of a loaded function on a GPU of so many multiprocessors, where a block may ask for `most_shared_bytes`. Throws
  /// DeviceError if the driver does not tell how many clusters run at once: `what` failed then.
  static BlockSpread of(const Driver& driver, CudaFunction function, const KernelSource& source,
                        int multiprocessors, int most_shared_bytes, const std::string& what);

  /// What each of so many blocks asks for: the least shared memory of which no more than an even share of them fits on a
  /// multiprocessor; what is left is for kernels of other streams.
  [[nodiscard]] unsigned shared_bytes(std::int64_t blocks) const;
};

}  // namespace flashcore
