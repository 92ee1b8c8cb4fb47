#include "templates/choice/cost_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "templates/schedules/schedule_parts.h"

namespace flashcore {
namespace {

/// So many parts of a whole, given one through the parts of one whole, rounded up, or down: a product
/// where a quotient takes five times as long, without a branch, a call or a conversion. Parts are
/// whole numbers, so what is off is far less than one of them.
constexpr double rounding = 1e-6;
/// Numbers of this size have no fraction: a sum with it is rounded to the nearest whole number.
constexpr double whole_only = 0x1.8p52;
double rounded_up(double parts, double share) {
  return (parts * share + (0.5 - rounding) + whole_only) - whole_only;
}
double rounded_down(double parts, double share) {
  return (parts * share - (0.5 - rounding) + whole_only) - whole_only;
}

/// Blocks of 64 query rows leave room for others on their multiprocessor. ptxas gives each thread
/// what its part of the output, the scores and the softmax weights takes, where it may.
int residents(const AttentionSpec& spec, const Schedule& s) {
  const int rows = s.tiles.at("rows"), cols = s.tiles.at("cols");
  if (rows > 64) return std::max(1, s.blocks_per_processor);
  constexpr int all_registers = 65536, all_shared = 228 * 1024, reserved = 1024, others = 27;
  const int d = round_up(spec.head_dim), dv = round_up(spec.value_dim());
  const int registers = round_up(cols / 2 + cols / 4 + dv / 2 + others, 8);
  const int by_registers = s.blocks_per_processor > 1 && s.producer
                               ? s.blocks_per_processor
                               : all_registers / (s.threads() * registers);
  const int exchanged = s.cluster_splits > 1 ? 4 * rows * (dv + 8) + 3 * 1024 : 0;
  const int shared = 2 * (s.outer_stages * rows * d + s.stages * cols * (d + dv)) + exchanged;
  return std::max(1, std::min(by_registers, all_shared / (shared + reserved)));
}

/// Shares do not grow with more columns, and are at most 1.
double share_at_dim(std::span<const double> of_measured_dims, double head_dim) {
  std::vector<double> shares(of_measured_dims.begin(), of_measured_dims.end());
  for (double& share : shares) share = std::min(share, 1.0);
  return at_dim(shares, std::min<double>(head_dim, std::end(measured_dims)[-1]));
}

}  // namespace

std::string cost_family(const Schedule& s) {
  const int rows = s.tiles.at("rows");
  if (rows <= 64 && s.cluster_splits > 1) return fmt::format("{}/split", rows);
  if (rows <= 64 && !s.producer) return fmt::format("{}/no_producer", rows);
  if (s.multicast_blocks > 1) return fmt::format("{}/multicast", rows);
  // Three warpgroups take as long in turns as without.
  return fmt::format("{}{}", rows, rows == 128 && s.ping_pong ? "/ping_pong" : "");
}

/// The time of a kernel's blocks, whatever memory takes.
struct CostedSchedule::Parts {
  double waves_us = 0;       ///< of all waves but the last
  double last_us = 0;        ///< of the last, or of all where they differ in length
  double share_of_last = 1;  ///< of all blocks, those of the last wave
  double busy = 1;           ///< of the multiprocessors, those that compute as long as it lasts
};

/// What a kernel does for a problem.
struct CostedSchedule::Load {
  double tiles = 0;              ///< of query rows, of a head
  double heads = 0;              ///< of all sequences
  double share_of_key = 1;       ///< one through their number
  double side_by_side = 1;       ///< of these heads, those that the scheduler goes through together
  double heads_last = 1;         ///< heads that it goes through together at the end
  double blocks = 0;             ///< of the grid, or output tiles of persistent blocks
  double block_us = 0;           ///< of one of them, beside its iterations
  double queries = 0, keys = 0;  ///< bytes of query rows with the output, of keys with values
  double seen = 1;               ///< of all keys of a head, those that some tile sees
  /// Iterations of some blocks of a head, the most first, and in the mean.
  std::array<double, VisibleKeys::most_samples> iterations;
  int samples = 1;
  double mean = 0;

