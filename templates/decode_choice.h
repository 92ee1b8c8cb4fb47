// Which calls have their keys split, and what a block of theirs computes: what is predicted to take
// least, the kernel that leaves keys whole included.
#pragma once

#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "templates/choice/decode_splits.h"
#include "templates/choice/remembered_choices.h"
#include "templates/key_range.h"
#include "templates/schedule_chooser.h"

namespace flashcore {

/// For calls of one spec on one target, which can_decode. Thread-safe: a choice depends on the problem
/// and the number of multiprocessors alone.
class DecodeChooser {
 public:
  /// `model` is that of the GPU, by default of the one that was measured first for the target.
  DecodeChooser(AttentionSpec spec, const Target& target,
                std::optional<CostModel> model = std::nullopt);

  /// Calls with fewer keys are never split.
  [[nodiscard]] std::int64_t least_keys() const {
    return static_cast<std::int64_t>(model().properties.least_split_keys);
  }
  /// The blocks of a call; none where it is faster with its keys whole. Remembers what it chose.
  /// `whole` chooses for the launch that follows then, of the same spec on the same GPU: it knows what
  /// was predicted here. Without it a chooser of its own is asked.
  [[nodiscard]] std::optional<DecodeBlocks> choose(const AttentionProblem& problem,
                                                   std::int64_t multiprocessors,
                                                   const ScheduleChooser* whole = nullptr) const;

  static constexpr double infinite = std::numeric_limits<double>::infinity();
  /// A way to split the keys of a problem, into as many splits as are the fastest with these blocks.
  struct Split {
    DecodeBlocks blocks;
    std::int64_t splits = 1;
    double us = infinite;  ///< as predicted
  };
  /// The fastest way. One that takes `enough` microseconds or more may be left out, and where all do,
  /// it takes infinitely many.
  [[nodiscard]] Split fastest(const AttentionProblem& problem, std::int64_t multiprocessors,
                              double enough = infinite) const;
  /// The blocks that calls of so many sequences and query rows can have.
  [[nodiscard]] std::vector<DecodeBlocks> reachable(const LengthRange& batch,
                                                    const LengthRange& q_len) const;

  /// How long a call takes with its keys whole, by the prediction of `whole` or of a chooser of its
  /// own.
  [[nodiscard]] double whole_us(const AttentionProblem& problem, std::int64_t multiprocessors,
                                const ScheduleChooser* whole = nullptr) const;
  /// Why, a line for each way to split; empty for a call whose keys are too few, or whose tiles are
  /// too many.
  [[nodiscard]] std::string explain(const AttentionProblem& problem,
                                    std::int64_t multiprocessors) const;

 private:
  /// Blocks that a call can have, and what they cost.
  struct Way {
    DecodeBlocks blocks;
    SplitCosts costs;
  };

  [[nodiscard]] const CostModel& model() const { return model_ ? *model_ : CostModel::first(); }
  /// `whole`, or a chooser of its own.
  [[nodiscard]] const ScheduleChooser& chooser_of_whole(const ScheduleChooser* whole) const;
  [[nodiscard]] bool can_have(const DecodeBlocks& blocks, const AttentionProblem& problem) const;
  /// Packed sequences, of which some have many query rows and the others one.
  struct Mixed {
    AttentionProblem long_ones, of_one_row;
  };
  /// The problem as such sequences, if it may be one of them: with as many sequences of one row as the number of
  /// rows and the longest sequence allow. How many there are is known on the GPU alone.
  [[nodiscard]] std::optional<Mixed> as_mixed(const AttentionProblem& problem) const;
  struct MixedCost {
    double apart_us, together_us;
  };
  /// How long the two parts take in kernels of their own, where the sequences of one row have their keys split, and
  /// how long in one kernel that leaves keys whole.
  [[nodiscard]] MixedCost predict_mixed(const Mixed& mixed, std::int64_t multiprocessors,
                                        const ScheduleChooser* whole) const;
  /// Whether a split may pay at all.
  [[nodiscard]] bool is_considered(const AttentionProblem& problem,
                                   std::int64_t multiprocessors) const;
  /// Calls `visit` with every way that takes less than `enough`, and perhaps with others.
  template <class Visit>
  void for_each_split(const AttentionProblem& problem, std::int64_t multiprocessors, double enough,
                      const Visit& visit) const;

  const AttentionSpec spec_;
  const Target& target_;
  const std::optional<CostModel> model_;
  const KeyRange range_;
  std::vector<Way> ways_;  ///< that any call can have
  /// The choice among schedules that leave keys whole, made when it is first asked.
  mutable std::once_flag asked_;
  mutable std::optional<const ScheduleChooser> own_whole_;
  RememberedChoices remembered_;
};

/// The programs of calls whose keys are split in such blocks, and their schedules. By `model`
/// they compute the number of splits.
Alternative attention_with_split_keys(const AttentionSpec& spec, const Target& target,
                                      const DecodeBlocks& blocks,
                                      const CostModel& model = CostModel::first());

}  // namespace flashcore
