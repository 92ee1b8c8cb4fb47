// The coefficients of the cost model of attention (cost_model.h), of schedules with keys left whole
// and of decoding. They were measured, for each GPU and each family of kernels;
// cost_coefficients.json holds them. They are data, so that a GPU that nobody has measured yet needs
// no code, but `flashcore calibrate`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace flashcore {

/// What of a GPU the time of a kernel depends on, beside the coefficients.
struct GpuFacts {
  std::string name;
  int multiprocessors = 0;
  std::int64_t l2_bytes = 0;
};

/// The coefficients of a GPU that all kernels share.
struct GpuCosts {
  double bytes_per_us = 0;        ///< of the memory
  double cluster_share = 1;       ///< of the multiprocessors, those that clusters of four can use
  double scan_us = 0;             ///< of a block that looks for the tiles that it has to visit
  double score_operation_us = 0;  ///< an operation more for each score of 128 x 128
};

/// What is set for a GPU and not fitted to times of it: how far predictions are trusted, where choices
/// need none, costs of what `flashcore calibrate` does not run, and what does for all families.
struct ChoiceProperties {
  /// Schedules whose predictions differ by a smaller share are taken for equal: predictions are not
  /// that exact.
  double tie_share = 0;
  /// By what share splitting the keys of a call has to be predicted faster: predictions are off by
  /// some percent, and what is gained by less is not worth a second program.
  double split_gain = 0;
  /// Fewer keys are never split: one block reads them as fast.
  double least_split_keys = 0;
  /// With as many waves of whole tiles of 128 rows keys are not split: little is idle.
  double split_waves = 0;
  /// Blocks that compute two heads have at least so many waves: with fewer they end a tenth later than
  /// those of one.
  double two_heads_waves = 0;
  /// By what share more a block alone on its multiprocessor takes for keys that it looks up in pages.
  /// Calls with pages are not among those that are measured.
  double paged_share = 0;
  /// What a warpgroup takes more for 128 key columns where each score looks up an element of its own: it
  /// waits for memory, whatever others on its multiprocessor do.
  double own_element_us = 0;
  /// Of L2, what holds keys until the next tile of their heads, where heads go side by side.
  double l2_share = 0;
  /// By what share of the time that memory takes to read keys again a kernel takes longer, even where its
  /// products hide those reads: they cost power, and a GPU at its power limit then lowers its clock.
  double reread_share = 0;
  /// Of a kernel that goes through several heads side by side: all its first blocks load other keys.
  double grouped_us = 0;
  double staged_us = 0;  ///< of one of 64 rows that goes through shared memory to its store
  /// How far apart blocks end that began together, in blocks of mean length: so long multiprocessors
  /// idle at the end where blocks differ in length, and so much earlier than its last block the first
  /// of a wave begins.
  double tail = 0;
  /// By what share a kernel of several waves takes longer under the static scheduler: multiprocessors do
  /// not compute alike, which tiles that are drawn even out.
  double static_share = 0;
  /// Of an output tile of a persistent block whose sequences differ in length: the producer loads where
  /// they lie. Of one of packed sequences whose block has a producer, as long again: it looks for the
  /// tile's sequence before its first load.
  double segment_us = 0;
  /// Of balanced splits, what as many blocks as the GPU holds at once take beside their keys.
  double balanced_turn_us = 0;
  /// Splits are balanced over as many sequences and more: over fewer, a plan costs more than it saves.
  double least_balanced_batch = 0;
  /// By what share balanced splits may be predicted to take longer than whole keys: whole ones take as long
  /// as the longest sequence, and predictions take all for as long as that.
  double balanced_allowance = 0;
};

/// The head dims for which blocks and columns of keys have coefficients of their own.
inline constexpr int measured_dims[] = {32, 64, 96, 128, 192, 256};
/// Of such coefficients, that for a head dim: between two measured ones interpolated; beyond the last as
/// much more as columns.
double at_dim(std::span<const double> of_measured_dims, double head_dim);

/// The coefficients of one family of schedules. Times are in microseconds.
struct FamilyCosts {
  double launch_us = 0;   ///< of a kernel
  double spread_us = 0;   ///< more, until all blocks that the GPU holds at once have begun
  double fill_share = 0;  ///< of the time that memory takes for what the first blocks wait for
  /// By what share a kernel takes longer where its bytes from memory take as long as its blocks would
  /// without: loads and products wait for each other.
  double stall_share = 0;
  double iteration_us = 0;  ///< of a key tile, however wide
  /// Of what key columns take, the share that keeps a multiprocessor busy, and others waiting.
  double contention = 0;
  double mask_us = 0;       ///< of an output tile more under a mask, beside its key tiles
  double split_us = 0;      ///< of combining what the blocks of a cluster found, for each two
  double split_dim_us = 0;  ///< of a cluster of two, for each 128 of head_dim
  // At each of measured_dims:
  std::vector<double> block_us;    ///< of an output tile, beside its loop over keys
  std::vector<double> columns_us;  ///< of 128 key columns
  /// Of block_us, what an output tile without query rows would save.
  std::vector<double> row_share;
};

/// The coefficients of the blocks of decoding that compute tiles of so many rows in one way
/// (decode_splits.h). Times are in microseconds.
struct DecodeCosts {
  double launch_us = 0;  ///< of both programs
  double block_us = 0;   ///< of a block, beside its keys
  /// By what share keys take longer in a block that has its multiprocessor to itself, where that would
  /// hold two, than in each of two one after the other.
  double lone_share = 0;
  double read_factor = 0;  ///< times what bytes_per_us says, the time that memory takes for keys
  /// By what share a call takes longer where memory takes as long as the blocks would without.
  double stall_share = 0;
  double split_us = 0;    ///< of combining one split more
  double partial_us = 0;  ///< of what a split found for 128 rows of 128 columns
  /// Of combining a query row on each multiprocessor, in a block of its own or in a tile of rows.
  double row_us = 0, tiled_row_us = 0;
  /// Of 128 keys where a multiprocessor holds as many blocks as it can, at each of measured_dims.
  std::vector<double> columns_us;
};

/// Such coefficients as a table has them, a JSON object: FamilyCosts or DecodeCosts. Throws ScheduleError.
template <class Costs>
Costs costs_from_json(std::string_view text);

/// The table that ships, cost_coefficients.json: a JSON array with an object for each GPU.
std::string_view shipped_costs();

struct CostModel {
  GpuFacts gpu;
  std::string measured_on;  ///< the GPU that the coefficients were measured on
  GpuCosts costs;
  ChoiceProperties properties;
  std::map<std::string, FamilyCosts> families;
  std::map<std::string, DecodeCosts> decoding;  ///< by the name of blocks, such as "of_head/128"

  /// The coefficients for a GPU: those under its name in `table` (the user's, or empty), those that
  /// ship under its name, or those of the first GPU of the target that ships, with the facts of the
  /// GPU itself. Without facts, the GPU that was measured. An entry without `properties`, as a
  /// measurement writes it, has those of that first GPU. None where the target has none. Throws
  /// ScheduleError for a table that cannot be read.
  static std::optional<CostModel> find(std::string_view target, const GpuFacts& gpu = {},
                                       std::string_view table = {});

  /// Of the GPU that was measured first, for decoding on a target without coefficients of its own.
  static const CostModel& first();
};

}  // namespace flashcore
