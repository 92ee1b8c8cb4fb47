// Chosen by measurement on one H200, 512 to 16384 keys: for head_dim 64, 128 and 256 first, then
// for what lies between. docs/performance_hopper.md has the figures, and what was tried besides.
#include "templates/hopper_schedules.h"

#include <algorithm>
#include <regex>

#include "dsl/ir/affine.h"
#include "dsl/variants.h"
#include "templates/attention.h"

namespace flashcore {
namespace {

using namespace ir;

constexpr int shared_bytes = 227 * 1024 - 256;  // of a block, less what rings' barriers take
constexpr int multiprocessors = 132;

int padded(int dim) { return (dim + 15) / 16 * 16; }

/// Whether the mask is a conjunction of conditions that are linear in the positions, each along the
/// keys as well: these bound the loop. For any other a block looks through the tiles first.
bool mask_bounds_loop(const AttentionSpec& spec) {
  const Program program = attention_forward(spec);
  const Function& f = program.function();
  const AxisId cols = f.find_axis("cols");
  bool bounds = true;
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    if (op.code != OpCode::where || !f[op.results[0]].type.has(cols)) return;
    const Op* otherwise = f.definition(op.operands[2]);
    if (!otherwise || otherwise->code != OpCode::constant || otherwise->number != -infinity) return;
    const AffineCondition mask = affine_condition(f, op.operands[0]);
    bounds = bounds && mask.complete &&
             std::all_of(mask.terms.begin(), mask.terms.end(),
                         [&](const AffineForm& term) { return term.positions.count(cols) > 0; });
  });
  return bounds;
}

/// What a score does for every key, which no part of it that is the same along a row does.
struct ScoreLook {
  bool looks_up = false;  ///< as an additive bias does, and ALiBi, with a slope a head, does not
  bool caps = false;      ///< by a tanh
};
ScoreLook look_at_score(AttentionSpec spec) {
  ScoreLook look;
  if (spec.score.text.empty()) return look;
  spec.mask = full();  // which may look things up itself
  const Program program = attention_forward(spec);
  const Function& f = program.function();
  const AxisId cols = f.find_axis("cols");
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    if (op.results.size() != 1 || !f[op.results[0]].type.has(cols)) return;
    look.looks_up = look.looks_up || op.code == OpCode::gather;
    look.caps = look.caps || op.code == OpCode::tanh;
  });
  return look;
}

/// What the rules look at.
struct Look {
  const AttentionSpec& spec;
  ProblemQuestions& problem;
  int d = padded(spec.head_dim), dv = padded(spec.value_dim());
  int widest = std::max(d, dv);
  bool masked = !spec.mask.is_full();
  bool plain = spec.score.text.empty();
  ScoreLook score = look_at_score(spec);
  /// By what is made of positions, as ALiBi is: a row's part of it takes registers.
  bool leaning = !plain && !score.caps && !score.looks_up;
  /// Exponentials of capped scores span more than f16 holds, so that the maximum is kept besides.
  bool capped_with_maximum = score.caps && spec.dtype == DType::f16;
  bool ragged = spec.packed() || spec.q_lens || spec.kv_lens;
  bool bounded = mask_bounds_loop(spec);
  /// What a block finds out once, parts and tiles, it would have to find out for every tile of a
  /// persistent one.
  bool may_persist = !ragged && bounded;
  /// Blocks look for the tiles that they have to visit.
  bool surveyed = masked && !bounded;
  bool looked_up = spec.mask.looks_up();  ///< the mask
  /// The mask asks for the head, so heads see other tiles each.
  bool by_head = std::regex_search(spec.mask.text, std::regex("\\bh\\b"));
  bool several = spec.mask.text.find('&') != std::string::npos;   ///< conditions that all hold
  bool divides = spec.mask.text.find("//") != std::string::npos;  ///< as chunks do
  /// A row sees some tiles of many.
  [[nodiscard]] bool few_tiles_a_row() const { return looked_up || several; }
  /// A score by positions in sequences asks for the places of both.
  [[nodiscard]] bool in_sequences() const { return leaning && ragged; }
  [[nodiscard]] bool keys_up_to(std::int64_t length) const { return problem.keys_up_to(length); }
  /// Whether blocks of so many rows do not go round the multiprocessors that often.
  [[nodiscard]] bool fewer_rounds(int rows, double rounds) const {
    return problem.knows_rows() && problem.blocks_below(rows, rounds * multiprocessors);
  }
  /// a * x <= b * y, of the rows of the multiprocessor that gets most, in blocks of so many.
  [[nodiscard]] bool most_rows_up_to(int a, int a_rows, int b, int b_rows) const {
    return problem.most_rows_up_to(a, a_rows, b, b_rows, multiprocessors);
  }
};

