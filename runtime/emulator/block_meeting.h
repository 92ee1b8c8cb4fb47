// How threads of a block come together for an operation that needs all of a warp or of a warpgroup.
// For the source files of Block only.
#pragma once

#include <string>

#include "runtime/emulator/block.h"

namespace flashcore {

// All lanes of a warp arrive; the last one acts for all.
template <class Act>
void Block::meet_in_warp(Primitive primitive, int line, const Act& act) {
  Warp& mine = warp();
  if (mine.at_barrier > 0 || mine.in_group > 0 || mine.left > 0 ||
      (mine.arrived > 0 && (mine.primitive != primitive || mine.line != line))) {
    part(FaultKind::divergence, line,
         fmt::format("arrives at {}, line {}", name_of(primitive), line));
  }
  mine.primitive = primitive;
  mine.line = line;
  if (++mine.arrived < lanes) {
    scheduler_.block({name_of(primitive), line, &mine.done, mine.done});
    return;
  }
  act(mine);
  mine.arrived = 0;
  ++mine.done;
}

// The same for the threads of a warpgroup.
template <class Act>
void Block::meet_in_group(Primitive primitive, int line, const Act& act) {
  Warp& mine = warp();
  Group& all = group(line);
  const auto here = [&] { return fmt::format("arrives at {}, line {}", name_of(primitive), line); };
  if (mine.arrived > 0 || mine.at_barrier > 0) part(FaultKind::divergence, line, here());
  if (all.left > 0 || (all.arrived > 0 && (all.primitive != primitive || all.line != line)))
    part(FaultKind::group_divergence, line, here());
  all.primitive = primitive;
  all.line = line;
  ++mine.in_group;
  if (++all.arrived < ProductRequest::threads) {
    scheduler_.block({name_of(primitive), line, &all.done, all.done});
    return;
  }
  act(all);
  all.arrived = 0;
  ++all.done;
  const std::size_t first = static_cast<std::size_t>(thread_index() / ProductRequest::threads) *
                            (ProductRequest::threads / lanes);
  for (std::size_t i = 0; i < ProductRequest::threads / lanes; ++i) warps_[first + i].in_group = 0;
}

}  // namespace flashcore
