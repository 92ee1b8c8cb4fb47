#include "templates/schedules/hopper_tiles.h"

namespace flashcore {

int tile_bytes(const HopperTraits& traits, const Schedule& s) {
  const int rows = s.tiles.at("rows"), cols = s.tiles.at("cols");
  const auto slot = [&](int dim) { return (2 * cols * dim + 1023) / 1024 * 1024; };
  const int loaded = traits.score.loaded_elements * slot(rows) +
                     traits.mask.loaded_elements() * slot(rows / 2);  // a condition is a byte
  const int given = s.cluster_splits == 1 ? 0 : 4 * rows * (traits.dv + 8) + 3 * 1024;
  // Warpgroups that divide the columns among them have whole panels of 64 each, and read the weights
  // of all.
  const int dv = s.warps_n == 1 ? traits.dv : round_up(traits.dv, 64 * s.warps_n);
  const int weights = s.warps_n == 1 ? 0 : slot(rows) + 1024;
  return s.outer_stages * 2 * rows * traits.d + s.stages * (slot(traits.d) + slot(dv) + loaded) +
         given + weights;
}

}  // namespace flashcore
