// Which of the tile counters of loaded code a launch takes tiles from
// (codegen/prelude/tile_counter.cuh).
//
// A counter serves one launch at a time. The launches of a stream follow each other, so each stream
// has a counter. The launches in a CUDA graph may run in any order that its edges allow, so each of
// them has a counter, until the graph and every executable graph made from it are destroyed. CUDA
// never runs an executable graph beside itself. Two executable graphs made from one captured graph
// share its counters, as they share its arrays, and must not run at once.
#pragma once

#include <memory>

#include "runtime/cuda/driver.h"

namespace flashcore {

/// Thread-safe.
class TileCounters {
 public:
  /// Of a kernel with so many counters.
  explicit TileCounters(int count = 0);

  /// The counter of a stream that captures nothing, from 1 on. 0 if every counter is taken or the
  /// driver returns an error: the launch then uses the static tile scheduler.
  [[nodiscard]] int of_stream(const Driver& driver, CudaStream stream) const;

  /// The same for one launch on a stream that is being captured.
  [[nodiscard]] int of_captured_launch(const Driver& driver, CudaStream stream) const;

 private:
  class Pool;
  struct HeldByGraph;

  std::shared_ptr<Pool> pool_;  ///< shared with graphs, which may outlive the code
};

}  // namespace flashcore