  [[nodiscard]] double most() const { return iterations[0]; }
  [[nodiscard]] double least() const { return iterations[static_cast<std::size_t>(samples - 1)]; }
  /// Of the block that so many blocks of the head precede.
  [[nodiscard]] double behind(double longer_blocks) const {
    const double at = std::clamp(longer_blocks / tiles, 0.0, 1.0) * samples;
    return iterations[std::min(static_cast<std::size_t>(at),
                               static_cast<std::size_t>(samples - 1))];
  }
  /// Of a block of the head, the longest first.
  [[nodiscard]] double of_tile(double tile) const {
    const double at = tiles > 1 ? tile * (samples - 1) / (tiles - 1) : 0;
    const auto before = static_cast<std::size_t>(at);
    if (before + 1 >= static_cast<std::size_t>(samples)) return iterations[before];
    const double part = at - static_cast<double>(before);
    return iterations[before] * (1 - part) + iterations[before + 1] * part;
  }
};

CostedSchedule::CostedSchedule(const SpecTraits& traits, const Schedule& s, const CostModel& model)
    : rows_(s.tiles.at("rows")),
      cols_(s.tiles.at("cols")),
      splits_(s.cluster_splits),
      multicast_(s.multicast_blocks),
      positions_(s.positions_per_block),
      residents_(residents(traits.spec, s)),
      order_(s.grid_order),
      takes_sequences_in_turn_(s.persistent && traits.spec.packed()),
      is_static_(s.persistent && s.tile_scheduler == PersistentScheduler::serpentine),
      end_aligned_(s.end_aligned_tiles) {
  // Where ping-pong keeps warpgroups apart that would fall into step, a block takes as long as others without.
  Schedule costed = s;
  costed.ping_pong = s.ping_pong && !falls_into_step(s, traits.spec);
  const auto family = model.families.find(cost_family(costed));
  is_known_ = family != model.families.end();
  if (!is_known_) return;
  const FamilyCosts& costs = family->second;
  const AttentionSpec& spec = traits.spec;
  const int d = round_up(spec.head_dim), dv = round_up(spec.value_dim());
  const double dim = (d + dv) / 2.0, dims = dim / 128, columns = cols_ / 128.0;
  row_bytes_ = size_of(spec.dtype) * (d + dv);
  if (spec.heads && spec.kv_heads)
    share_of_key_head_ = static_cast<double>(spec.kv_heads) / spec.heads;
  slots_ = std::floor(model.gpu.multiprocessors * residents_ *
                      (splits_ > 2 ? model.costs.cluster_share : 1) * share_of_split_) *
           splits_;
  share_of_slot_ = 1 / slots_;
  tiles_at_once_ = slots_ / blocks_per_tile_;
  least_blocks_ = model.properties.two_heads_waves * slots_;
  const auto l2_bytes = static_cast<double>(model.gpu.l2_bytes);
  // As schedule_tiles makes its groups.
  keys_in_l2_ = std::exp2(std::floor(std::log2(l2_bytes)) - 1) / row_bytes_;
  reread_share_ = model.properties.reread_share;
  us_per_byte_ = 1 / model.costs.bytes_per_us;
  launch_us_ = costs.launch_us;
  if (s.persistent && order_ != GridOrder::tiles_first) launch_us_ += model.properties.grouped_us;
  spread_us_ = costs.spread_us;
  share_of_multiprocessor_ = 1.0 / model.gpu.multiprocessors;
  scan_us_ = traits.mask.bounds_loop() ? 0 : model.costs.scan_us;
  fill_share_ = costs.fill_share;
  stall_share_ = costs.stall_share;
  constexpr double least_share = 0.01;
  share_of_held_byte_ = 1 / (std::max(least_share, model.properties.l2_share) * l2_bytes);
  const double tile_us = at_dim(costs.block_us, dim);
  const double row_share = share_at_dim(costs.row_share, dim);
  rows_us_ = tile_us * row_share;
  block_us_ = tile_us * (1 - row_share);
  if (s.staged_stores && rows_ <= 64) block_us_ += model.properties.staged_us;
  if (!traits.mask.is_full()) block_us_ += costs.mask_us;
  if (s.persistent && traits.ragged) block_us_ += model.properties.segment_us;
  if (s.producer && spec.packed()) block_us_ += model.properties.segment_us;
  // The other blocks of a cluster send each block its share of their outputs: half of all outputs in a
  // cluster of two, three quarters in one of four.
  const double sent = 2 * (1 - share_of_split_);
  if (splits_ > 1) block_us_ += costs.split_us * splits_ / 2 + costs.split_dim_us * dims * sent;
  iteration_us_ = costs.iteration_us + at_dim(costs.columns_us, dim) * columns;
  double busy_us = costs.contention * at_dim(costs.columns_us, dim) * columns;
  // All blocks of a multiprocessor share the units that compute the operations of scores.
  const double operations_us =
      model.costs.score_operation_us * traits.score.operations * columns * rows_ / 128;
  iteration_us_ += operations_us;
  busy_us += operations_us;
  // By what share the lookups of a block take longer for each warpgroup beside the first: warpgroups
  // share key tiles, so the next tile waits for the slowest.
  constexpr double wait_share = 0.15;
  const int warpgroups = std::max(1, rows_ / 64);
  iteration_us_ += model.properties.own_element_us * traits.score.own_elements * columns *
                   (1 + wait_share * (warpgroups - 1));
  for (int halves = 0; halves <= 2 * residents_; ++halves) {
    const double others_cubed = std::max(0.0, std::pow(halves / 2.0, 3) - 1);
    contended_us_.push_back(
        std::cbrt(std::pow(iteration_us_, 3) + others_cubed * std::pow(busy_us, 3)));
  }
  const double tile_of_slot = blocks_per_tile_ * share_of_slot_;
  tile_slot_us_ = tile_of_slot * block_us_;
  tile_slot_key_us_ =
      tile_of_slot * contended_us(residents_) * share_of_column_ * share_of_split_ * positions_;
  tail_ = model.properties.tail / positions_;
  if (is_static_) static_factor_ += model.properties.static_share;
}

/// Tiles of query rows of a head. Blocks that share loads come as whole clusters.
double CostedSchedule::tiles_of(const AttentionProblem& problem) const {
  return multicast_ * rounded_up(static_cast<double>(problem.q_len), share_of_row_ / multicast_);
}

CostedSchedule::Load CostedSchedule::load_of(const AttentionProblem& problem,
                                             const VisibleKeys& visible) const {
  Load load;
  load.tiles = tiles_of(problem);
  load.heads = static_cast<double>(problem.batch * problem.heads);
  load.blocks = load.tiles * load.heads * blocks_per_tile_;
  load.share_of_key = 1 / static_cast<double>(std::max<std::int64_t>(problem.kv_len, 1));
  group_heads(problem, load);
  const double rows = static_cast<double>(problem.q_len) * share_of_row_ / load.tiles;
  // The next query of a block is loaded while it finishes with the last one.
  load.block_us = scan_us_ + (block_us_ + rows_us_ * rows) * (positions_ + 1) / 2;
  load.queries = row_bytes_ * static_cast<double>(problem.q_len) * load.heads;
  load.seen = std::clamp(visible.share * load.tiles, load.share_of_key, 1.0);
  load.keys = row_bytes_ * load.seen * static_cast<double>(problem.kv_len) * load.heads *
              share_of_key_head_;
  return load;
}

double CostedSchedule::iterations_of(double keys) const {
  return positions_ * rounded_up(rounded_up(keys, share_of_column_), share_of_split_);
}

void CostedSchedule::count_iterations(Load& load, const VisibleKeys& visible) const {
  load.samples = visible.samples;
  double sum = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(visible.samples); ++i) {
    load.iterations[i] = iterations_of(visible.keys[i]);
    sum += load.iterations[i];
  }
  load.mean = sum / visible.samples;
}

