// Which of the tile counters of loaded code a launch takes tiles from
// (codegen/prelude/tile_counter.cuh).
//
// A counter serves one launch at a time. Launches of one stream follow each other, so each stream
// has its own. A graph may be instantiated and run several times at once, and nothing tells the
// runs apart: launches that a graph captures get none, and neither do streams beyond the last
// counter.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "runtime/cuda/driver.h"

namespace flashcore {

class StreamCounters {
 public:
  static constexpr int counters = 256;  ///< as many as the kernel has

  /// From 1 on; 0 for none. The stream captures no graph. Thread-safe.
  int counter_for(const Driver& driver, CudaStream stream);

 private:
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, int>
      by_stream_;  ///< by number: a handle may come back for another stream
};

}  // namespace flashcore
