#include "templates/problem_questions.h"

#include <algorithm>
#include <cmath>

namespace flashcore {
namespace {

std::int64_t blocks_of(const AttentionProblem& problem, int rows) {
  return problem.batch * problem.heads * ((problem.q_len + rows - 1) / rows);
}

bool compare_most_rows(const AttentionProblem& problem, int a, int a_rows, int b, int b_rows,
                       int multiprocessors) {
  const auto most = [&](int rows) {
    return (blocks_of(problem, rows) + multiprocessors - 1) / multiprocessors * rows;
  };
  return a * most(a_rows) <= b * most(b_rows);
}

}  // namespace

AttentionProblem as_fixed_by(const AttentionSpec& spec, const AttentionProblem& problem) {
  return {.batch = spec.batch.value_or(problem.batch),
          .heads = spec.heads ? spec.heads : problem.heads,
          .q_len = spec.q_len.value_or(problem.q_len),
          .kv_len = spec.kv_len.value_or(problem.kv_len)};
}

AttentionProblems as_fixed_by(const AttentionSpec& spec, const AttentionProblems& problems) {
  const AttentionProblem fixed = as_fixed_by(spec, AttentionProblem{});
  const auto either = [](std::int64_t number, const LengthRange& range) {
    return number > 0 ? LengthRange{number, number} : range;
  };
  return {.batch = either(fixed.batch, problems.batch),
          .heads = either(fixed.heads, problems.heads),
          .q_len = either(fixed.q_len, problems.q_len),
          .kv_len = either(fixed.kv_len, problems.kv_len)};
}

bool KnownProblem::keys_up_to(std::int64_t length) {
  return problem_.kv_len > 0 && problem_.kv_len <= length;
}

bool KnownProblem::rows_up_to(std::int64_t length) {
  return problem_.q_len > 0 && problem_.q_len <= length;
}

bool KnownProblem::blocks_below(int rows, double count) {
  return static_cast<double>(blocks_of(problem_, rows)) < count;
}

bool KnownProblem::most_rows_up_to(int a, int a_rows, int b, int b_rows, int multiprocessors) {
  return compare_most_rows(problem_, a, a_rows, b, b_rows, multiprocessors);
}

ProblemExploration::ProblemExploration(const AttentionProblems& range) : range_(range) { start(); }

void ProblemExploration::start() {
  answered_ = 0;
  keys_ = range_.kv_len;
  rows_ = range_.q_len;
  blocks_.clear();
  compared_.clear();
  even_.clear();
}

bool ProblemExploration::next() {
  // Questions behind those of this way may not come up in the next.
  way_.resize(answered_);
  while (!way_.empty() && way_.back()) way_.pop_back();
  if (way_.empty()) return false;
  way_.back() = true;
  start();
  return true;
}

bool ProblemExploration::decide() {
  if (answered_ == way_.size()) way_.push_back(false);
  return way_[answered_++];
}

bool ProblemExploration::up_to(LengthRange& length, std::int64_t bound) {
  if (length.most <= bound) return true;
  if (length.least > bound) return false;
  const bool answer = decide();
  (answer ? length.most : length.least) = answer ? bound : bound + 1;
  return answer;
}

bool ProblemExploration::heads_are_even() {
  if (range_.heads.least == range_.heads.most) return range_.heads.least % 2 == 0;
  const auto asked = even_.find(true);
  if (asked != even_.end()) return asked->second;
  return even_[true] = decide();
}

ProblemExploration::Blocks& ProblemExploration::blocks(int rows) {
  const auto known = blocks_.find(rows);
  if (known != blocks_.end()) return known->second;
  const auto of = [&](std::int64_t batch, std::int64_t heads, std::int64_t length) {
    return static_cast<double>(batch) * static_cast<double>(heads) *
           std::ceil(static_cast<double>(length) / rows);
  };
  const Blocks all{of(range_.batch.least, range_.heads.least, range_.q_len.least),
                   of(range_.batch.most, range_.heads.most, range_.q_len.most)};
  return blocks_.emplace(rows, all).first->second;
}

bool ProblemExploration::blocks_below(int rows, double count) {
  Blocks& all = blocks(rows);
  if (all.most < count) return true;
  if (all.least >= count) return false;
  const bool answer = decide();
  const double bound = std::ceil(count);  // blocks are counted in whole numbers
  (answer ? all.most : all.least) = answer ? bound - 1 : bound;
  return answer;
}

bool ProblemExploration::most_rows_up_to(int a, int a_rows, int b, int b_rows,
                                         int multiprocessors) {
  const auto is_one = [](const LengthRange& range) { return range.least == range.most; };
  if (is_one(range_.batch) && is_one(range_.heads) && is_one(range_.q_len)) {
    const AttentionProblem problem{
        .batch = range_.batch.least, .heads = range_.heads.least, .q_len = range_.q_len.least};
    return compare_most_rows(problem, a, a_rows, b, b_rows, multiprocessors);
  }
  const auto asked = compared_.find({a, a_rows, b, b_rows});
  if (asked != compared_.end()) return asked->second;
  return compared_[{a, a_rows, b, b_rows}] = decide();
}

}  // namespace flashcore
