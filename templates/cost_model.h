// How long attention kernels take, predicted: waves of blocks on the multiprocessors of a GPU, the
// iterations of each block, and the bytes from memory. The coefficients were measured, for each GPU
// and each family of schedules; cost_coefficients.json holds them. They are data, so that a GPU
// that nobody has measured yet needs no code, but `flashcore calibrate`.
//
// For a kernel of `blocks` blocks of which a GPU holds `slots` at once:
//
//     iteration = iteration_us + columns_us(head_dim) * columns
//     block     = block_us + block_dim_us * head_dim + iterations * iteration
//     time      = launch_us + sum of waves of blocks, or the bytes that it moves over bytes_per_us
//
// Blocks of different lengths, as a causal mask has them, take the time of the longest one, or the
// mean work of a slot and a part of a block, by the tile scheduler.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dsl/flashcore.h"
#include "templates/attention_problem.h"
#include "templates/expression_traits.h"

namespace flashcore {

/// What of a GPU the time of a kernel depends on, beside the coefficients.
struct GpuFacts {
  std::string name;
  int multiprocessors = 0;
  std::int64_t l2_bytes = 0;
};

/// The coefficients of one family of schedules. Times are in microseconds.
struct FamilyCosts {
  double launch_us = 0;     ///< of a kernel
  double block_us = 0;      ///< of an output tile, beside its loop over keys
  double block_dim_us = 0;  ///< the same for each 128 of head_dim
  double iteration_us = 0;  ///< of a key tile, however wide
  /// By what share the iterations of a block take longer for each other block on its
  /// multiprocessor, and by what share the rest of the block does.
  double iteration_contention = 0, block_contention = 0;
  /// How long multiprocessors idle at the end where blocks differ in length, in blocks of mean
  /// length, by the order of the grid.
  double tiles_first_tail = 0, grouped_tail = 0, tiles_last_tail = 0;
  double dynamic_us = 0;    ///< of an output tile that the dynamic scheduler hands out
  double split_us = 0;      ///< of combining what the blocks of a cluster found, for each two
  double split_dim_us = 0;  ///< the same for each 128 of head_dim
  /// Of 128 key columns, at the head dims of `measured_dims`; between them it is interpolated.
  std::vector<double> columns_us;

  static constexpr int measured_dims[] = {32, 64, 96, 128, 192, 256};
  /// In the order of `names`, then columns_us.
  static FamilyCosts from(std::span<const double> numbers);
  static std::span<const std::string_view> names();
};

/// Which coefficients a schedule has: "full/128/ping_pong", or "masked/64/split".
std::string cost_family(const Schedule& schedule, bool masked);

/// A table of coefficients as text: a JSON array with an object for each GPU.
struct CostFile {
  std::string_view name, text;
};
/// cost_coefficients.json, built in.
std::span<const CostFile> shipped_costs();

class CostModel {
 public:
  /// The coefficients for a GPU: those under its name in `table` (the user's, or empty), those that
  /// ship under its name, or those of the first GPU of the target that ships, with the facts of the
  /// GPU itself. Without facts, the GPU that was measured. None where the target has none. Throws
  /// ScheduleError for a table that cannot be read.
  static std::optional<CostModel> find(std::string_view target, const GpuFacts& gpu = {},
                                       std::string_view table = {});

  /// Without coefficients of families, as a measurement that makes some needs it.
  CostModel(GpuFacts gpu, double bytes_per_us, double cluster_share)
      : gpu_(std::move(gpu)), bytes_per_us_(bytes_per_us), cluster_share_(cluster_share) {}

  [[nodiscard]] const GpuFacts& gpu() const { return gpu_; }
  /// The GPU that the coefficients were measured on.
  [[nodiscard]] const std::string& measured_on() const { return measured_on_; }
  [[nodiscard]] const FamilyCosts* family(const std::string& name) const;
  [[nodiscard]] double bytes_per_us() const { return bytes_per_us_; }
  /// Of the multiprocessors, those that clusters of four blocks can use.
  [[nodiscard]] double cluster_share() const { return cluster_share_; }
  /// Of a block that looks for the tiles that it has to visit.
  [[nodiscard]] double scan_us() const { return scan_us_; }
  /// An operation more for each score of 128 x 128.
  [[nodiscard]] double score_operation_us() const { return score_operation_us_; }

 private:
  CostModel() = default;

  GpuFacts gpu_;
  std::string measured_on_;
  double bytes_per_us_ = 0, cluster_share_ = 1, score_operation_us_ = 0, scan_us_ = 0;
  std::map<std::string, FamilyCosts> families_;
};

/// A schedule of a spec, ready to be asked how long it takes for one problem after the other.
class CostedSchedule {
 public:
  /// Of a schedule whose family has no coefficients, no problem has a time.
  CostedSchedule(const AttentionSpec& spec, const Schedule& schedule, const MaskTraits& mask,
                 const ScoreTraits& score, const CostModel& model, const FamilyCosts* costs);

  [[nodiscard]] int tile_rows() const { return rows_; }
  /// Microseconds; `visible` is that of blocks of tile_rows() rows. Infinite where the schedule
  /// cannot compute the problem, or nothing is known of it. A time of more than `enough` may be given
  /// as a smaller one that is not less than that.
  [[nodiscard]] double time_us(const AttentionProblem& problem, const VisibleKeys& visible,
                               double enough = std::numeric_limits<double>::infinity()) const;
  /// The same in words: how many blocks, waves, iterations.
  [[nodiscard]] std::string describe(const AttentionProblem& problem,
                                     const VisibleKeys& visible) const;

 private:
  struct Load;
  [[nodiscard]] Load load_of(const AttentionProblem& problem, const VisibleKeys& visible) const;
  [[nodiscard]] double block_us(double iterations, double residents) const;
  /// Of blocks that differ in their iterations.
  [[nodiscard]] double uneven_us(const Load& load) const;
  [[nodiscard]] double memory_us(const AttentionProblem& problem, const Load& load) const;
  /// How many heads the scheduler goes through side by side, from their longest blocks on.
  [[nodiscard]] double heads_side_by_side(const AttentionProblem& problem, double heads) const;

  int rows_ = 0, cols_ = 0, splits_ = 1, positions_ = 1;
  int residents_ = 1;  ///< blocks on a multiprocessor at once
  double slots_ = 0;   ///< blocks on the GPU at once
  double l2_bytes_ = 0, bytes_per_us_ = 0;
  double row_bytes_ = 0;  ///< of a query row with its output, and of a key with its value
  double heads_of_key_ = 1;
  GridOrder order_ = GridOrder::tiles_first;
  bool is_static_ = false;  ///< the scheduler
  /// How far apart in the keys the blocks of a group of heads may be, as schedule_tiles reckons it.
  double key_reach_ = 1;
  double launch_us_ = 0, scan_us_ = 0, block_us_ = 0, iteration_us_ = 0, tail_ = 0;
  double iteration_contention_ = 0, block_contention_ = 0;
  bool is_known_ = false;
};

}  // namespace flashcore
