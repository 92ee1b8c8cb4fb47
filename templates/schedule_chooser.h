// Chooses among the schedules of a spec, problem by problem, in a microsecond.
//
// The rules learn about a problem by asking questions (problem_questions.h), so their questions and
// the schedules that follow from the answers are a decision tree. The chooser builds the tree as
// problems come: a problem with the same answers as an earlier one gets the earlier one's list of
// schedules.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "templates/attention.h"
#include "templates/attention_winners.h"

namespace flashcore {

/// Thread-safe.
class ScheduleChooser {
 public:
  /// `winners` is a further table of winners (attention_winners.h), which takes precedence over the
  /// shipped one. Throws ScheduleError if it cannot be read.
  ScheduleChooser(AttentionSpec spec, const Target& target, std::string_view winners = {});
  ScheduleChooser(const ScheduleChooser&) = delete;
  ScheduleChooser& operator=(const ScheduleChooser&) = delete;
  ~ScheduleChooser();

  /// The number of the list that attention_schedules returns for the problem, with the winner of
  /// the table in front if it has one. Equal lists have one number.
  std::size_t choose(const AttentionProblem& problem);

  /// The list of that number.
  [[nodiscard]] std::vector<Schedule> schedules(std::size_t number) const;

  /// How often the rules had to be run.
  [[nodiscard]] std::size_t times_ruled() const;

 private:
  class Tree;

  std::size_t rule(const AttentionProblem& problem);

  const AttentionSpec spec_;
  const Target& target_;
  const WinnerFinder winners_;
  mutable std::mutex mutex_;
  std::unique_ptr<Tree> tree_;
  std::vector<std::vector<Schedule>> lists_;
  std::size_t times_ruled_ = 0;
};

}  // namespace flashcore