double CostedSchedule::least_us(const AttentionProblem& problem, const VisibleKeys& visible) const {
  if (!is_known_) return std::numeric_limits<double>::infinity();
  const double longest = block_us_ + iterations_of(visible.most()) * iteration_us_;
  // static_us() adds up iterations interpolated between the samples; their mean may be below that of
  // all keys seen.
  if (is_static_) return launch_us_ + longest;
  const double tiles = tiles_of(problem) * static_cast<double>(problem.batch * problem.heads);
  const double seen = visible.share * static_cast<double>(problem.kv_len);
  return launch_us_ + std::max(longest, tiles * (tile_slot_us_ + seen * tile_slot_key_us_));
}

double CostedSchedule::block_us(const Load& load, double iterations, double residents) const {
  return load.block_us + iterations * contended_us(residents);
}

/// As schedule_tiles makes its groups. Persistent blocks go through packed sequences one after the other.
void CostedSchedule::group_heads(const AttentionProblem& problem, Load& load) const {
  if (takes_sequences_in_turn_) {
    load.side_by_side = load.heads_last = static_cast<double>(problem.heads);
    return;
  }
  load.side_by_side = order_ == GridOrder::tiles_first ? 1 : load.heads;
  load.heads_last = load.side_by_side;
  if (order_ != GridOrder::grouped) return;
  const double most = std::clamp(rounded_down(keys_in_l2_, load.share_of_key), 1.0, load.heads);
  load.side_by_side = std::ceil(load.heads / std::floor(load.heads / most));
  const double others = std::max(0.0, std::ceil(load.heads / load.side_by_side) - 2);
  load.heads_last = load.heads - others * load.side_by_side;
}

