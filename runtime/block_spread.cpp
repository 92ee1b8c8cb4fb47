#include "runtime/block_spread.h"

#include <algorithm>

namespace flashcore {
namespace {

/// Bytes of shared memory that CUDA reserves for itself in every block. The unit in which shared memory is allocated
/// divides it.
constexpr std::int64_t reserved_bytes = 1024;

}  // namespace

BlockSpread BlockSpread::of(const Driver& driver, CudaFunction function, const KernelSource& source,
                            int multiprocessors, int most_shared_bytes, const std::string& what) {
  BlockSpread spread{.multiprocessors = multiprocessors,
                     .own_shared_bytes = source.shared_bytes,
                     .most_shared_bytes = most_shared_bytes};
  if (source.cluster == 1 || !source.waits_for_kernels) return spread;
  const LaunchConfiguration one_on_each{.grid = {static_cast<unsigned>(source.cluster), 1, 1},
                                        .block = {static_cast<unsigned>(source.threads), 1, 1},
                                        .shared_bytes = spread.shared_bytes(1),
                                        .stream = nullptr,
                                        .attributes = nullptr,
                                        .attribute_count = 0};
  int clusters = 0;
  driver.check(driver.cuOccupancyMaxActiveClusters(&clusters, function, &one_on_each), what);
  spread.multiprocessors = std::max(1, clusters) * source.cluster;
  return spread;
}

unsigned BlockSpread::shared_bytes(std::int64_t blocks) const {
  const std::int64_t share = (blocks + multiprocessors - 1) / multiprocessors;
  const std::int64_t room = most_shared_bytes + reserved_bytes;
  const bool fits_more = room / (own_shared_bytes + reserved_bytes) > share;
  return static_cast<unsigned>(fits_more ? room / (share + 1) / reserved_bytes * reserved_bytes
                                         : own_shared_bytes);
}

}  // namespace flashcore
