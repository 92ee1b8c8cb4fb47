// Chooses among the schedules of a spec, problem by problem, in a tenth of a microsecond.
//
// The rules learn about a problem by asking questions (problem_questions.h), so their questions and
// the schedules that follow from the answers are a decision tree. The chooser builds the tree as
// problems come, or for a range of problems ahead of them: a problem with the same answers as an
// earlier one gets the earlier one's list of schedules, without a lock.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/schedule_choice.h"
#include "templates/attention.h"
#include "templates/attention_winners.h"

namespace flashcore {

/// Thread-safe.
class ScheduleChooser final : public ScheduleChoice {
 public:
  /// `winners` is a further table of winners (attention_winners.h), which takes precedence over the
  /// shipped one. Throws ScheduleError if it cannot be read.
  ScheduleChooser(AttentionSpec spec, const Target& target, std::string_view winners = {});
  ~ScheduleChooser() override;

  /// Those of batch, heads and lengths that the spec leaves open, by the names that its tensors have
  /// them under (attention_tensors.h).
  [[nodiscard]] const std::vector<std::string>& extents() const override { return extents_; }
  std::size_t choose(std::span<const std::int64_t> lengths) override {
    return choose(problem_of(lengths));
  }
  [[nodiscard]] std::size_t find(std::span<const std::int64_t> lengths) const override;
  /// What a launch with these lengths computes: of packed sequences the mean lengths, as how long
  /// each is only the GPU knows.
  [[nodiscard]] AttentionProblem problem_of(std::span<const std::int64_t> lengths) const;

  /// The number of the list that attention_schedules returns for the problem, with the winner of
  /// the table in front if it has one. Equal lists have one number.
  std::size_t choose(const AttentionProblem& problem);

  /// The number of every list that a problem of the range may get; the first is that for a problem
  /// of unknown size. No problem of the range needs the rules afterwards.
  std::vector<std::size_t> choose_all(const AttentionProblems& problems);

  [[nodiscard]] std::vector<Schedule> schedules(std::size_t number) const override;
  [[nodiscard]] std::string describe(std::span<const std::int64_t> lengths) const override;
  [[nodiscard]] std::string preparation(std::span<const std::int64_t> lengths) const override;

  /// How often the rules had to be run.
  [[nodiscard]] std::size_t times_ruled() const;

 private:
  class Tree;

  std::size_t rule(ProblemQuestions& problem, ProblemQuestions& fixed);

  const AttentionSpec spec_;
  const Target& target_;
  const WinnerFinder winners_;
  std::vector<std::string> extents_;
  /// Where batch, heads, q_len and kv_len stand among the extents; -1: the spec fixes it.
  std::array<int, 4> places_{};
  mutable std::mutex mutex_;
  std::unique_ptr<Tree> tree_;
  std::vector<std::vector<Schedule>> lists_;
  std::size_t times_ruled_ = 0;
};

}  // namespace flashcore
