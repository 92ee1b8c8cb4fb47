// Chooses among the schedules of a spec, problem by problem, in a microsecond.
//
// The rules learn of a problem by asking questions of it (problem_questions.h), so what they ask,
// and what follows from the answers, is a tree. It is written down as problems come: one whose
// answers are those of a problem before takes the list that the rules had for that one.
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
  /// `winners` is a table that was measured besides (attention_winners.h), which goes before what
  /// ships. Throws ScheduleError for one that cannot be read.
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
