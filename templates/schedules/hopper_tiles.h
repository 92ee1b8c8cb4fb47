// What a block of Hopper's products has room for in shared memory, beside what the expressions of a spec
// need. Which of the tiles that fit are the fastest for a problem, the cost model says.
#pragma once

#include <algorithm>

#include "templates/choice/expression_traits.h"
#include "templates/schedules/schedule_parts.h"

namespace flashcore {

/// Of a block, less what rings' barriers take.
constexpr int hopper_shared_bytes = 227 * 1024 - 256;

/// What the expressions and the sizes of a spec leave room for.
struct HopperTraits : SpecTraits {
  int d = round_up(spec.head_dim), dv = round_up(spec.value_dim());
  int widest = std::max(d, dv);
  bool masked = !mask.is_full();
  /// Tiles of a dense bias or mask take room beside keys and values.
  bool loads = score.loaded_elements + mask.loaded_elements() > 0;
  /// A persistent block would have to scan its tiles for every output tile, as those do whose sequences have
  /// query rows of their own number.
  bool may_persist = mask.bounds_loop() && !spec.q_lens;
  /// Boxes of conditions, which are bytes, have 32 key columns or a multiple. So have boxes of pages, where
  /// those have as many keys: of tiles of 80 and 112 columns they would have 16.
  int column_step = mask.loaded_elements() > 0 || spec.paged() ? 32 : 16;
  /// Blocks scan for the tiles that they have to visit.
  bool scanned = masked && !mask.bounds_loop();
};

/// Shared memory of a block. Slots of a ring begin at multiples of 1024 bytes. Blocks of a cluster that
/// split a loop exchange their partial outputs, in f32.
int tile_bytes(const HopperTraits& traits, const Schedule& schedule);

}  // namespace flashcore
