#include "templates/cost_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace flashcore {
namespace {

int padded(int number, int unit) { return (number + unit - 1) / unit * unit; }

/// Tiles of so many keys, given one through a tile's columns: a product where a quotient takes five
/// times as long, and rounded up without a branch. What is off is far less than a key.
double tiles_of(double keys, double share_of_key) {
  constexpr double nearly_one = 1 - 1e-6;
  return static_cast<double>(static_cast<std::int32_t>(keys * share_of_key + nearly_one));
}

/// Between the head dims that were measured; beyond the last, as much more as columns.
double columns_us(const FamilyCosts& costs, double dim) {
  const auto& dims = FamilyCosts::measured_dims;
  const std::size_t last = std::size(dims) - 1;
  if (dim <= dims[0]) return costs.columns_us[0];
  if (dim >= dims[last]) return costs.columns_us[last] * dim / dims[last];
  const auto above =
      static_cast<std::size_t>(std::ranges::lower_bound(dims, dim) - std::begin(dims));
  const double part = (dim - dims[above - 1]) / (dims[above] - dims[above - 1]);
  return costs.columns_us[above - 1] * (1 - part) + costs.columns_us[above] * part;
}

/// Blocks of 64 query rows leave room for others on their multiprocessor. ptxas gives each thread
/// what its part of the output, the scores and the softmax weights takes, where it may.
int residents(const AttentionSpec& spec, const Schedule& s) {
  const int rows = s.tiles.at("rows"), cols = s.tiles.at("cols");
  if (rows > 64) return std::max(1, s.blocks_per_processor);
  constexpr int all_registers = 65536, all_shared = 228 * 1024, reserved = 1024, others = 27;
  const int d = padded(spec.head_dim, 16), dv = padded(spec.value_dim(), 16);
  const int registers = padded(cols / 2 + cols / 4 + dv / 2 + others, 8);
  const int by_registers = s.blocks_per_processor > 1 && s.producer
                               ? s.blocks_per_processor
                               : all_registers / (s.threads() * registers);
  const int exchanged = s.cluster_splits > 1 ? 4 * rows * (dv + 8) + 3 * 1024 : 0;
  const int shared = 2 * (s.outer_stages * rows * d + s.stages * cols * (d + dv)) + exchanged;
  return std::max(1, std::min(by_registers, all_shared / (shared + reserved)));
}

double tail_of(const FamilyCosts& costs, const Schedule& s) {
  if (s.grid_order == GridOrder::tiles_last) return costs.tiles_last_tail;
  return s.grid_order == GridOrder::grouped ? costs.grouped_tail : costs.tiles_first_tail;
}

}  // namespace

std::string cost_family(const Schedule& s, bool masked) {
  const char* kind = "";
  if (s.tiles.at("rows") > 64)
    kind = s.ping_pong ? "/ping_pong" : "";
  else
    kind = s.cluster_splits > 1 ? "/split" : s.producer ? "" : "/no_producer";
  return fmt::format("{}/{}{}", masked ? "masked" : "full", s.tiles.at("rows"), kind);
}

/// What a kernel does for a problem.
struct CostedSchedule::Load {
  double tiles = 0;         ///< of query rows, of a head
  double heads = 0;         ///< of all sequences
  double side_by_side = 1;  ///< of these heads, those that the scheduler goes through together
  double blocks = 0;        ///< of the grid, or output tiles of persistent blocks
  /// Iterations of some blocks of a head, the most first, and in the mean.
  std::array<double, VisibleKeys::most_samples> iterations;
  int samples = 1;
  double mean = 0;
  double share = 1;  ///< of all keys, those that a head's blocks visit in the mean

  [[nodiscard]] double most() const { return iterations[0]; }
  [[nodiscard]] bool is_even() const {
    return iterations[static_cast<std::size_t>(samples - 1)] == most();
  }
  /// Of the block that so many blocks of the head precede.
  [[nodiscard]] double behind(double longer_blocks) const {
    const double at = std::clamp(longer_blocks / tiles, 0.0, 1.0) * samples;
    return iterations[std::min(static_cast<std::size_t>(at),
                               static_cast<std::size_t>(samples - 1))];
  }
};

