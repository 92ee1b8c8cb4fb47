// Which of the tiles of backward_tiles.h a spec's programs have, and the schedules that they make.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <span>

#include "templates/attention_backward.h"
#include "templates/choice/expression_traits.h"
#include "templates/schedules/backward_tiles.h"
#include "templates/schedules/schedule_parts.h"

namespace flashcore {
namespace backward_tiles {
namespace {

/// The kind of a spec's mask, those of its score and of its sequences, and whether it is `whole`.
unsigned kinds_of(const SpecTraits& of) {
  const AttentionSpec& spec = of.spec;
  const unsigned mask = of.mask.is_full()        ? full
                        : !of.mask.bounds_loop() ? scanned
                        : of.mask.several()      ? windows
                                                 : causal;
  const unsigned score = spec.score.text.empty() ? plain
                         : of.score.softcap      ? softcapped
                         : of.score.looks_up     ? looked_up
                                                 : scored;
  const bool fills = std::max(spec.head_dim, spec.value_dim()) % 16 == 0;
  return mask | score | (fills ? widths : 0) | (of.ragged ? ragged : dense);
}

/// Whether a row of a table with these traits is for a spec of these kinds.
bool is_for(unsigned traits, unsigned kinds) {
  return std::ranges::all_of(std::array{masks, scores, sequences, widths}, [&](unsigned group) {
    return !(traits & group) || (traits & group & kinds);
  });
}

/// Tiles with the dynamic scheduler were timed without it for all kinds that cannot have it but scores that
/// read tensors.
bool are_for(const Tiles& tiles, unsigned kinds) {
  return is_for(tiles.traits, kinds) && !((kinds & looked_up) && (tiles.traits & dynamic));
}

/// Which schedulers of tiles blocks can have: a set of `persistent` and `dynamic`. Blocks of ragged
/// sequences would have to find their segments for every output tile; a softcap, lookups and a scan for
/// visible tiles leave no register for the number of the tile that the dynamic scheduler hands out.
unsigned schedulers_of(unsigned kinds) {
  if (kinds & ragged) return 0;
  if (kinds & (softcapped | looked_up | scanned)) return persistent;
  return persistent | dynamic;
}

Schedule schedule_of(const Tiles& tiles, unsigned schedulers, const AttentionSpec& spec,
                     const Target& target, bool of_warpgroups) {
  const unsigned scheduler = tiles.traits & schedulers;
  Schedule s;
  if (of_warpgroups)
    s = warpgroup_tiles(tiles.rows, tiles.cols);
  else
    choose_family(s, target);
  s.tiles = {{"rows", tiles.rows}, {"cols", tiles.cols}};
  s.warps_m = tiles.warps_m;
  s.warps_n = tiles.warps_n;
  s.stages = tiles.stages;
  s.blocks_per_processor = tiles.blocks;
  if (tiles.warps_n > 1 && target.mma_m16n8k16) s.product_split = ProductSplit::columns;
  s.peel_masks = tiles.traits & peel_masks;
  s.ping_pong = tiles.traits & ping_pong;
  s.load_vectors = tiles.traits & vectors;
  s.keep_operands = tiles.traits & kept;
  s.keep_addresses = !(tiles.traits & anew);
  s.late_products = tiles.traits & late;
  s.descending = !(tiles.traits & ascending);
  s.persistent = scheduler != 0;
  if (scheduler & dynamic) {
    s.tile_scheduler = PersistentScheduler::dynamic;
    s.grid_order = GridOrder::grouped;
  }
  s.last_tiles_first = (tiles.traits & last_tiles_first) && !spec.mask.is_full();
  return s;
}

/// A warp for every 8 rows, of which it holds both tensors' elements, or for 4.
std::vector<Schedule> elementwise(const AttentionSpec& spec, const Target& target,
                                  const char* axis) {
  Schedule s;
  choose_family(s, target);
  s.warps_m = 4;
  std::vector<Schedule> schedules;
  for (const int rows : {32, 16}) {
    if (rows == 32 && round_up(widest(spec)) > 128) continue;
    s.tiles = {{axis, rows}};
    schedules.push_back(s);
  }
  return schedules;
}

}  // namespace
}  // namespace backward_tiles

std::optional<AddingLengths> adding_lengths(const AttentionSpec& spec, const Target& target) {
  using namespace backward_tiles;
  if (spec.deterministic || !target.wgmma) return {};
  const int columns = round_up(widest(spec));
  const unsigned kinds = kinds_of(SpecTraits(spec));
  for (const FasterAdding& faster : faster_adding())
    if (faster.least <= columns && columns <= faster.most && is_for(faster.kinds, kinds))
      return faster.from;
  return {};
}

std::vector<std::int64_t> backward_length_bounds() {
  using namespace backward_tiles;
  std::set<std::int64_t> bounds;
  for (const ProductTiles& own : product_tiles())
    for (const Tiles& tiles : own.of_warpgroups) bounds.insert(tiles.longest);
  return {bounds.begin(), bounds.end()};
}

std::vector<Schedule> attention_backward_schedules(std::string_view program,
                                                   const AttentionSpec& spec, const Target& target,
                                                   std::int64_t length) {
  using namespace backward_tiles;
  const std::span<const ProductTiles> products = product_tiles();
  const auto own = std::ranges::find(products, program, &ProductTiles::program);
  if (own == products.end())
    return elementwise(spec, target, program == "attention_backward_groups" ? "cols" : "rows");
  std::vector<Schedule> schedules;
  const int columns = round_up(widest(spec));
  const unsigned kinds = kinds_of(SpecTraits(spec)), schedulers = schedulers_of(kinds);
  const auto add = [&](std::span<const Tiles> table, bool of_warpgroups) {
    for (const Tiles& tiles : table) {
      if (columns < tiles.least || tiles.most < columns || tiles.longest < length) continue;
      if (!are_for(tiles, kinds)) continue;
      const Schedule s = schedule_of(tiles, schedulers, spec, target, of_warpgroups);
      if (std::ranges::find(schedules, s) == schedules.end()) schedules.push_back(s);
    }
  };
  if (target.wgmma) add(own->of_warpgroups, true);
  add(target.mma_m16n8k16 ? own->of_warps : own->of_blocks, false);
  return schedules;
}

}  // namespace flashcore