/// Slots of a ring begin at multiples of 1024 bytes. Blocks that share out a loop get each other's
/// outputs, in f32.
int tile_bytes(const Look& look, const Schedule& s) {
  const int rows = s.tiles.at("rows"), cols = s.tiles.at("cols");
  const auto slot = [&](int dim) { return (2 * cols * dim + 1023) / 1024 * 1024; };
  const int given = s.loop_blocks == 1 ? 0 : 4 * rows * (look.dv + 8) + 3 * 1024;
  return s.outer_stages * 2 * rows * look.d + s.stages * (slot(look.d) + slot(look.dv)) + given;
}

Schedule tiles(int rows, int cols) {
  Schedule s;
  s.instruction = Instruction::wgmma;
  s.copy = CopyInstruction::tma;
  s.tiles = {{"rows", rows}, {"cols", cols}};
  s.warps_m = rows / 16;
  return s;
}

/// The next query on its way while a block is at one, where there is room for it.
void fetch_ahead(const Look& look, Schedule& s) {
  const int survey = look.surveyed ? 2 * 1024 : 0;
  const int room = (shared_bytes + 1024) / s.blocks_per_processor - 1024 - survey;
  const int output = s.staged_stores ? 2 * s.tiles["rows"] * look.dv : 0;
  s.outer_stages = 2;
  const bool fits = tile_bytes(look, s) <= room, fits_beside = tile_bytes(look, s) + output <= room;
  // Without room of its own the output would lie over the query, and the next one would wait for
  // it. Blocks that share a multiprocessor cover each other's gaps, and rather keep that room.
  if (!fits || (!fits_beside && s.blocks_per_processor > 1))
    s.outer_stages = 1;
  else if (!fits_beside)
    s.staged_stores = false;
}

/// Blocks that stay.
void persist(const Look& look, Schedule& s) {
  if (!look.may_persist) return;
  s.persistent = true;
  fetch_ahead(look, s);
}

/// Blocks that look for their tiles: those of all heads of the same rows side by side, and two
/// heads a block, which share what it finds, where that leaves five rounds of blocks or more.
/// Capped scores leave no registers for it, nor lookups where three blocks share them.
void share_survey(const Look& look, Schedule& s) {
  if (!look.surveyed || look.ragged) return;
  s.grid_order = GridOrder::tiles_last;
  const std::int64_t at_once = std::int64_t{multiprocessors} * s.blocks_per_processor;
  if (look.score.caps || (look.score.looks_up && s.blocks_per_processor == 3) || look.by_head ||
      !look.problem.heads_are_even() ||
      look.problem.blocks_below(s.tiles["rows"], 10. * static_cast<double>(at_once)))
    return;
  s.positions_per_block = 2;
  fetch_ahead(look, s);
}

/// Three small blocks a multiprocessor, in which a thread of the one warpgroup copies: where
/// softmax and masks that bound the loop are all there is between products. What looks things up is
/// faster beside a producer.
Schedule alone(const Look& look) {
  Schedule s = tiles(64, 64);
  s.producer = false;
  s.blocks_per_processor = 3;
  s.reduction_chains = 2;
  // Where sequences differ a window's parts are short, and a copy of the loop for each of them too
  // much.
  if (look.masked && look.bounded && !(look.ragged && look.few_tiles_a_row())) {
    s.peel_masks = s.scale_late = s.lazy_scaling = true;
    s.descending = false;
  }
  if (look.widest > 64) s.stages = 1;
  return s;
}

/// Persistent blocks draw their tiles, those of few heads after each other.
void draw_tiles(Schedule& s) {
  if (!s.persistent) return;
  s.tile_order = TileOrder::counter;
  s.grid_order = GridOrder::sections;
}