CostedSchedule::CostedSchedule(const AttentionSpec& spec, const Schedule& s, const MaskTraits& mask,
                               const ScoreTraits& score, const CostModel& model,
                               const FamilyCosts* costs)
    : rows_(s.tiles.at("rows")),
      cols_(s.tiles.at("cols")),
      splits_(s.cluster_splits),
      positions_(s.positions_per_block),
      residents_(residents(spec, s)),
      l2_bytes_(static_cast<double>(model.gpu().l2_bytes)),
      bytes_per_us_(model.bytes_per_us()),
      order_(s.grid_order),
      is_static_(s.persistent && s.tile_scheduler == PersistentScheduler::serpentine),
      key_reach_(s.outer_stages == 1 ? 2 : 1),
      is_known_(costs != nullptr) {
  if (!is_known_) return;
  const int d = padded(spec.head_dim, 16), dv = padded(spec.value_dim(), 16);
  const double dim = (d + dv) / 2.0, dims = dim / 128, columns = cols_ / 128.0;
  row_bytes_ = size_of(spec.dtype) * (d + dv);
  if (spec.heads && spec.kv_heads) heads_of_key_ = static_cast<double>(spec.heads) / spec.kv_heads;
  slots_ = std::floor(model.gpu().multiprocessors * residents_ *
                      (splits_ > 2 ? model.cluster_share() : 1));
  launch_us_ = costs->launch_us;
  scan_us_ = mask.bounds_loop() ? 0 : model.scan_us();
  block_us_ = costs->block_us + costs->block_dim_us * dims;
  if (s.persistent && s.tile_scheduler == PersistentScheduler::dynamic)
    block_us_ += costs->dynamic_us;
  if (splits_ > 1) block_us_ += costs->split_us * splits_ / 2 + costs->split_dim_us * dims;
  iteration_contention_ = costs->iteration_contention;
  // All blocks of a multiprocessor share the units that compute the operations of scores.
  const double shared = residents_ / (1 + iteration_contention_ * (residents_ - 1));
  iteration_us_ = costs->iteration_us + columns_us(*costs, dim) * columns +
                  model.score_operation_us() * score.operations * columns * rows_ / 128 * shared;
  block_contention_ = costs->block_contention;
  tail_ = tail_of(*costs, s);
}

CostedSchedule::Load CostedSchedule::load_of(const AttentionProblem& problem,
                                             const VisibleKeys& visible) const {
  Load load;
  load.tiles = std::ceil(static_cast<double>(problem.q_len) / rows_);
  load.heads = static_cast<double>(problem.batch * problem.heads);
  load.blocks = load.tiles * load.heads * splits_ / positions_;
  load.side_by_side = heads_side_by_side(problem, load.heads);
  load.samples = visible.samples;
  const double share_of_key = 1.0 / cols_, share_of_tile = 1.0 / splits_;
  double keys = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(visible.samples); ++i) {
    double tiles = tiles_of(visible.keys[i], share_of_key);
    if (splits_ > 1) tiles = tiles_of(tiles, share_of_tile);
    load.iterations[i] = positions_ * tiles;
    load.mean += load.iterations[i];
    keys += visible.keys[i];
  }
  load.mean /= visible.samples;
  if (problem.kv_len > 0) load.share = keys / visible.samples / static_cast<double>(problem.kv_len);
  return load;
}

double CostedSchedule::block_us(double iterations, double residents) const {
  // The next query of a block is loaded while it finishes with the last one.
  const double block = scan_us_ + block_us_ * (positions_ + 1) / 2;
  return block * (1 + block_contention_ * (residents - 1)) +
         iterations * iteration_us_ * (1 + iteration_contention_ * (residents - 1));
}