double CostedSchedule::uneven_us(const Load& load) const {
  const double mean = block_us(load, load.mean, residents_);
  const double work = load.blocks * share_of_slot_ * mean, share_of_head = 1 / load.heads;
  double us = std::max(block_us(load, load.most(), residents_), work + tail_ * mean);
  // At the end fewer blocks are left on a multiprocessor.
  const double few = (residents_ + 1) / 2.0;
  // Of the n * slots + 1 longest blocks, n + 1 share a slot.
  for (const double n : {1.0, rounded_down(load.blocks - 1, share_of_slot_)}) {
    const double iterations = load.behind(rounded_down(n * tiles_at_once_, share_of_head));
    us = std::max(us, n * block_us(load, iterations, residents_) + block_us(load, iterations, few));
  }
  // Of the last heads those blocks wait for which no slot is left, the longest first: until all others have
  // begun, the shortest last, of which those that still run are half done, and one has ended. The first
  // blocks end before others by what these began later.
  const double before = (load.heads - load.heads_last) * share_of_head * load.blocks;
  if (before <= 0) return std::max(us, block_us(load, load.most(), few));
  const double heads_last = load.heads_last * blocks_per_tile_;
  const double waits = std::max(0.0, slots_ - before) / heads_last;
  const double running = std::min(1.0, tiles_at_once_ / (load.side_by_side * load.tiles));
  const double half = block_us(load, load.behind((1 - running / 2) * load.tiles), residents_) / 2;
  const double begun = std::max(before + heads_last, slots_);
  const double begin =
      std::max(begun * share_of_slot_ * mean - half, block_us(load, load.least(), residents_));
  const double early = spread_us_ * residents_;
  return std::max(us, begin - early + block_us(load, load.behind(waits), few));
}

