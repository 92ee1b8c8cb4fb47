// Which calls have their keys split, and what a block of theirs computes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "templates/decode_splits.h"
#include "templates/key_range.h"

namespace flashcore {

/// Fewer keys are never split: one block reads them as fast.
constexpr std::int64_t least_keys_split = 512;

struct DecodeCall {
  std::int64_t batch = 1, heads = 1, kv_heads = 1, q_len = 1, kv_len = 1;
};

/// For calls of one spec on one target, which can_decode.
class DecodeChooser {
 public:
  DecodeChooser(const AttentionSpec& spec, const Target& target);

  /// The blocks that a call would have: those with which it takes least.
  [[nodiscard]] DecodeBlocks blocks(const DecodeCall& call, std::int64_t multiprocessors) const;
  /// All that calls of so many query rows can have.
  [[nodiscard]] std::vector<DecodeBlocks> reachable(std::int64_t least_rows,
                                                    std::int64_t most_rows) const;

  /// How long a call takes with its keys split, and as one block for each head and tile of rows.
  [[nodiscard]] double split_microseconds(const DecodeCall& call,
                                          std::int64_t multiprocessors) const;
  [[nodiscard]] double whole_microseconds(const DecodeCall& call,
                                          std::int64_t multiprocessors) const;
  /// Whether a call is faster with its keys split.
  [[nodiscard]] bool pays(const DecodeCall& call, std::int64_t multiprocessors) const;

 private:
  struct Estimate {
    DecodeBlocks blocks;
    double microseconds = 0;
  };
  /// For so many rows, in tiles that are packed and copied to shared memory; else by wgmma.
  [[nodiscard]] bool is_copied(std::int64_t q_len) const;
  /// The ways to have tiles of many rows.
  [[nodiscard]] std::span<const DecodeBlocks> ways() const;
  [[nodiscard]] Estimate best(const DecodeCall& call, std::int64_t multiprocessors) const;
  [[nodiscard]] DecodeProblem problem_of(const DecodeCall& call, const DecodeBlocks& blocks,
                                         std::int64_t multiprocessors) const;

  AttentionSpec spec_;
  bool wgmma_;
  int widest_;
  KeyRange range_;
};

}  // namespace flashcore
