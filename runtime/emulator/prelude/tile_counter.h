// Where the blocks of a persistent kernel draw the numbers of their tiles. The machine counts for a
// run.
#pragma once

#include "language.h"
#include "thread.h"

namespace fc {

FC_DEVICE int next_tile(int counter, int tile, int count) {
  const int blocks = grid_x();
  if (counter == 0) return 2 * (tile / blocks + 1) * blocks - 1 - tile;
  return blocks + fc_machine->draw_tile(count);
}

}  // namespace fc
