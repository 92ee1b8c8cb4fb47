#include "templates/attention_chooser.h"

#include <algorithm>
#include <limits>

#include "dsl/error.h"
#include "templates/attention_in_parts.h"

namespace flashcore {
namespace {

constexpr std::int64_t most_in_a_grid = 65'535;  ///< blocks along any dimension but the first

/// Whether operands are split in parts by kernels in front: it pays where many rows read them.
bool pays_in_parts(const AttentionSpec& spec, std::int64_t q_len, std::int64_t kv_len) {
  return q_len * spec.group() >= least_rows_in_parts && kv_len >= least_keys_in_parts;
}

}  // namespace

bool has_alternatives(const AttentionSpec& spec, const Target& target) {
  return can_decode(spec, target) || can_attend_in_parts(spec, target);
}

AttentionChooser::AttentionChooser(const AttentionSpec& spec, const Target& target,
                                   std::string_view winners, const std::optional<CostModel>& model)
    : ScheduleChooser(spec, target, winners, model),
      spec_(spec),
      target_(target),
      model_(model ? model : CostModel::find(target.name)),
      in_parts_(can_attend_in_parts(spec, target)) {
  if (!can_decode(spec, target)) return;
  splits_.emplace(spec, target, model_);
  const LengthRange any{1, std::numeric_limits<std::int64_t>::max()};
  blocks_ = splits_->reachable(any, any);
  if (blocks_.size() > max_alternatives)
    throw InternalError("more ways to split keys than a choice has numbers for");
}

std::optional<std::size_t> AttentionChooser::find_alternative(std::span<const std::int64_t> lengths,
                                                              std::int64_t multiprocessors) const {
  return find_alternative(problem_of(lengths), multiprocessors);
}

std::optional<std::size_t> AttentionChooser::find_alternative(const AttentionProblem& problem,
                                                              std::int64_t multiprocessors) const {
  if (splits_) {
    const std::optional<DecodeBlocks> blocks = splits_->choose(problem, multiprocessors, this);
    if (!blocks) return std::nullopt;
    return static_cast<std::size_t>(std::ranges::find(blocks_, *blocks) - blocks_.begin());
  }
  const bool pays = in_parts_ && pays_in_parts(spec_, problem.q_len, problem.kv_len) &&
                    std::max(problem.batch, problem.heads) <= most_in_a_grid;
  return pays ? std::optional<std::size_t>(0) : std::nullopt;
}

Alternative AttentionChooser::alternative(std::size_t number) const {
  if (splits_)
    return attention_with_split_keys(spec_, target_, blocks_.at(number),
                                     model_ ? *model_ : CostModel::first());
  return {attention_in_parts(spec_), attention_in_parts_schedules(spec_, target_)};
}

std::vector<std::size_t> AttentionChooser::all_alternatives(const AttentionProblems& given) const {
  const AttentionProblems problems = as_fixed_by(spec_, given);
  std::vector<std::size_t> numbers;
  if (splits_ && problems.kv_len.most >= splits_->least_keys()) {
    for (const DecodeBlocks& blocks : splits_->reachable(problems.batch, problems.q_len))
      numbers.push_back(
          static_cast<std::size_t>(std::ranges::find(blocks_, blocks) - blocks_.begin()));
  }
  if (in_parts_ && pays_in_parts(spec_, problems.q_len.most, problems.kv_len.most))
    numbers.push_back(0);
  return numbers;
}

}  // namespace flashcore
