#include "runtime/stream_counters.h"

namespace flashcore {

int StreamCounters::counter_for(const Driver& driver, CudaStream stream) {
  unsigned long long id = 0;
  // Where the driver has a complaint about the stream, the launch will have it as well.
  if (driver.cuStreamGetId(stream, &id) != 0) return 0;
  const std::lock_guard lock(mutex_);
  const auto known = by_stream_.find(id);
  if (known != by_stream_.end()) return known->second;
  if (by_stream_.size() == counters) return 0;
  const int counter = static_cast<int>(by_stream_.size()) + 1;
  by_stream_.emplace(id, counter);
  return counter;
}

}  // namespace flashcore