/// The time of the multiprocessor that the static scheduler gives most. Tiles go out wave after wave,
/// every other wave backwards, so the tiles of a multiprocessor follow from its place in a wave, modulo
/// the tiles of a head. From place to place their sum rises or falls evenly, except where a wave reaches
/// the first and longest tile of a head. So the largest sum is at such a place, or at the first or the
/// last one; under a mask that gives most tiles as many keys as any has, it may be halfway between. A
/// place stands for all multiprocessors that are a head's tiles apart; the last, partial wave counts if
/// it reaches one of them. A pattern of waves that repeats within `most_waves` is summed up once;
/// otherwise the waves before the last `most_waves` count as the mean.
double CostedSchedule::static_us(const Load& load) const {
  constexpr std::int64_t most_waves = 16, most_tiles = 128;
  const auto blocks = static_cast<std::int64_t>(load.blocks);
  const auto slots = static_cast<std::int64_t>(slots_);
  const auto tiles = static_cast<std::int64_t>(load.tiles);
  const std::int64_t waves = (blocks + slots - 1) / slots,
                     in_last_wave = blocks - (waves - 1) * slots;
  // Of two waves one is backwards, so a pattern has an even number of them.
  const std::int64_t period = std::lcm(std::int64_t{2}, tiles / std::gcd(tiles, slots));
  const std::int64_t repeats = period <= most_waves ? waves / period : 0;
  const std::int64_t first =
      repeats > 0 ? repeats * period : std::max<std::int64_t>(0, waves - most_waves) / 2 * 2;
  // The iterations of every tile of a head, or of as many evenly spaced ones.
  std::array<double, most_tiles> iterations_of;
  const std::int64_t known = std::min(tiles, most_tiles);
  for (std::int64_t i = 0; i < known; ++i)
    iterations_of[static_cast<std::size_t>(i)] =
        load.of_tile(tiles == known ? static_cast<double>(i)
                                    : static_cast<double>(i * (tiles - 1)) / (known - 1));
  const auto of_tile = [&](std::int64_t tile) {
    return iterations_of[static_cast<std::size_t>(tiles == known ? tile : tile * known / tiles)];
  };
  const auto wrapped = [&](std::int64_t tile) { return tile < tiles ? tile : tile - tiles; };
  const std::int64_t two_waves = 2 * slots % tiles;
  const bool last_is_backwards = waves % 2 == 0;
  const auto us_at = [&](std::int64_t place) {
    if (last_is_backwards) place = slots - 1 - (slots - 1 - place) % tiles;
    const auto iterations_in = [&](std::int64_t begin, std::int64_t end) {
      double sum = 0;
      std::int64_t forwards = (begin * slots + place) % tiles;
      std::int64_t backwards = ((begin + 2) * slots - 1 - place) % tiles;
      for (std::int64_t wave = begin; wave < end; wave += 2) {
        sum += of_tile(forwards);
        if (wave + 1 < end) sum += of_tile(backwards);
        forwards = wrapped(forwards + two_waves);
        backwards = wrapped(backwards + two_waves);
      }
      return sum;
    };
    const bool is_reached =
        last_is_backwards ? place >= slots - in_last_wave : place < in_last_wave;
    const std::int64_t count = waves - (is_reached ? 0 : 1);
    const double iterations = (repeats > 0 ? static_cast<double>(repeats) * iterations_in(0, period)
                                           : static_cast<double>(first) * load.mean) +
                              iterations_in(first, count);
    return static_cast<double>(count - 1) * block_us(load, 0, residents_) +
           block_us(load, iterations, residents_);
  };
  // Where most tiles of a head are among the longest, as under a window, the sum is largest in between.
  const bool is_even = 2 * load.mean <= load.most() + load.least() + 1;
  double most = 0;
  const std::int64_t last_place = std::min(tiles, slots) - 1;
  const auto try_place = [&](std::int64_t place) {
    most = std::max(most, us_at(place));
    if (!is_even) most = std::max(most, us_at(std::min(last_place, place + tiles / 2)));
  };
  try_place(0);
  try_place(last_place);
  const std::int64_t begin = repeats > 0 ? 0 : first, end = repeats > 0 ? period : waves;
  for (std::int64_t wave = begin; wave < end; ++wave) {
    const std::int64_t into_head = wave * slots % tiles;
    const std::int64_t place =
        wave % 2 == 0 ? (tiles - into_head) % tiles : (into_head + slots - 1) % tiles;
    if (place < slots) try_place(place);
  }
  return most;
}

