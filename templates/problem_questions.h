// The questions about a problem that the rules for choosing schedules may ask. The rules learn
// about a problem in no other way, so that the same rules can be run for one problem and for all
// problems of a range: if some problems of a range would answer yes and some no, the rules are run
// for both answers.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "templates/attention.h"

namespace flashcore {

/// Lengths, batch and heads that a spec fixes are the same in every call.
AttentionProblem as_fixed_by(const AttentionSpec& spec, const AttentionProblem& problem);
AttentionProblems as_fixed_by(const AttentionSpec& spec, const AttentionProblems& problems);

class ProblemQuestions {
 public:
  ProblemQuestions() = default;
  ProblemQuestions(const ProblemQuestions&) = delete;
  ProblemQuestions& operator=(const ProblemQuestions&) = delete;
  virtual ~ProblemQuestions() = default;

  /// Whether the number of query rows is known, and with it how many blocks there are.
  virtual bool knows_rows() = 0;
  /// No, of a number that is not known.
  virtual bool keys_up_to(std::int64_t length) = 0;
  virtual bool keys_from(std::int64_t length) = 0;
  virtual bool rows_up_to(std::int64_t length) = 0;
  virtual bool heads_are_even() = 0;
  /// Fewer blocks of so many query rows than `count`; there are none where rows are not known.
  virtual bool blocks_below(int rows, double count) = 0;
  /// a * x <= b * y, where x and y are the most rows that one of `multiprocessors` gets, in blocks
  /// of `a_rows` and of `b_rows`.
  virtual bool most_rows_up_to(int a, int a_rows, int b, int b_rows, int multiprocessors) = 0;
};

class KnownProblem : public ProblemQuestions {
 public:
  explicit KnownProblem(const AttentionProblem& problem) : problem_(problem) {}

  bool knows_rows() override { return problem_.q_len > 0; }
  bool keys_up_to(std::int64_t length) override;
  bool keys_from(std::int64_t length) override { return problem_.kv_len >= length; }
  bool rows_up_to(std::int64_t length) override;
  bool heads_are_even() override { return problem_.heads % 2 == 0; }
  bool blocks_below(int rows, double count) override;
  bool most_rows_up_to(int a, int a_rows, int b, int b_rows, int multiprocessors) override;

 private:
  AttentionProblem problem_;
};

/// Answers for all problems of a range, one combination of answers to open questions at a time:
///
///     ProblemExploration problems(range);
///     do {
///       rules(problems);
///     } while (problems.next());
///
/// The answers of every problem are those of one combination. Some combinations are those of no
/// problem: each answer is checked against the earlier ones, but not every contradiction is found.
class ProblemExploration : public ProblemQuestions {
 public:
  explicit ProblemExploration(const AttentionProblems& range);

  /// Goes on to the next combination; false if there is none.
  bool next();

  bool knows_rows() override { return true; }
  bool keys_up_to(std::int64_t length) override { return up_to(keys_, length); }
  bool keys_from(std::int64_t length) override { return !up_to(keys_, length - 1); }
  bool rows_up_to(std::int64_t length) override { return up_to(rows_, length); }
  bool heads_are_even() override;
  bool blocks_below(int rows, double count) override;
  bool most_rows_up_to(int a, int a_rows, int b, int b_rows, int multiprocessors) override;

 private:
  struct Blocks {
    double least, most;
  };

  void start();
  /// The answer of this way to a question that is open.
  bool decide();
  bool up_to(LengthRange& length, std::int64_t bound);
  Blocks& blocks(int rows);

  AttentionProblems range_;
  std::vector<bool> way_;  ///< the answers to open questions, in their order
  std::size_t answered_ = 0;
  LengthRange keys_, rows_;       ///< what the answers so far leave
  std::map<int, Blocks> blocks_;  ///< likewise, by the rows of a block
  std::map<std::tuple<int, int, int, int>, bool> compared_;
  std::map<bool, bool> even_;  ///< one entry, once asked
};

}  // namespace flashcore
