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

/// Whether the mask is a conjunction of conditions that are linear in the positions and depend on
/// the key: such a mask bounds the loop. For any other mask a block scans the tiles first.
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

/// What the score expression computes for every key; terms that a row has in common do not count.
struct ScoreTraits {
  bool looks_up = false;  ///< an element of an array, as an additive bias does and ALiBi does not
  bool softcap = false;   ///< a tanh
};
ScoreTraits traits_of_score(AttentionSpec spec) {
  ScoreTraits traits;
  if (spec.score.text.empty()) return traits;
  spec.mask = full();  // which may look things up itself
  const Program program = attention_forward(spec);
  const Function& f = program.function();
  const AxisId cols = f.find_axis("cols");
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    if (op.results.size() != 1 || !f[op.results[0]].type.has(cols)) return;
    traits.looks_up = traits.looks_up || op.code == OpCode::gather;
    traits.softcap = traits.softcap || op.code == OpCode::tanh;
  });
  return traits;
}

/// What the rules ask of a spec and a problem.
struct Traits {
  const AttentionSpec& spec;
  ProblemQuestions& problem;
  int d = padded(spec.head_dim), dv = padded(spec.value_dim());
  int widest = std::max(d, dv);
  bool masked = !spec.mask.is_full();
  bool plain = spec.score.text.empty();
  ScoreTraits score = traits_of_score(spec);
  /// A score computed from positions, as ALiBi is: its terms for a row take registers.
  bool leaning = !plain && !score.softcap && !score.looks_up;
  /// Exponentials of softcapped scores span more than f16 holds, so the maximum is needed too.
  bool softcap_with_maximum = score.softcap && spec.dtype == DType::f16;
  bool ragged = spec.packed() || spec.q_lens || spec.kv_lens;
  bool bounded = mask_bounds_loop(spec);
  /// A persistent block would have to find its segments, and scan its tiles, for every output tile.
  bool may_persist = !ragged && bounded;
  /// Blocks scan for the tiles that they have to visit.
  bool scanned = masked && !bounded;
  bool looked_up = spec.mask.looks_up();  ///< the mask
  /// The mask depends on the head, so each head visits other tiles.
  bool by_head = std::regex_search(spec.mask.text, std::regex("\\bh\\b"));
  bool several = spec.mask.text.find('&') != std::string::npos;   ///< conditions that all hold
  bool divides = spec.mask.text.find("//") != std::string::npos;  ///< as chunks do
  /// A row sees some tiles of many.
  [[nodiscard]] bool few_tiles_a_row() const { return looked_up || several; }
  /// A score computed from positions within sequences needs the segments of both.
  [[nodiscard]] bool in_sequences() const { return leaning && ragged; }
  [[nodiscard]] bool keys_up_to(std::int64_t length) const { return problem.keys_up_to(length); }
  /// Whether blocks of so many rows make fewer waves than that.
  [[nodiscard]] bool fewer_waves(int rows, double waves) const {
    return problem.knows_rows() && problem.blocks_below(rows, waves * multiprocessors);
  }
  /// a * x <= b * y, where x and y are the most rows that a multiprocessor gets, in blocks of
  /// `a_rows` and of `b_rows`.
  [[nodiscard]] bool most_rows_up_to(int a, int a_rows, int b, int b_rows) const {
    return problem.most_rows_up_to(a, a_rows, b, b_rows, multiprocessors);
  }
};

/// Slots of a ring begin at multiples of 1024 bytes. Blocks of a cluster that split a loop exchange
/// their partial outputs, in f32.
int tile_bytes(const Traits& traits, const Schedule& s) {
  const int rows = s.tiles.at("rows"), cols = s.tiles.at("cols");
  const auto slot = [&](int dim) { return (2 * cols * dim + 1023) / 1024 * 1024; };
  const int given = s.cluster_splits == 1 ? 0 : 4 * rows * (traits.dv + 8) + 3 * 1024;
  return s.outer_stages * 2 * rows * traits.d + s.stages * (slot(traits.d) + slot(traits.dv)) +
         given;
}

Schedule tiles(int rows, int cols) {
  Schedule s;
  s.instruction = Instruction::wgmma;
  s.copy = CopyInstruction::tma;
  s.tiles = {{"rows", rows}, {"cols", cols}};
  s.warps_m = rows / 16;
  return s;
}

