// Which calls have their keys split, and what a block of theirs computes: what is predicted to take
// least, the kernel that leaves keys whole included.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "templates/choice/decode_splits.h"
#include "templates/choice/remembered_choices.h"
#include "templates/key_range.h"
#include "templates/schedule_chooser.h"

namespace flashcore {

struct DecodeCall {
  std::int64_t batch = 1, heads = 1, kv_heads = 1, q_len = 1, kv_len = 1;
};

/// What decides how many splits are best for a call with these blocks, of which some row sees so many
/// keys (KeyRange).
DecodeProblem decode_problem(const AttentionSpec& spec, std::int64_t keys, const DecodeCall& call,
                             const DecodeBlocks& blocks, std::int64_t multiprocessors);

/// For calls of one spec on one target, which can_decode. Thread-safe: a choice depends on the call
/// alone.
class DecodeChooser {
 public:
  /// `model` is that of the GPU, by default of the one that was measured first for the target.
  DecodeChooser(const AttentionSpec& spec, const Target& target,
                std::optional<CostModel> model = std::nullopt);

  /// Calls with fewer keys are never split.
  [[nodiscard]] std::int64_t least_keys() const {
    return static_cast<std::int64_t>(properties_.least_split_keys);
  }
  /// The blocks of a call; none where it is faster with its keys whole. Remembers what it chose.
  /// `whole` chooses for the launch that follows then, of the same spec on the same GPU: it knows what
  /// was predicted here. Without it a chooser of its own is asked.
  [[nodiscard]] std::optional<DecodeBlocks> choose(const DecodeCall& call,
                                                   std::int64_t multiprocessors,
                                                   const ScheduleChooser* whole = nullptr) const;
  /// The blocks that a call would have if its keys were split.
  [[nodiscard]] DecodeBlocks blocks(const DecodeCall& call, std::int64_t multiprocessors) const;
  /// All that calls of so many query rows can have.
  [[nodiscard]] std::vector<DecodeBlocks> reachable(std::int64_t least_rows,
                                                    std::int64_t most_rows) const;

  /// How long a call takes with its keys split, and with its keys whole, by the prediction of `whole`
  /// or of a chooser of its own.
  [[nodiscard]] double split_microseconds(const DecodeCall& call,
                                          std::int64_t multiprocessors) const {
    return best(call, multiprocessors).microseconds;
  }
  [[nodiscard]] double whole_microseconds(const DecodeCall& call, std::int64_t multiprocessors,
                                          const ScheduleChooser* whole = nullptr) const;
  /// Why, a line for each way to split; empty for a call whose keys are too few, or whose tiles are
  /// too many.
  [[nodiscard]] std::string explain(const DecodeCall& call, std::int64_t multiprocessors) const;

 private:
  /// Blocks that a call can have, and what they cost.
  struct Way {
    DecodeBlocks blocks;
    SplitCosts costs;
  };
  struct Estimate {
    std::size_t way = 0;  ///< its place among ways_
    std::int64_t splits = 1;
    double microseconds = 0;
  };
  /// For so many rows, in tiles that are packed and copied to shared memory; else by wgmma.
  [[nodiscard]] bool is_copied(std::int64_t q_len) const;
  [[nodiscard]] bool can_have(const Way& way, std::int64_t q_len) const;
  [[nodiscard]] Estimate estimate(const DecodeCall& call, std::int64_t keys, std::size_t way,
                                  std::int64_t multiprocessors) const;
  /// The fastest way. One that takes `enough` microseconds or more may be left out, and where all do,
  /// it takes infinitely many.
  [[nodiscard]] Estimate best(const DecodeCall& call, std::int64_t multiprocessors,
                              double enough = std::numeric_limits<double>::infinity()) const;
  /// Whether a split may pay at all.
  [[nodiscard]] bool is_considered(const DecodeCall& call, std::int64_t multiprocessors) const;
  /// The fastest way to split, where it is faster than keys left whole.
  [[nodiscard]] std::optional<std::size_t> way_that_pays(const DecodeCall& call,
                                                         std::int64_t multiprocessors,
                                                         const ScheduleChooser* whole) const;
  /// The choice among schedules that leave keys whole, made when it is first asked.
  [[nodiscard]] const ScheduleChooser& own_whole() const;

  AttentionSpec spec_;
  const Target& target_;
  std::optional<CostModel> model_;
  ChoiceProperties properties_;
  bool wgmma_;
  KeyRange range_;
  std::vector<Way> ways_;  ///< that any call can have
  mutable std::once_flag asked_;
  mutable std::unique_ptr<const ScheduleChooser> whole_;
  RememberedChoices remembered_;
};

}  // namespace flashcore
