// How long attention kernels take, predicted: waves of blocks on the multiprocessors of a GPU, the
// iterations of each block, and the bytes from memory, with coefficients that were measured
// (cost_coefficients.h).
//
// For a kernel of `blocks` blocks of which a GPU holds `slots` at once:
//
//     alone     = iteration_us + columns_us(head_dim) * columns
//     busy      = contention * columns_us(head_dim) * columns
//     iteration = (alone ^ 3 + (blocks on the multiprocessor ^ 3 - 1) * busy ^ 3) ^ (1/3)
//     block     = block_us(head_dim) + iterations * iteration
//     time      = launch_us + spread_us * blocks at once / multiprocessors
//                 + the first bytes over bytes_per_us
//                 + reread_share of the bytes that are read again over bytes_per_us
//                 + full waves of blocks, or their bytes over bytes_per_us, the longer of the two, and
//                   stall_share of it where both take as long
//                 + the same of the last wave
//
// A block alone waits, many keep their multiprocessor busy, and the cubes pass from the one to the other.
// A multiprocessor may have fewer blocks in the last wave, whose first begins half a `tail` of a block
// before the mean of them, and whose last one half a tail after it. Blocks of different lengths, as a
// causal mask has them, take the time of the longest one, or the mean work of a slot and a tail, or that
// of the slot to which the static scheduler gives most.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "dsl/flashcore.h"
#include "templates/attention_problem.h"
#include "templates/choice/cost_coefficients.h"
#include "templates/choice/expression_traits.h"

namespace flashcore {

/// Which coefficients a schedule has: "128/ping_pong", or "64/split".
std::string cost_family(const Schedule& schedule);

/// A schedule of a spec, ready to be asked how long it takes for one problem after the other.
class CostedSchedule {
 public:
  /// Of a schedule whose family has no coefficients, no problem has a time.
  CostedSchedule(const SpecTraits& traits, const Schedule& schedule, const CostModel& model);

  /// For how many query rows keys are loaded together: those of a block, or of a cluster that shares loads.
  [[nodiscard]] RowTiles row_tiles() const { return {rows_ * multicast_, end_aligned_}; }
  /// Microseconds; `visible` is that of row_tiles(). Infinite where the schedule
  /// cannot compute the problem, or nothing is known of it. Where the time exceeds `enough`, any number
  /// between the two may be returned: the caller knows of a faster schedule, and needs no more.
  [[nodiscard]] double time_us(const AttentionProblem& problem, const VisibleKeys& visible,
                               double enough = std::numeric_limits<double>::infinity()) const;
  /// No more than that, from the longest block and the mean work of a multiprocessor alone: takes a
  /// fraction of the time.
  [[nodiscard]] double least_us(const AttentionProblem& problem, const VisibleKeys& visible) const;
  /// The same in words: how many blocks, waves, iterations.
  [[nodiscard]] std::string describe(const AttentionProblem& problem,
                                     const VisibleKeys& visible) const;

 private:
  struct Load;
  struct Parts;
  /// Without its iterations.
  [[nodiscard]] double tiles_of(const AttentionProblem& problem) const;
  [[nodiscard]] Load load_of(const AttentionProblem& problem, const VisibleKeys& visible) const;
  void count_iterations(Load& load, const VisibleKeys& visible) const;
  /// Of a block that visits so many keys.
  [[nodiscard]] double iterations_of(double keys) const;
  /// Of an iteration of each of so many blocks on a multiprocessor, a multiple of a half.
  [[nodiscard]] double contended_us(double residents) const {
    return contended_us_[static_cast<std::size_t>(2 * residents)];
  }
  [[nodiscard]] double block_us(const Load& load, double iterations, double residents) const;
  [[nodiscard]] Parts parts_of(Load& load, const VisibleKeys& visible) const;
  /// Of blocks that take so long by themselves, and their bytes.
  [[nodiscard]] double stalled_us(double blocks_us, double memory_us, double busy) const;
  /// Of blocks that differ in their iterations: more than run at once.
  [[nodiscard]] double uneven_us(const Load& load) const;
  [[nodiscard]] double static_us(const Load& load) const;
  [[nodiscard]] double count_rereads(const AttentionProblem& problem, const Load& load,
                                     double visible_share) const;
  /// Sets how many heads the scheduler goes through side by side, from their longest blocks on, and how
  /// many of them are left for the end.
  void group_heads(const AttentionProblem& problem, Load& load) const;

  int rows_ = 1, cols_ = 1, splits_ = 1, multicast_ = 1, positions_ = 1;
  /// One through the number of rows, columns and splits of a tile: what is asked thousands of times
  /// multiplies by them.
  double share_of_row_ = 1.0 / rows_, share_of_column_ = 1.0 / cols_,
         share_of_split_ = 1.0 / splits_;
  double blocks_per_tile_ = static_cast<double>(splits_) / positions_;
  int residents_ = 1;        ///< blocks on a multiprocessor at once
  double slots_ = 0;         ///< blocks on the GPU at once
  double least_blocks_ = 0;  ///< of a kernel whose blocks compute two heads
  double share_of_slot_ = 0, share_of_multiprocessor_ = 0, tiles_at_once_ = 0;
  double row_bytes_ = 0;          ///< of a query row with its output, and of a key with its value
  double keys_in_l2_ = 0;         ///< that a group of heads side by side may have
  double us_per_byte_ = 0;        ///< of the memory
  double share_of_key_head_ = 1;  ///< one through the query heads that have their keys in common
  GridOrder order_ = GridOrder::tiles_first;
  bool takes_sequences_in_turn_ = false;
  bool is_static_ = false;    ///< the scheduler
  bool end_aligned_ = false;  ///< tiles of query rows
  double launch_us_ = 0, spread_us_ = 0, scan_us_ = 0, block_us_ = 0, tail_ = 0, static_factor_ = 1;
  double iteration_us_ = 0;  ///< of a block alone on its multiprocessor
  /// The time of an iteration of each block where a multiprocessor has several, by their number in steps
  /// of half a block. A table, since its cubic root was an eighth of the time that a choice takes.
  std::vector<double> contended_us_;
  double rows_us_ = 0;  ///< of a block whose rows are all there, beside block_us_
  /// Of the time that all slots take together, what a tile of rows takes without a key, and for a key.
  double tile_slot_us_ = 0, tile_slot_key_us_ = 0;
  double fill_share_ = 0, share_of_held_byte_ = 0, stall_share_ = 0, reread_share_ = 0;
  bool is_known_ = false;
};

}  // namespace flashcore