double CostedSchedule::heads_side_by_side(const AttentionProblem& problem, double heads) const {
  if (order_ == GridOrder::tiles_first) return 1;
  if (order_ == GridOrder::tiles_last) return heads;
  // As schedule_tiles makes its groups.
  const double room = std::exp2(std::floor(std::log2(l2_bytes_)));
  const double bytes = row_bytes_ * static_cast<double>(problem.kv_len) * key_reach_;
  return std::clamp(std::floor(room / bytes), 1.0, heads);
}

double CostedSchedule::uneven_us(const Load& load) const {
  const double crowd = std::clamp(std::ceil(load.blocks * residents_ / slots_), 1.0,
                                  static_cast<double>(residents_));
  const double longest = block_us(load.most(), crowd);
  if (load.blocks <= slots_) return longest;
  const double mean = block_us(load.mean, residents_), work = load.blocks * mean / slots_;
  double us = std::max(longest, work + tail_ * mean / positions_);
  // At the end fewer blocks are left on a multiprocessor.
  const double few = (residents_ + 1) / 2.0;
  // Of the n * slots + 1 longest blocks, n + 1 share a slot.
  for (const double n : {1.0, std::floor((load.blocks - 1) / slots_)}) {
    const double longer = std::floor(n * slots_ * positions_ / splits_ / load.heads);
    const double iterations = load.behind(longer);
    us = std::max(us, n * block_us(iterations, residents_) + block_us(iterations, few));
  }
  if (!is_static_) {
    // The last heads begin with their longest blocks when the others are done.
    const double rounds = std::ceil(load.heads / load.side_by_side) - 1;
    const double before = rounds * load.side_by_side / load.heads;
    us = std::max(us, work * before + block_us(load.most(), few));
  }
  return us;
}

/// Blocks that run at the same time and read the same keys find them in L2.
double CostedSchedule::memory_us(const AttentionProblem& problem, const Load& load) const {
  const double queries = row_bytes_ * static_cast<double>(problem.q_len) * load.heads;
  const double keys = row_bytes_ * static_cast<double>(problem.kv_len) * load.heads / heads_of_key_;
  double together = std::min(load.tiles, slots_);
  if (order_ != GridOrder::tiles_first) {
    constexpr double usable = 0.7;  // of L2, beside what streams through it
    const bool spread = order_ == GridOrder::tiles_last && keys > usable * l2_bytes_;
    together = spread ? std::max(1.0, slots_ / load.heads) : load.tiles;
  }
  const double passes = std::max(1.0, load.tiles / std::min(load.tiles, together) * load.share);
  return (queries + keys * passes) / bytes_per_us_;
}

double CostedSchedule::time_us(const AttentionProblem& problem, const VisibleKeys& visible,
                               double enough) const {
  if (!is_known_ || problem.heads % positions_ != 0) return std::numeric_limits<double>::infinity();
  const Load load = load_of(problem, visible);
  // Measured with fewer waves: blocks of two heads end a tenth later than those of one.
  constexpr double least_waves = 5;
  if (positions_ > 1 && load.blocks < least_waves * slots_)
    return std::numeric_limits<double>::infinity();
  double us = 0;
  if (load.is_even()) {
    const double waves = std::floor(load.blocks / slots_), rest = load.blocks - waves * slots_;
    us = waves * block_us(load.most(), residents_);
    if (rest > 0) us += block_us(load.most(), std::ceil(rest * residents_ / slots_));
  } else {
    us = uneven_us(load);
  }
  // Memory and multiprocessors hold each other up where both take long.
  const double memory = memory_us(problem, load);
  if (const double least = launch_us_ + std::max(us, memory); least >= enough) return least;
  return launch_us_ + std::sqrt(std::sqrt(us * us * us * us + memory * memory * memory * memory));
}

std::string CostedSchedule::describe(const AttentionProblem& problem,
                                     const VisibleKeys& visible) const {
  const Load load = load_of(problem, visible);
  return fmt::format(
      "{:.0f} blocks of {} rows, {:.0f} at once, {:.2f} waves, {:.1f} key tiles each", load.blocks,
      rows_, slots_, load.blocks / slots_, load.mean);
}

}  // namespace flashcore
