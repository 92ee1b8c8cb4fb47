// The counter of the dynamic tile scheduler. The machine counts for a
// run.
#pragma once

#include "language.h"
#include "thread.h"

namespace fc {

FC_DEVICE int next_tile(int counter, int tile, int count, int blocks) {
  if (counter == 0) return 2 * (tile / blocks + 1) * blocks - 1 - tile;
  return blocks + fc_machine->claim_tile(count);
}

}  // namespace fc
