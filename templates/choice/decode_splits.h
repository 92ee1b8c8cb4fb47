// How many blocks should share the keys of a sequence, and how long they then take: what a block
// costs, and what a split costs in combining, with coefficients that were measured.
#pragma once

#include <cstdint>
#include <string>

#include "templates/attention_decode.h"
#include "templates/attention_problem.h"
#include "templates/choice/cost_coefficients.h"
#include "templates/key_range.h"
#include "templates/whole_numbers.h"

namespace flashcore {

/// What decides how many splits are best. `Number` is a whole number or a scalar of a program.
template <WholeNumber Number>
struct DecodeSizes {
  Number batch{1};
  Number heads{1};      ///< that have blocks of their own: of keys, or of queries
  Number row_tiles{1};  ///< tiles of the rows of one of these heads
  Number keys{0};       ///< that some row of the longest sequence sees
  Number hidden{};      ///< of these, those that a typical row does not see
  Number rows{1};       ///< of all heads of queries
  Number multiprocessors{1};
};
using DecodeProblem = DecodeSizes<std::int64_t>;

/// What blocks of a split program cost, in picoseconds: whole numbers, for an expression.
struct SplitCosts {
  std::int64_t launch = 0;     ///< both programs, beside what follows
  std::int64_t residents = 1;  ///< blocks that a multiprocessor holds at once
  std::int64_t key = 1;        ///< a key of a block, while a multiprocessor runs `residents`
  std::int64_t lone_key = 1;   ///< a key of a block that runs alone where `residents` is 2
  std::int64_t read = 0;       ///< the bytes of a key from memory
  std::int64_t stall = 0;      ///< ten-thousandths more time if memory takes as long as computing
  std::int64_t readers = 1;    ///< blocks of one tile of rows that read the same keys
  std::int64_t block = 0;      ///< a block without keys
  std::int64_t split = 0;      ///< a split in combining
  std::int64_t partial = 0;    ///< what one block found, written and read again
  std::int64_t row = 0;        ///< combining a row for each multiprocessor
  /// Of balanced splits, as many blocks as the GPU holds at once, beside their keys.
  std::int64_t balanced_turn = 0;
  std::int64_t most_splits = 1 << 20;
};
inline double to_microseconds(std::int64_t picoseconds) {
  return static_cast<double>(picoseconds) / 1e6;
}

/// The blocks of the programs of a call.
struct DecodeBlocks {
  DecodeRows rows = DecodeRows::packed;
  int row_tile = 16;
  bool combines_tiles = false;
  bool balances = false, skips_long = false;  ///< DecodeSpec's
  bool operator==(const DecodeBlocks&) const = default;
};
/// What decides how many splits are best for a problem with these blocks. `range` is that of the spec.
DecodeProblem decode_problem(const AttentionSpec& spec, const DecodeBlocks& blocks,
                             const AttentionProblem& problem, const KeyRange& range,
                             std::int64_t multiprocessors);
/// Whether the splits of a problem's sequences are balanced, where a call has them at all: they may differ in
/// length, and are enough for that to weigh more than a plan costs. Those of
/// packed sequences are if the query rows of the longest sequence fit in a tile: the partial sums of each
/// split have room for as many rows.
bool balances_splits(const AttentionSpec& spec, const AttentionProblem& problem,
                     const CostModel& model = CostModel::first());
/// The name of their coefficients (DecodeCosts::families).
std::string decode_family(const DecodeBlocks& blocks);
SplitCosts split_costs(const AttentionSpec& spec, const DecodeBlocks& blocks,
                       const CostModel& model = CostModel::first());

/// What so many splits cost: the multiprocessor that ends last or the bytes from memory, which hold
/// each other up where both take long, and combining.
std::int64_t cost_of_splits(const DecodeProblem& problem, const SplitCosts& costs,
                            std::int64_t splits);
/// The number of splits that costs least if every row sees all keys, and what they cost.
template <WholeNumber Number>
struct CostedSplits {
  Number splits, cost;
};
CostedSplits<std::int64_t> decode_splits(const DecodeProblem& problem, const SplitCosts& costs);

/// The same as an expression of named extents and `multiprocessors`, for Module::number: what the
/// split program leaves open is called B, H, Sq and Sk, and max_pages with pages. `row_tile` is the
/// schedule's tile of rows.
std::string decode_splits_text(const DecodeSpec& spec, int row_tile,
                               const CostModel& model = CostModel::first());

}  // namespace flashcore