/// A causal mask's tiles differ, so that of a few rounds dealt out in advance some blocks have more
/// to do, by up to two thirds; those of all heads have room in L2. Of short tiles a draw costs as
/// much where the second round is nearly full.
void even_out_tiles(const Look& look, Schedule& s) {
  if (!look.masked || !s.persistent || look.few_tiles_a_row()) return;
  if (s.tile_order == TileOrder::counter) return;
  const auto fewer = [&](double rounds) { return look.fewer_rounds(s.tiles["rows"], rounds); };
  bool few = fewer(3);
  if (look.keys_up_to(512)) {
    few = fewer(1.6);
  } else if (look.keys_up_to(1024)) {
    few = few && (fewer(1.7) || !fewer(2.1));
  }
  if (!few) return;
  s.tile_order = TileOrder::counter;
  s.grid_order = GridOrder::tiles_last;
}

/// Whether the last keys of a full mask have a copy of the loop of their own, so that nothing is
/// tested in the others: worth it where sequences differ, and by what ptxas then makes of the loop
/// elsewhere. Capped ones take too long to compile for what they gain, but for those that keep a
/// maximum.
bool parts_full_tiles(const Look& look) {
  if (look.masked || look.score.looks_up) return false;
  if (look.ragged) return look.plain && look.widest != 144;
  if (look.widest == 128) return !look.score.caps || look.capped_with_maximum;
  return (look.widest == 160 || look.widest == 192 || look.widest == 224) && !look.score.caps;
}

/// The softmax of 64 columns hides little, so three warpgroups share a multiprocessor; a mask of
/// few tiles is better served by three small blocks than by one.
Schedule narrow(const Look& look) {
  if (look.spec.packed() && look.plain && look.bounded &&
      look.keys_up_to(look.masked ? 4096 : 1536))
    return alone(look);
  // Small blocks, where they go round often enough to come out even.
  const bool short_rows =
      look.plain && look.may_persist
          ? look.keys_up_to(512) || (look.keys_up_to(1536) && !look.fewer_rounds(64, 4 * 3))
          : look.keys_up_to(2048);
  if (look.masked && (short_rows || look.few_tiles_a_row())) {
    const bool short_padded =
        look.spec.q_lens && !look.spec.mask.looks_up() && look.keys_up_to(768);
    if (look.plain && (look.bounded || short_padded)) return alone(look);
    const bool long_parts = look.looked_up && !look.several && look.problem.keys_from(8193);
    Schedule s = tiles(64, long_parts ? 128 : 64);
    s.blocks_per_processor = long_parts ? 2 : 3;
    s.reduction_chains = 2;
    if (look.surveyed && !look.ragged) s.staged_stores = false;
    share_survey(look, s);
    return s;
  }
  // Beside an LSE what rounding adds to a capped row's sum is summed up apart.
  const bool two_sums = look.score.caps && look.spec.lse && look.bounded;
  // Two warpgroups take a fifth longer for a row than three, and come out more even.
  const bool causal = look.masked && look.plain && look.may_persist;
  const bool uneven = causal ? look.keys_up_to(1024) || look.fewer_rounds(192, 1.4)
                             : !look.masked && !look.most_rows_up_to(5, 192, 6, 128);
  const bool two = uneven || look.capped_with_maximum;
  Schedule s = two                   ? tiles(128, 128)
               : look.in_sequences() ? tiles(192, 96)
                                     : tiles(192, two_sums ? 112 : 128);
  s.alternate = !look.ragged && !(causal && two);
  persist(look, s);
  share_survey(look, s);
  if (look.leaning && look.divides) s.staged_stores = false;
  // Worth 1 to 2 % beside turns and two slots, and a loss without them, with more to do for a
  // score, or where masked tiles have a loop of their own.
  s.sums_by_products =
      s.persistent && (look.plain ? !look.masked : look.score.caps && !look.capped_with_maximum);
  s.peel_masks = parts_full_tiles(look);
  if (look.masked && s.persistent) {
    s.descending = !look.plain && !look.score.caps;
    s.grid_order = GridOrder::tiles_last;
    if (causal || look.keys_up_to(4096)) draw_tiles(s);
  }
  if (causal) {
    s.peel_masks = true;
    s.staged_stores = false;
    s.lazy_scaling = !two;
    if (look.widest < 64 && !look.keys_up_to(4096)) s.reduction_chains = 2;
  }
  return s;
}