/// Two slots for the query, where there is room, so that the next one is loaded ahead.
void fetch_ahead(const Traits& traits, Schedule& s) {
  const int scan = traits.scanned ? 2 * 1024 : 0;
  const int room = (shared_bytes + 1024) / s.blocks_per_processor - 1024 - scan;
  const int output = s.staged_stores ? 2 * s.tiles["rows"] * traits.dv : 0;
  s.outer_stages = 2;
  const bool fits = tile_bytes(traits, s) <= room,
             fits_beside = tile_bytes(traits, s) + output <= room;
  // Without a buffer of its own the output is staged in the query's slot, and the load of the next
  // query waits for the store. Several blocks on a multiprocessor overlap anyway, and are better
  // off with less shared memory.
  if (!fits || (!fits_beside && s.blocks_per_processor > 1))
    s.outer_stages = 1;
  else if (!fits_beside)
    s.staged_stores = false;
}

/// Persistent blocks.
void persist(const Traits& traits, Schedule& s) {
  if (!traits.may_persist) return;
  s.persistent = true;
  fetch_ahead(traits, s);
}

/// Blocks that scan for their tiles: blocks with the same rows of all heads are neighbours, and a
/// block has two heads, for which it scans once, if that leaves five waves of blocks or more. A
/// softcap leaves no registers for this, nor do lookups with three blocks on a multiprocessor.
void share_scan(const Traits& traits, Schedule& s) {
  if (!traits.scanned || traits.ragged) return;
  s.grid_order = GridOrder::tiles_last;
  const std::int64_t at_once = std::int64_t{multiprocessors} * s.blocks_per_processor;
  if (traits.score.softcap || (traits.score.looks_up && s.blocks_per_processor == 3) ||
      traits.by_head || !traits.problem.heads_are_even() ||
      traits.problem.blocks_below(s.tiles["rows"], 10. * static_cast<double>(at_once)))
    return;
  s.positions_per_block = 2;
  fetch_ahead(traits, s);
}

/// Three small blocks a multiprocessor, in which a thread of the only warpgroup issues the loads:
/// for kernels that compute nothing between products but the softmax and masks that bound the loop.
/// Kernels with lookups are faster with a producer.
Schedule alone(const Traits& traits) {
  Schedule s = tiles(64, 64);
  s.producer = false;
  s.blocks_per_processor = 3;
  s.reduction_chains = 2;
  // If sequences differ in length, the masked and unmasked ranges of a window are short, and a loop
  // for each of them does not pay.
  if (traits.masked && traits.bounded && !(traits.ragged && traits.few_tiles_a_row())) {
    s.peel_masks = s.rescale_before_product = s.lazy_scaling = true;
    s.descending = false;
  }
  if (traits.widest > 64) s.stages = 1;
  return s;
}

/// The dynamic tile scheduler, with heads grouped for L2.
void schedule_dynamically(Schedule& s) {
  if (!s.persistent) return;
  s.tile_scheduler = PersistentScheduler::dynamic;
  s.grid_order = GridOrder::grouped;
}

/// The tiles of a causal mask differ in length, so that with a few static waves some blocks have up
/// to two thirds more to do than others. The keys of all heads have room in L2 then. For short
/// tiles the dynamic scheduler costs as much as it saves if the second wave is nearly full.
void even_out_tiles(const Traits& traits, Schedule& s) {
  if (!traits.masked || !s.persistent || traits.few_tiles_a_row()) return;
  if (s.tile_scheduler == PersistentScheduler::dynamic) return;
  const auto fewer = [&](double waves) { return traits.fewer_waves(s.tiles["rows"], waves); };
  bool few = fewer(3);
  if (traits.keys_up_to(512)) {
    few = fewer(1.6);
  } else if (traits.keys_up_to(1024)) {
    few = few && (fewer(1.7) || !fewer(2.1));
  }
  if (!few) return;
  s.tile_scheduler = PersistentScheduler::dynamic;
  s.grid_order = GridOrder::tiles_last;
}

