#include "templates/schedule_chooser.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <optional>
#include <utility>

#include <fmt/format.h>

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

/// Answers for a problem, and writes down what it is asked.
class Interview : public ProblemQuestions {
 public:
  Interview(ProblemQuestions& problem, bool of_winners, std::vector<Answered>& answered)
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

  ProblemQuestions& problem_;
  const bool of_winners_;
  std::vector<Answered>& answered_;
};

}  // namespace

/// Readers take no lock: a node is whole before it hangs in the tree, and stays.
class ScheduleChooser::Tree {
 public:
  /// The number that was added for these answers, if any was.
  std::size_t find(KnownProblem& problem, KnownProblem& fixed) const {
    const Branch* at = &root_;
    while (const Node* node = at->node.load(std::memory_order_acquire)) {
      const bool answer = ask(node->question.of_winners ? fixed : problem, node->question);
      at = &node->branches[answer ? 1 : 0];
    }
    return at->number.load(std::memory_order_acquire);
  }

  void add(const std::vector<Answered>& answered, std::size_t number) {
    Branch* at = &root_;
    for (const Answered& step : answered) {
      Node* node = at->node.load(std::memory_order_relaxed);
      if (node == nullptr) {
        node = &nodes_.emplace_back();
        node->question = step.question;
        at->node.store(node, std::memory_order_release);
      }
      at = &node->branches[step.answer ? 1 : 0];
    }
    at->number.store(number, std::memory_order_release);
  }

 private:
  struct Node;
  struct Branch {
    std::atomic<Node*> node = nullptr;  ///< what is asked next
    std::atomic<std::size_t> number = unknown;
  };
  struct Node {
    Question question;
    std::array<Branch, 2> branches;
  };

  Branch root_;
  std::deque<Node> nodes_;
};

ScheduleChooser::ScheduleChooser(AttentionSpec spec, const Target& target, std::string_view winners)
    : spec_(std::move(spec)),
      target_(target),
      winners_(winners.empty() ? WinnerFinder() : winners_of(winners, spec_, target)),
      tree_(std::make_unique<Tree>()) {
  const AttentionProblem fixed = as_fixed_by(spec_, AttentionProblem{});
  const std::array<std::int64_t, 4> numbers{fixed.batch, fixed.heads, fixed.q_len, fixed.kv_len};
  const std::array<const char*, 4> names{"B", "H", spec_.packed() ? "Tq" : "Sq",
                                         spec_.packed() ? "Tk" : "Sk"};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    places_[i] = numbers[i] > 0 ? -1 : static_cast<int>(extents_.size());
    if (numbers[i] <= 0) extents_.emplace_back(names[i]);
  }
}

ScheduleChooser::~ScheduleChooser() = default;

AttentionProblem ScheduleChooser::problem_of(std::span<const std::int64_t> lengths) const {
  const AttentionProblem fixed = as_fixed_by(spec_, AttentionProblem{});
  const auto either = [&](std::size_t which, std::int64_t number) {
    return places_[which] < 0 ? number : lengths[static_cast<std::size_t>(places_[which])];
  };
  AttentionProblem problem{either(0, fixed.batch), either(1, fixed.heads), either(2, fixed.q_len),
                           either(3, fixed.kv_len)};
  if (spec_.packed()) {
    const std::int64_t sequences = std::max<std::int64_t>(problem.batch, 1);
    problem.q_len = (problem.q_len + sequences - 1) / sequences;
    problem.kv_len = (problem.kv_len + sequences - 1) / sequences;
  }
  return problem;
}

std::string ScheduleChooser::describe(std::span<const std::int64_t> lengths) const {
  const AttentionProblem problem = problem_of(lengths);
  return fmt::format("{} query rows and {} keys", problem.q_len, problem.kv_len);
}

std::string ScheduleChooser::preparation(std::span<const std::int64_t> lengths) const {
  const AttentionProblem problem = problem_of(lengths);
  return fmt::format("kernel.prepare(lengths={}, q_lengths={})", problem.kv_len, problem.q_len);
}

std::size_t ScheduleChooser::find(std::span<const std::int64_t> lengths) const {
  const AttentionProblem problem = problem_of(lengths);
  KnownProblem known(problem), fixed(as_fixed_by(spec_, problem));
  return tree_->find(known, fixed);
}

std::size_t ScheduleChooser::choose(const AttentionProblem& problem) {
  KnownProblem known(problem), fixed(as_fixed_by(spec_, problem));
  const std::size_t found = tree_->find(known, fixed);
  if (found != unknown) return found;
  const std::lock_guard lock(mutex_);
  return rule(known, fixed);
}

std::vector<std::size_t> ScheduleChooser::choose_all(const AttentionProblems& problems) {
  std::vector<std::size_t> numbers{choose(AttentionProblem{})};
  ProblemExploration open(as_fixed_by(spec_, problems));
  const std::lock_guard lock(mutex_);
  do {
    const std::size_t number = rule(open, open);
    if (std::ranges::find(numbers, number) == numbers.end()) numbers.push_back(number);
  } while (open.next());
  return numbers;
}

// Under the lock.
std::size_t ScheduleChooser::rule(ProblemQuestions& problem, ProblemQuestions& fixed) {
  std::vector<Answered> answered;
  Interview of_rules(problem, /*of_winners=*/false, answered);
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