/// Up to 112 columns warpgroups take turns: three, a tenth faster where keys are many and there are
/// registers for a score; two where a mask leaves few keys, for what asks for more, and where
/// blocks of 192 rows would leave more of the last round empty than that.
Schedule between(const Look& look) {
  const bool caps = look.score.caps;
  const bool room = look.masked ? look.widest <= 96 && look.bounded && !caps
                                : !caps || !(look.capped_with_maximum || look.spec.lse);
  const bool few = look.keys_up_to(1536) || look.few_tiles_a_row();
  const bool even = look.most_rows_up_to(10, 192, 11, 128);
  Schedule s = tiles(128, 128);
  if (room && !few && even && !look.score.looks_up) {
    s = tiles(192, look.widest > 96 || look.in_sequences() ? 80 : look.widest > 80 ? 96 : 112);
  } else if (look.looked_up && look.leaning) {
    s.tiles["cols"] = 96;
  } else if (look.capped_with_maximum && !(look.masked && look.bounded)) {
    s.tiles["cols"] = look.widest <= 96 ? 112 : 96;
  }
  s.alternate = true;
  persist(look, s);
  share_survey(look, s);
  s.peel_masks = parts_full_tiles(look);
  if (!look.masked) return s;
  if (s.has_next_tiles()) s.staged_stores = false;
  if (s.persistent) {
    s.peel_masks = look.plain;
    s.descending = look.score.caps;
    s.grid_order = GridOrder::tiles_last;
    if (look.score.caps || look.few_tiles_a_row() || look.keys_up_to(4096)) draw_tiles(s);
  }
  return s;
}

/// Up to 128 columns; a mask that looks things up beside more, and short sequences, in small tiles.
Schedule middle(const Look& look) {
  const bool leaning = look.leaning && !look.several && !look.ragged;
  if (look.looked_up && (look.several || look.ragged || (!look.plain && !leaning))) {
    Schedule s = tiles(64, 64);
    s.blocks_per_processor = 2;
    share_survey(look, s);
    return s;
  }
  if (look.spec.packed() && look.plain && look.bounded && look.keys_up_to(1024)) return alone(look);
  if (look.widest <= 112) return between(look);
  const bool parts = parts_full_tiles(look);
  // Else many keys are worth a tile that leaves no room for an output beside the query.
  if (!look.masked && !parts && look.may_persist && look.d == look.dv &&
      look.problem.keys_from(8192)) {
    Schedule s = tiles(128, 144);
    persist(look, s);
    s.scale_late = true;
    return s;
  }
  int cols = 128;
  if (look.capped_with_maximum && (look.masked ? !look.bounded : look.ragged)) cols = 112;
  if (look.looked_up && leaning) cols = 96;
  Schedule s = tiles(128, cols);
  // Three warpgroups have room for fewer keys, and are as fast: whichever leaves less of the last
  // round empty.
  if (!look.masked && look.plain && look.may_persist && !look.most_rows_up_to(19, 128, 20, 192))
    s = tiles(192, 80);
  // Long between products, a score that looks things up: one warpgroup computes while the other
  // multiplies.
  s.alternate = !look.ragged && (look.score.looks_up || look.looked_up);
  persist(look, s);
  share_survey(look, s);
  if (parts) {
    s.peel_masks = true;
    s.staged_stores = false;
    if (s.persistent) s.tile_order = TileOrder::counter;
  }
  // Staged, outputs take room and a turn of their own, which pays where rounds are few.
  if (look.masked && s.has_next_tiles())
    s.staged_stores = s.persistent && look.plain && !look.few_tiles_a_row() && look.keys_up_to(768);
  if (look.masked && s.persistent) {
    // The tiles that the mask cuts come last, in a copy of the loop of their own; capped ones
    // first.
    const bool caps = look.score.caps && !look.capped_with_maximum;
    const bool drawn = !look.few_tiles_a_row() &&
                       (caps || ((look.plain || look.leaning) && !look.keys_up_to(1024)));
    s.peel_masks = look.plain;
    s.descending = look.score.caps;
    if (drawn) {
      if (caps) s.alternate = s.alternate || look.spec.lse || look.keys_up_to(2048);
      draw_tiles(s);
    } else if (look.problem.keys_from(4097)) {
      s.grid_order = GridOrder::tiles_last;
    }
  }
  return s;
}