/// Whether the last key tile of a full mask is peeled, so that the loop over the others tests
/// nothing: worth it if sequences differ in length, and for other specs where ptxas then makes
/// better code of the loop. With a softcap it takes too long to compile for the gain, except with a
/// maximum.
bool peels_full_tiles(const Traits& traits) {
  if (traits.masked || traits.score.looks_up) return false;
  if (traits.ragged) return traits.plain && traits.widest != 144;
  if (traits.widest == 128) return !traits.score.softcap || traits.softcap_with_maximum;
  return (traits.widest == 160 || traits.widest == 192 || traits.widest == 224) &&
         !traits.score.softcap;
}

/// Products of 64 columns are short compared with the softmax, so three warpgroups run on a
/// multiprocessor; for a mask with few tiles a row three small blocks are better than one large
/// one.
Schedule narrow(const Traits& traits) {
  if (traits.spec.packed() && traits.plain && traits.bounded &&
      traits.keys_up_to(traits.masked ? 4096 : 1536))
    return alone(traits);
  // Small blocks, if there are enough waves of them for an even load.
  const bool short_rows =
      traits.plain && traits.may_persist
          ? traits.keys_up_to(512) || (traits.keys_up_to(1536) && !traits.fewer_waves(64, 4 * 3))
          : traits.keys_up_to(2048);
  if (traits.masked && (short_rows || traits.few_tiles_a_row())) {
    const bool short_padded =
        traits.spec.q_lens && !traits.spec.mask.looks_up() && traits.keys_up_to(768);
    if (traits.plain && (traits.bounded || short_padded)) return alone(traits);
    const bool long_segments =
        traits.looked_up && !traits.several && traits.problem.keys_from(8193);
    Schedule s = tiles(64, long_segments ? 128 : 64);
    s.blocks_per_processor = long_segments ? 2 : 3;
    s.reduction_chains = 2;
    if (traits.scanned && !traits.ragged) s.staged_stores = false;
    share_scan(traits, s);
    return s;
  }
  // With an LSE the rounding errors of a softcapped row's weights are summed up separately.
  const bool two_sums = traits.score.softcap && traits.spec.lse && traits.bounded;
  // Two warpgroups take a fifth longer for a row than three, but have a more even load.
  const bool causal = traits.masked && traits.plain && traits.may_persist;
  const bool uneven = causal ? traits.keys_up_to(1024) || traits.fewer_waves(192, 1.4)
                             : !traits.masked && !traits.most_rows_up_to(5, 192, 6, 128);
  const bool two = uneven || traits.softcap_with_maximum;
  Schedule s = two                     ? tiles(128, 128)
               : traits.in_sequences() ? tiles(192, 96)
                                       : tiles(192, two_sums ? 112 : 128);
  s.ping_pong = !traits.ragged && !(causal && two);
  persist(traits, s);
  share_scan(traits, s);
  if (traits.leaning && traits.divides) s.staged_stores = false;
  // Worth 1 to 2 % with ping-pong and two slots for the query, and a loss without them, with a
  // score expression, or with peeled masks.
  s.sums_by_products =
      s.persistent &&
      (traits.plain ? !traits.masked : traits.score.softcap && !traits.softcap_with_maximum);
  s.peel_masks = peels_full_tiles(traits);
  if (traits.masked && s.persistent) {
    s.descending = !traits.plain && !traits.score.softcap;
    s.grid_order = GridOrder::tiles_last;
    if (causal || traits.keys_up_to(4096)) schedule_dynamically(s);
  }
  if (causal) {
    s.peel_masks = true;
    s.staged_stores = false;
    s.lazy_scaling = !two;
    if (traits.widest < 64 && !traits.keys_up_to(4096)) s.reduction_chains = 2;
  }
  return s;
}

