// What a block of Hopper's products has room for: bytes of shared memory, and registers, beside what the
// expressions of a spec need. These are limits of tiles; which of those that fit is the fastest for a
// problem, the cost model says.
#pragma once

#include <algorithm>
#include <optional>

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
  /// Tiles of a dense bias or mask take registers, and room beside keys and values.
  bool loads = score.loaded_elements + mask.loaded_elements() > 0;
  bool plain = spec.score.text.empty();
  /// A score computed from positions, as ALiBi is: its terms for a row take registers.
  bool by_position = !plain && !score.softcap && !score.looks_up;
  /// Exponentials of softcapped scores span more than f16 holds, so the maximum is needed too.
  bool softcap_with_maximum = score.softcap && spec.dtype == DType::f16;
  /// A persistent block would have to scan its tiles for every output tile, as those do whose sequences have
  /// query rows of their own number.
  bool may_persist = mask.bounds_loop() && !spec.q_lens;
  /// Blocks scan for the tiles that they have to visit.
  bool scanned = masked && !mask.bounds_loop();
  /// A row sees some tiles of many: small tiles visit fewer keys in vain.
  bool few_tiles_a_row = masked && (mask.looks_up() || mask.several());
  /// A score computed from positions within sequences needs the segments of both.
  bool in_sequences = by_position && ragged;
};

/// Shared memory of a block. Slots of a ring begin at multiples of 1024 bytes. Blocks of a cluster that
/// split a loop exchange their partial outputs, in f32.
int tile_bytes(const HopperTraits& traits, const Schedule& schedule);

/// Key columns of tiles of 128 rows: as many as registers hold beside what expressions need, and
/// above a head_dim of 128 as two stages of keys and values leave room for.
int columns_of_two_warpgroups(const HopperTraits& traits);

/// Those of tiles of 192 rows, where registers hold them and the score expression.
std::optional<int> columns_of_three_warpgroups(const HopperTraits& traits);

}  // namespace flashcore