/// Two tiles of keys and values, and the query, take all of shared memory.
Schedule wide(const Look& look) {
  int cols = look.d + look.dv > 2 * 192 ? 80 : look.d + look.dv > 2 * 160 ? 112 : 128;
  // Scores want registers: beside a mask that is tested tile by tile, and of the widest tiles.
  if (look.capped_with_maximum || (look.leaning && (look.looked_up || look.divides)) ||
      (look.score.looks_up && look.widest < 192))
    cols -= 16;
  if ((look.capped_with_maximum && look.widest > 144) || (look.score.looks_up && look.several))
    cols = std::min(cols, 96);
  // And branches for both take longer to compile than a second. Fewer keys are no slower then, but
  // for prefixes up to 160 columns.
  const bool looks_twice = look.surveyed && (look.score.caps || look.score.looks_up);
  if (looks_twice && (look.looked_up || look.widest > 160))
    cols = std::min(cols, look.widest > 192 && look.score.caps ? 64 : 96);
  // Beside an LSE 192 columns are as fast with them throughout.
  if (look.score.caps && look.spec.lse && look.widest > 160) cols = std::min(cols, 96);
  if (look.masked && look.keys_up_to(1024)) cols = std::min(cols, 64);
  Schedule s = tiles(128, cols);
  s.scale_late = !look.masked || look.keys_up_to(2048);
  if (look.masked || look.may_persist) {
    persist(look, s);
    s.outer_stages = 1;
    s.staged_stores = false;
  }
  if (look.masked) {
    s.descending = false;
    if (!look.keys_up_to(3072)) s.grid_order = GridOrder::tiles_last;
  }
  s.peel_masks = parts_full_tiles(look);
  // Below 192 columns all scores wait long enough between products for turns, behind that caps do;
  // a maximum beside a cap leaves no registers for them there.
  const bool narrower = look.widest < 192;
  if (look.score.looks_up || (look.capped_with_maximum && look.widest < 176)) return s;
  s.alternate = look.score.caps || (narrower && !look.ragged);
  const bool draws =
      narrower ? !look.masked || look.keys_up_to(4096) : look.masked && look.score.caps;
  if (draws || look.few_tiles_a_row()) draw_tiles(s);
  return s;
}

/// Where tiles of 64 rows leave room, two blocks share out the keys of each: two tiles or more for
/// either, since putting together what they have takes as long as one. Two blocks of head_dim 64
/// fit on a multiprocessor. Measured where bounds alone say which keys a block sees.
void share_keys(const Look& look, Schedule& s) {
  if (!look.may_persist) return;
  if (look.widest > 64 || !look.problem.blocks_below(64, multiprocessors + 1) ||
      !look.problem.keys_from(4 * s.tiles["cols"]))
    return;
  s.loop_blocks = 2;
  // Two blocks a tile are more than there are multiprocessors.
  if (!look.problem.blocks_below(64, multiprocessors / 2 + 1)) s.blocks_per_processor = 2;
}

/// Fewer blocks of the usual size than multiprocessors: half the rows, twice the blocks.
Schedule small(const Look& look) {
  Schedule s = tiles(64, look.dv <= 128 ? 128 : 64);
  s.reduction_chains = 2;
  s.staged_stores = false;
  share_keys(look, s);
  while (tile_bytes(look, s) > shared_bytes) s.tiles["cols"] -= 16;
  return s;
}

}  // namespace

Schedule hopper_schedule(const AttentionSpec& spec, ProblemQuestions& problem) {
  const Look look{spec, problem};
  const bool few = look.fewer_rounds(128, 1);
  Schedule s = few                  ? small(look)
               : look.widest <= 64  ? narrow(look)
               : look.widest <= 128 ? middle(look)
                                    : wide(look);
  while (tile_bytes(look, s) > shared_bytes && s.tiles["cols"] > 16) s.tiles["cols"] -= 16;
  s.last_tiles_first = look.masked;
  even_out_tiles(look, s);
  return s;
}

}  // namespace flashcore