/// Up to 112 columns warpgroups are in ping-pong. Three are a tenth faster with many keys and
/// enough registers for the score expression. Two are better if a mask leaves few keys, if the
/// score needs more registers, and if blocks of 192 rows would leave more than a tenth more of the
/// last wave empty.
Schedule between(const Traits& traits) {
  const bool softcap = traits.score.softcap;
  const bool room = traits.masked ? traits.widest <= 96 && traits.bounded && !softcap
                                  : !softcap || !(traits.softcap_with_maximum || traits.spec.lse);
  const bool few = traits.keys_up_to(1536) || traits.few_tiles_a_row();
  const bool even = traits.most_rows_up_to(10, 192, 11, 128);
  Schedule s = tiles(128, 128);
  if (room && !few && even && !traits.score.looks_up) {
    s = tiles(192, traits.widest > 96 || traits.in_sequences() ? 80
                   : traits.widest > 80                        ? 96
                                                               : 112);
  } else if (traits.looked_up && traits.leaning) {
    s.tiles["cols"] = 96;
  } else if (traits.softcap_with_maximum && !(traits.masked && traits.bounded)) {
    s.tiles["cols"] = traits.widest <= 96 ? 112 : 96;
  }
  s.ping_pong = true;
  persist(traits, s);
  share_scan(traits, s);
  s.peel_masks = peels_full_tiles(traits);
  if (!traits.masked) return s;
  if (s.has_next_tiles()) s.staged_stores = false;
  if (s.persistent) {
    s.peel_masks = traits.plain;
    s.descending = traits.score.softcap;
    s.grid_order = GridOrder::tiles_last;
    if (traits.score.softcap || traits.few_tiles_a_row() || traits.keys_up_to(4096))
      schedule_dynamically(s);
  }
  return s;
}

/// Up to 128 columns. Masks with lookups and other terms, and short sequences, have small tiles.
Schedule middle(const Traits& traits) {
  const bool leaning = traits.leaning && !traits.several && !traits.ragged;
  if (traits.looked_up && (traits.several || traits.ragged || (!traits.plain && !leaning))) {
    Schedule s = tiles(64, 64);
    s.blocks_per_processor = 2;
    share_scan(traits, s);
    return s;
  }
  if (traits.spec.packed() && traits.plain && traits.bounded && traits.keys_up_to(1024))
    return alone(traits);
  if (traits.widest <= 112) return between(traits);
  const bool parts = peels_full_tiles(traits);
  // Otherwise, with many keys, a tile pays that leaves no room for an output besides the query.
  if (!traits.masked && !parts && traits.may_persist && traits.d == traits.dv &&
      traits.problem.keys_from(8192)) {
    Schedule s = tiles(128, 144);
    persist(traits, s);
    s.rescale_before_product = true;
    return s;
  }
  int cols = 128;
  if (traits.softcap_with_maximum && (traits.masked ? !traits.bounded : traits.ragged)) cols = 112;
  if (traits.looked_up && leaning) cols = 96;
  Schedule s = tiles(128, cols);
  // Three warpgroups have room for fewer keys, and are as fast: take what leaves less of the last
  // wave empty.
  if (!traits.masked && traits.plain && traits.may_persist &&
      !traits.most_rows_up_to(19, 128, 20, 192))
    s = tiles(192, 80);
  // Lookups take long between two products: in ping-pong one warpgroup computes while the other
  // multiplies.
  s.ping_pong = !traits.ragged && (traits.score.looks_up || traits.looked_up);
  persist(traits, s);
  share_scan(traits, s);
  if (parts) {
    s.peel_masks = true;
    s.staged_stores = false;
    if (s.persistent) s.tile_scheduler = PersistentScheduler::dynamic;
  }
  // Staging outputs takes shared memory and a barrier, which pays if key tiles are few.
  if (traits.masked && s.has_next_tiles())
    s.staged_stores =
        s.persistent && traits.plain && !traits.few_tiles_a_row() && traits.keys_up_to(768);
  if (traits.masked && s.persistent) {
    // The tiles that the mask cuts come last, in a peeled loop; with a softcap they come first.
    const bool softcap = traits.score.softcap && !traits.softcap_with_maximum;
    const bool dynamic =
        !traits.few_tiles_a_row() &&
        (softcap || ((traits.plain || traits.leaning) && !traits.keys_up_to(1024)));
    s.peel_masks = traits.plain;
    s.descending = traits.score.softcap;
    if (dynamic) {
      if (softcap) s.ping_pong = s.ping_pong || traits.spec.lse || traits.keys_up_to(2048);
      schedule_dynamically(s);
    } else if (traits.problem.keys_from(4097)) {
      s.grid_order = GridOrder::tiles_last;
    }
  }
  return s;
}

