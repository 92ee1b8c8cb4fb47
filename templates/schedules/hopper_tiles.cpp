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

int columns_of_two_warpgroups(const HopperTraits& traits) {
  const bool looked_up = traits.mask.looks_up();
  if (traits.widest <= 64) return 128;
  if (traits.widest <= 112) {
    if (looked_up && traits.by_position) return 96;
    if (traits.softcap_with_maximum && !(traits.masked && traits.mask.bounds_loop()))
      return traits.widest <= 96 ? 112 : 96;
    return 128;
  }
  if (traits.widest <= 128) {
    if (looked_up && traits.by_position) return 96;
    const bool crowded = traits.masked ? traits.scanned : traits.ragged;
    return traits.softcap_with_maximum && crowded ? 112 : 128;
  }
  const int both = traits.d + traits.dv;
  int cols = both > 2 * 192 ? 80 : both > 2 * 160 ? 112 : 128;
  if (traits.softcap_with_maximum || (traits.in_sequences && !traits.masked) ||
      (traits.by_position && (looked_up || traits.mask.divides())) ||
      (traits.score.looks_up && traits.widest < 192))
    cols -= 16;
  if ((traits.softcap_with_maximum && traits.widest > 144) ||
      (traits.score.looks_up && traits.mask.several()))
    cols = std::min(cols, 96);
  // A scan together with a score expression takes more than a second to compile in large tiles.
  // Fewer keys are no slower then, except for prefixes up to 160 columns.
  const bool looks_twice = traits.scanned && (traits.score.softcap || traits.score.looks_up);
  if (looks_twice && (looked_up || traits.widest > 160))
    cols = std::min(cols, traits.widest > 192 && traits.score.softcap ? 64 : 96);
  // With an LSE 192 columns are as fast with 96 keys for all masks.
  if (traits.score.softcap && traits.spec.lse && traits.widest > 160) cols = std::min(cols, 96);
  return cols;
}

std::optional<int> columns_of_three_warpgroups(const HopperTraits& traits) {
  if (traits.widest > 128 || traits.mask.loaded_elements()) return std::nullopt;
  // A score computed from positions, in every key tile, takes the registers of 32 key columns.
  const int taken = traits.by_position && !traits.masked && !traits.ragged ? 32 : 0;
  if (traits.widest <= 64) {
    if (traits.softcap_with_maximum) return std::nullopt;
    // With an LSE the rounding errors of a softcapped row's weights are summed up separately.
    const bool two_sums = traits.score.softcap && traits.spec.lse && traits.mask.bounds_loop();
    return traits.in_sequences ? 96 : two_sums ? 112 : 128 - taken;
  }
  if (traits.widest <= 112) {
    const bool room =
        traits.masked ? traits.widest <= 96 && !traits.scanned && !traits.score.softcap
                      : !traits.score.softcap || !(traits.softcap_with_maximum || traits.spec.lse);
    if (!room || traits.few_tiles_a_row || traits.score.looks_up || traits.loads ||
        (taken > 0 && traits.widest > 96))
      return std::nullopt;
    const bool narrow = traits.widest > 96 || traits.in_sequences;
    return (narrow ? 80 : traits.widest > 80 ? 96 : 112) - taken;
  }
  return traits.plain && traits.may_persist ? std::optional(80) : std::nullopt;
}

}  // namespace flashcore