/// How many times keys come from memory after the first. Blocks that run at the same time and read the
/// same keys find them in L2. Where heads go side by side, the next tile of a head finds them there if
/// what all read in between leaves room. The last group of heads is larger than the others.
double CostedSchedule::count_rereads(const AttentionProblem& problem, const Load& load,
                                     double visible_share) const {
  const auto in_group = [&](double side_by_side) {
    // Of a head, the tiles that do not run together.
    double turns = std::max(1.0, load.tiles * side_by_side * share_of_slot_), missed = 1;
    if (order_ != GridOrder::tiles_first) {
      turns = std::min(turns, load.tiles);
      const double between =
          side_by_side * row_bytes_ *
          (load.seen * static_cast<double>(problem.kv_len) * share_of_key_head_ +
           std::min(static_cast<double>(rows_), static_cast<double>(problem.q_len)));
      missed = std::clamp(between * share_of_held_byte_ - 1, 0.0, 1.0);
    }
    return std::max(0.0, turns * visible_share / load.seen - 1) * missed;
  };
  const double last = load.heads_last / load.heads;
  return (1 - last) * in_group(load.side_by_side) + last * in_group(load.heads_last);
}

/// Loads from memory and products wait for each other, the more the closer their times are, where all
/// multiprocessors are busy.
double CostedSchedule::stalled_us(double blocks_us, double memory_us, double busy) const {
  const double longer = std::max(blocks_us, memory_us);
  if (longer <= 0) return 0;
  const double ratio = std::min(blocks_us * busy, memory_us) / longer, both = ratio * ratio;
  return longer * (1 + stall_share_ * both * both);
}

CostedSchedule::Parts CostedSchedule::parts_of(Load& load, const VisibleKeys& visible) const {
  const double most = iterations_of(visible.most());
  if (load.blocks > slots_ && iterations_of(visible.least()) != most) {
    count_iterations(load, visible);
    return {.last_us = is_static_ ? static_us(load) : uneven_us(load)};
  }
  const double waves = rounded_up(load.blocks, share_of_slot_) - 1;
  const double filled = (load.blocks - waves * slots_) * share_of_slot_;  // of the last wave
  const double residents = rounded_up(filled, residents_);
  const double full_us = block_us(load, most, residents_);
  double last_us = block_us(load, most, residents);
  // A static scheduler begins no tile before the one that it gave the multiprocessor earlier has ended.
  if (waves > 0 && !is_static_) last_us += tail_ * (filled - 0.5) * full_us;
  return {.waves_us = waves * full_us,
          .last_us = std::max(last_us, filled * full_us),
          .share_of_last = filled * slots_ / load.blocks,
          .busy = filled * residents_ / residents};
}

double CostedSchedule::time_us(const AttentionProblem& problem, const VisibleKeys& visible,
                               double enough) const {
  if (!is_known_ || (positions_ > 1 && problem.heads % positions_ != 0))
    return std::numeric_limits<double>::infinity();
  Load load = load_of(problem, visible);
  if (positions_ > 1 && load.blocks < least_blocks_) return std::numeric_limits<double>::infinity();
  // Nothing is computed before the first query and key tiles are there.
  const double first_keys = std::min(1.0, cols_ * splits_ * load.share_of_key / load.seen);
  const double filled = (load.queries + load.keys * first_keys) * us_per_byte_ *
                        (load.blocks > slots_ ? slots_ / load.blocks : 1);
  const double spread = std::min(load.blocks, slots_) * share_of_multiprocessor_;
  const double reread = load.keys * count_rereads(problem, load, visible.share) * us_per_byte_;
  const double before =
      launch_us_ + spread_us_ * spread + fill_share_ * filled + reread_share_ * reread;
  const double memory = (load.queries + load.keys) * us_per_byte_ + reread;
  if (before + memory >= enough) return before + memory;
  const Parts parts = parts_of(load, visible);
  const double us = before + stalled_us(parts.waves_us, memory * (1 - parts.share_of_last), 1) +
                    stalled_us(parts.last_us, memory * parts.share_of_last, parts.busy);
  return load.blocks > slots_ ? us * static_factor_ : us;
}

std::string CostedSchedule::describe(const AttentionProblem& problem,
                                     const VisibleKeys& visible) const {
  Load load = load_of(problem, visible);
  count_iterations(load, visible);
  return fmt::format(
      "{:.0f} blocks of {} rows, {:.0f} at once, {:.2f} waves, {:.1f} key tiles each", load.blocks,
      rows_, slots_, load.blocks / slots_, load.mean);
}

}  // namespace flashcore