/// Two tiles of keys and values, and the query, take all of shared memory.
Schedule wide(const Traits& traits) {
  int cols = traits.d + traits.dv > 2 * 192 ? 80 : traits.d + traits.dv > 2 * 160 ? 112 : 128;
  // Score expressions need registers: with a mask that is tested for each tile, and in wide tiles.
  if (traits.softcap_with_maximum || (traits.leaning && (traits.looked_up || traits.divides)) ||
      (traits.score.looks_up && traits.widest < 192))
    cols -= 16;
  if ((traits.softcap_with_maximum && traits.widest > 144) ||
      (traits.score.looks_up && traits.several))
    cols = std::min(cols, 96);
  // A scan together with a score expression takes more than a second to compile in large tiles.
  // Fewer keys are no slower then, except for prefixes up to 160 columns.
  const bool looks_twice = traits.scanned && (traits.score.softcap || traits.score.looks_up);
  if (looks_twice && (traits.looked_up || traits.widest > 160))
    cols = std::min(cols, traits.widest > 192 && traits.score.softcap ? 64 : 96);
  // With an LSE 192 columns are as fast with 96 keys for all masks.
  if (traits.score.softcap && traits.spec.lse && traits.widest > 160) cols = std::min(cols, 96);
  if (traits.masked && traits.keys_up_to(1024)) cols = std::min(cols, 64);
  Schedule s = tiles(128, cols);
  s.rescale_before_product = !traits.masked || traits.keys_up_to(2048);
  if (traits.masked || traits.may_persist) {
    persist(traits, s);
    s.outer_stages = 1;
    s.staged_stores = false;
  }
  if (traits.masked) {
    s.descending = false;
    if (!traits.keys_up_to(3072)) s.grid_order = GridOrder::tiles_last;
  }
  s.peel_masks = peels_full_tiles(traits);
  // Below 192 columns the softmax of every score is long enough for ping-pong, from 192 columns on
  // that of a softcap; a maximum with a softcap leaves no registers for it there.
  const bool narrower = traits.widest < 192;
  if (traits.score.looks_up || (traits.softcap_with_maximum && traits.widest < 176)) return s;
  s.ping_pong = traits.score.softcap || (narrower && !traits.ragged);
  const bool dynamic =
      narrower ? !traits.masked || traits.keys_up_to(4096) : traits.masked && traits.score.softcap;
  if (dynamic || traits.few_tiles_a_row()) schedule_dynamically(s);
  return s;
}

/// If tiles of 64 rows leave multiprocessors idle, two blocks of a cluster split the keys of each
/// tile, with at least two key tiles each, since combining their results takes as long as one tile.
/// Two blocks of head_dim 64 fit on a multiprocessor. Measured for masks that bound the loop.
void split_keys(const Traits& traits, Schedule& s) {
  if (!traits.may_persist) return;
  if (traits.widest > 64 || !traits.problem.blocks_below(64, multiprocessors + 1) ||
      !traits.problem.keys_from(4 * s.tiles["cols"]))
    return;
  s.cluster_splits = 2;
  // Two blocks a tile are more than there are multiprocessors.
  if (!traits.problem.blocks_below(64, multiprocessors / 2 + 1)) s.blocks_per_processor = 2;
}

/// Fewer blocks of the usual size than multiprocessors: half the rows, twice the blocks.
Schedule small(const Traits& traits) {
  Schedule s = tiles(64, traits.dv <= 128 ? 128 : 64);
  s.reduction_chains = 2;
  s.staged_stores = false;
  split_keys(traits, s);
  while (tile_bytes(traits, s) > shared_bytes) s.tiles["cols"] -= 16;
  return s;
}

}  // namespace

Schedule hopper_schedule(const AttentionSpec& spec, ProblemQuestions& problem) {
  const Traits traits{spec, problem};
  const bool few = traits.fewer_waves(128, 1);
  Schedule s = few                    ? small(traits)
               : traits.widest <= 64  ? narrow(traits)
               : traits.widest <= 128 ? middle(traits)
                                      : wide(traits);
  while (tile_bytes(traits, s) > shared_bytes && s.tiles["cols"] > 16) s.tiles["cols"] -= 16;
  s.last_tiles_first = traits.masked;
  even_out_tiles(traits, s);
  return s;
}

}  // namespace flashcore
