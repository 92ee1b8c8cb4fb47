#include "templates/schedule_chooser.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "templates/chosen_schedules.h"
#include "templates/problem_questions.h"

namespace flashcore {
namespace {

struct Question {
  enum class Kind : std::uint8_t {
    knows_rows,
    keys_up_to,
    keys_from,
    rows_up_to,
    heads_are_even,
    blocks_below,
    most_rows_up_to,
  };
  Kind kind = Kind::knows_rows;
  bool of_winners = false;  ///< asked of the problem as the spec fixes it
  std::int64_t length = 0;
  double count = 0;
  std::array<int, 5> numbers{};
};

bool ask(ProblemQuestions& problem, const Question& question) {
  const auto& n = question.numbers;
  switch (question.kind) {
    case Question::Kind::knows_rows:
      return problem.knows_rows();
    case Question::Kind::keys_up_to:
      return problem.keys_up_to(question.length);
    case Question::Kind::keys_from:
      return problem.keys_from(question.length);
    case Question::Kind::rows_up_to:
      return problem.rows_up_to(question.length);
    case Question::Kind::heads_are_even:
      return problem.heads_are_even();
    case Question::Kind::blocks_below:
      return problem.blocks_below(n[0], question.count);
    case Question::Kind::most_rows_up_to:
      return problem.most_rows_up_to(n[0], n[1], n[2], n[3], n[4]);
  }
  return false;
}

struct Answered {
  Question question;
  bool answer = false;
};

/// Answers for one problem, and writes down what it is asked.
class Interview : public ProblemQuestions {
 public:
  Interview(KnownProblem& problem, bool of_winners, std::vector<Answered>& answered)
      : problem_(problem), of_winners_(of_winners), answered_(answered) {}

  bool knows_rows() override { return note({.kind = Question::Kind::knows_rows}); }
  bool keys_up_to(std::int64_t length) override {
    return note({.kind = Question::Kind::keys_up_to, .length = length});
  }
  bool keys_from(std::int64_t length) override {
    return note({.kind = Question::Kind::keys_from, .length = length});
  }
  bool rows_up_to(std::int64_t length) override {
    return note({.kind = Question::Kind::rows_up_to, .length = length});
  }
  bool heads_are_even() override { return note({.kind = Question::Kind::heads_are_even}); }
  bool blocks_below(int rows, double count) override {
    return note({.kind = Question::Kind::blocks_below, .count = count, .numbers = {rows}});
  }
  bool most_rows_up_to(int a, int a_rows, int b, int b_rows, int multiprocessors) override {
    return note({.kind = Question::Kind::most_rows_up_to,
                 .numbers = {a, a_rows, b, b_rows, multiprocessors}});
  }

 private:
  bool note(Question question) {
    question.of_winners = of_winners_;
    answered_.push_back({question, ask(problem_, question)});
    return answered_.back().answer;
  }

  KnownProblem& problem_;
  const bool of_winners_;
  std::vector<Answered>& answered_;
};

}  // namespace

class ScheduleChooser::Tree {
 public:
  /// The number that was added for these answers, if any was.
  std::optional<std::size_t> find(KnownProblem& problem, KnownProblem& fixed) const {
    const Branch* at = &root_;
    while (at->node >= 0) {
      const Node& node = nodes_[static_cast<std::size_t>(at->node)];
      const bool answer = ask(node.question.of_winners ? fixed : problem, node.question);
      at = &node.branches[answer ? 1 : 0];
    }
    return at->number;
  }

  void add(const std::vector<Answered>& answered, std::size_t number) {
    Branch* at = &root_;
    for (const Answered& step : answered) {
      if (at->node < 0) {
        at->node = static_cast<int>(nodes_.size());
        const int made = at->node;
        nodes_.push_back({.question = step.question, .branches = {}});
        at = &nodes_[static_cast<std::size_t>(made)].branches[step.answer ? 1 : 0];
      } else {
        at = &nodes_[static_cast<std::size_t>(at->node)].branches[step.answer ? 1 : 0];
      }
    }
    at->number = number;
  }

 private:
  struct Branch {
    int node = -1;  ///< what is asked next
    std::optional<std::size_t> number;
  };
  struct Node {
    Question question;
    std::array<Branch, 2> branches;
  };

  Branch root_;
  std::vector<Node> nodes_;
};

ScheduleChooser::ScheduleChooser(AttentionSpec spec, const Target& target, std::string_view winners)
    : spec_(std::move(spec)),
      target_(target),
      winners_(winners.empty() ? WinnerFinder() : winners_of(winners, spec_, target)),
      tree_(std::make_unique<Tree>()) {}

ScheduleChooser::~ScheduleChooser() = default;

std::size_t ScheduleChooser::choose(const AttentionProblem& problem) {
  KnownProblem known(problem), fixed(as_fixed_by(spec_, problem));
  const std::lock_guard lock(mutex_);
  const std::optional<std::size_t> found = tree_->find(known, fixed);
  return found ? *found : rule(problem);
}

// Under the lock.
std::size_t ScheduleChooser::rule(const AttentionProblem& problem) {
  KnownProblem known(problem), fixed(as_fixed_by(spec_, problem));
  std::vector<Answered> answered;
  Interview of_rules(known, /*of_winners=*/false, answered);
  Interview of_winners(fixed, /*of_winners=*/true, answered);
  std::vector<Schedule> list = chosen_schedules(spec_, target_, of_rules, of_winners);
  if (winners_) {
    if (std::optional<Schedule> winner = winners_(of_winners))
      list.insert(list.begin(), std::move(*winner));
  }
  ++times_ruled_;
  const auto known_list = std::find(lists_.begin(), lists_.end(), list);
  const auto number = static_cast<std::size_t>(known_list - lists_.begin());
  if (known_list == lists_.end()) lists_.push_back(std::move(list));
  tree_->add(answered, number);
  return number;
}

std::vector<Schedule> ScheduleChooser::schedules(std::size_t number) const {
  const std::lock_guard lock(mutex_);
  return lists_.at(number);
}

std::size_t ScheduleChooser::times_ruled() const {
  const std::lock_guard lock(mutex_);
  return times_ruled_;
}

}  // namespace flashcore
