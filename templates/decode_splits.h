// How many blocks should share the keys of a sequence, and how long they then take: what a block
// costs, and what a split costs in combining, with coefficients that were measured.
#pragma once

#include <cstdint>
#include <string>

#include "templates/attention_decode.h"

namespace flashcore {

/// What decides how many splits are best.
struct DecodeProblem {
  std::int64_t batch = 1;
  std::int64_t heads = 1;      ///< that have blocks of their own: of keys, or of queries
  std::int64_t row_tiles = 1;  ///< tiles of the rows of one of these heads
  std::int64_t keys = 0;       ///< that some row of the longest sequence sees
  std::int64_t multiprocessors = 1;
};

/// What blocks of a split program cost, in whole numbers of one unit of time.
struct SplitCosts {
  std::int64_t lone_key = 1;  ///< a key of a block that has a multiprocessor to itself
  std::int64_t key = 1;       ///< any other
  /// A key that no other block reads, where all multiprocessors read: the least that a key costs.
  std::int64_t read = 0;
  std::int64_t readers = 1;      ///< blocks of one tile of rows that read the same keys
  std::int64_t block = 0;        ///< a block without keys
  std::int64_t split = 0;        ///< a split in combining
  std::int64_t split_share = 0;  ///< the same for each block of the first program without splits
  std::int64_t most_splits = 1 << 20;
  int most_waves = 8;       ///< more are not tried
  double microseconds = 1;  ///< of one unit
};
/// The blocks of both programs of a call.
struct DecodeBlocks {
  DecodeRows rows = DecodeRows::packed;
  int row_tile = 16;
  bool combines_tiles = false;
  bool operator==(const DecodeBlocks&) const = default;
};
SplitCosts split_costs(const AttentionSpec& spec, const DecodeBlocks& blocks, int page_size = 0);

/// What so many splits cost: that of the multiprocessor that ends last, whose blocks share what it
/// computes and reads in a time, and that of combining.
std::int64_t cost_of_splits(const DecodeProblem& problem, const SplitCosts& costs,
                            std::int64_t splits);
/// The number of splits that costs least.
std::int64_t decode_splits(const DecodeProblem& problem, const SplitCosts& costs);

/// The same as an expression of named extents and `multiprocessors`, for Module::number: what the
/// split program leaves open is called B, H, Sq and Sk, and max_pages with pages. `row_tile` is the
/// schedule's tile of rows.
std::string decode_splits_text(const DecodeSpec& spec, int row_tile);

}  // namespace flashcore
