// Which of the tile counters of loaded code a launch takes tiles from
// (codegen/prelude/tile_counter.cuh).
//
// A counter serves one launch at a time. Launches of one stream follow each other, so each stream
// has its own. Nothing is known of the order of launches in a graph, so each of them has its own as
// well, until the graph and all that was instantiated from it are gone. An instantiated graph runs
// once at a time. Two that were instantiated from one captured graph have their counters in common,
// as they have their arrays: they must not run at once.
#pragma once

#include <memory>

#include "runtime/cuda/driver.h"

namespace flashcore {

/// Thread-safe.
class TileCounters {
 public:
  /// `count`: as many as the code has.
  explicit TileCounters(int count = 0);

  /// From 1 on; 0 for none: those before have them all, or the driver has a complaint. The stream
  /// captures no graph.
  int of_stream(const Driver& driver, CudaStream stream);

  /// The same for a launch that the stream captures.
  int of_captured_launch(const Driver& driver, CudaStream stream);

 private:
  class Pool;
  struct OfGraph;

  std::shared_ptr<Pool> pool_;  ///< a graph may be there longer than the code
};

}  // namespace flashcore
