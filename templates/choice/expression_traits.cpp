#include "templates/choice/expression_traits.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>

#include "dsl/ir/affine.h"
#include "dsl/ir/conjuncts.h"
#include "dsl/ir/tile_lookup.h"

namespace flashcore {
namespace {

using namespace ir;

/// The conditions of the operations that hide scores, that is, of a `where` that replaces them by
/// minus infinity.
std::vector<ValueId> conditions_of_mask(const Function& f) {
  const AxisId cols = f.find_axis("cols");
  std::vector<ValueId> conditions;
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    if (op.code != OpCode::where || !f[op.results[0]].type.has(cols)) return;
    const Op* otherwise = f.definition(op.operands[2]);
    if (otherwise && otherwise->code == OpCode::constant && otherwise->number == -infinity)
      conditions.push_back(op.operands[0]);
  });
  return conditions;
}

/// Calls `visit` for every operation that a value is computed by.
template <class Visit>
void for_each_source(const Function& f, ValueId value, std::set<ValueId>& seen,
                     const Visit& visit) {
  if (!seen.insert(value).second) return;
  const Op* op = f.definition(value);
  if (op == nullptr || op->code == OpCode::loop) return;
  visit(*op);
  for (const ValueId operand : op->operands) for_each_source(f, operand, seen, visit);
}

/// Whether a condition is an element for each row and key of which the copy engine brings tiles, or
/// its opposite. Such a one hides no tile.
bool is_loaded(const Function& f, ValueId condition) {
  const Op* op = f.definition(condition);
  while (op && op->code == OpCode::logical_not) op = f.definition(op->operands[0]);
  return op && looks_up_tile(f, *op);
}

/// Of a spec that can have no program, that of the nearest one that can: what is wrong with it is
/// said elsewhere.
Program program_of(const AttentionSpec& spec) {
  return attention_forward(check(spec).empty() ? spec : nearest_valid(spec));
}

/// Operations for each score.
int operations_for_scores(const Function& f) {
  const AxisId rows = f.find_axis("rows"), cols = f.find_axis("cols");
  // A lookup waits for memory, and what the copy engine has brought only for shared memory. A tanh is
  // a polynomial, of which much is hidden behind products.
  static const std::map<OpCode, int> weights{
      {OpCode::constant, 0}, {OpCode::gather, 8}, {OpCode::tanh, 2}};
  constexpr int of_loaded = 1;
  int operations = 0;
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    if (op.results.size() != 1) return;
    const TileType& type = f[op.results[0]].type;
    if (!type.has(rows) || !type.has(cols)) return;
    const auto found = weights.find(op.code);
    operations += looks_up_tile(f, op) ? of_loaded : found == weights.end() ? 1 : found->second;
  });
  return operations;
}

}  // namespace

ScoreTraits traits_of_score(AttentionSpec spec) {
  ScoreTraits traits;
  if (spec.score.text.empty()) return traits;
  spec.mask = full();  // which may look things up itself
  spec.sink = {};
  AttentionSpec plain = spec;
  plain.score = {};
  const Program with_score = program_of(spec), without = program_of(plain);
  const Function& f = with_score.function();
  const AxisId rows = f.find_axis("rows"), cols = f.find_axis("cols");
  // Pages are looked up for any score.
  std::set<std::string> of_keys;
  for_each_op(without.function(), without.function().body, [&](const Op& op, BlockId) {
    if (op.code == OpCode::gather) of_keys.insert(without.function()[op.tensor].name);
  });
  const auto has_index_along = [&](const Op& gather, AxisId axis, AxisId not_along) {
    return std::ranges::any_of(gather.operands, [&](ValueId index) {
      return f[index].type.has(axis) && !f[index].type.has(not_along);
    });
  };
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    if (op.results.size() != 1) return;
    if (op.code == OpCode::gather && of_keys.contains(f[op.tensor].name)) return;
    const TileType& type = f[op.results[0]].type;
    traits.looks_up_rows = traits.looks_up_rows || (op.code == OpCode::gather && type.has(rows));
    if (!type.has(cols)) return;
    traits.softcap = traits.softcap || op.code == OpCode::tanh;
    if (op.code != OpCode::gather) return;
    if (looks_up_tile(f, op)) {
      ++traits.loaded_elements;
      return;
    }
    traits.looks_up = true;
    if (has_index_along(op, rows, cols) && has_index_along(op, cols, rows)) ++traits.own_elements;
  });
  traits.operations =
      std::max(0, operations_for_scores(f) - operations_for_scores(without.function()));
  return traits;
}

MaskTraits::MaskTraits(const AttentionSpec& spec) : is_full_(spec.mask.is_full()) {
  // A score may hide keys as well.
  const Program program = program_of(spec);
  const Function& f = program.function();
  const AxisId rows = f.find_axis("rows"), cols = f.find_axis("cols"), head = f.find_axis("head");
  std::vector<ValueId> conditions;
  for (const ValueId mask : conditions_of_mask(f))
    for (const ValueId condition : conjuncts_of(f, mask))
      is_loaded(f, condition) ? static_cast<void>(++loaded_elements_)
                              : conditions.push_back(condition);
  is_full_ = is_full_ || (conditions.empty() && loaded_elements_ > 0);
  several_ = conditions.size() > 1;
  for (const ValueId mask : conditions) {
    std::set<ValueId> seen;
    for_each_source(f, mask, seen, [&](const Op& op) {
      looks_up_ = looks_up_ || op.code == OpCode::gather;
      several_ = several_ || op.code == OpCode::logical_and;
      by_head_ = by_head_ || (op.code == OpCode::index && op.axis == head);
      divides_ = divides_ || op.code == OpCode::div;
    });
    const AffineCondition condition = affine_condition(f, mask);
    bounds_loop_ = bounds_loop_ && condition.complete;
    for (const AffineForm& form : condition.terms) {
      Condition& term = conditions_.emplace_back();
      term.constant = static_cast<double>(form.constant);
      const auto add = [&](AxisId axis, double coefficient) {
        if (axis == cols) {
          term.key += coefficient;
        } else if (axis == rows) {
          term.row += coefficient;
        } else {
          counts_ = false;
        }
      };
      for (const auto& [axis, factor] : form.positions) add(axis, static_cast<double>(factor));
      for (const auto& [quotient, factor] : form.quotients)
        add(quotient.first, static_cast<double>(factor) / static_cast<double>(quotient.second));
      for (const auto& [scalar, factor] : form.scalars) {
        const Op* op = f.definition(scalar);
        const bool is_length = op && op->code == OpCode::extent;
        if (is_length && op->axis == rows) {
          term.q_len += static_cast<double>(factor);
        } else if (is_length && op->axis == cols) {
          term.kv_len += static_cast<double>(factor);
        } else {
          counts_ = false;
        }
      }
      bounds_loop_ = bounds_loop_ && form.positions.count(cols) > 0;
      if (term.key != 0) term.border = -1 / term.key;
    }
  }
}

VisibleKeys MaskTraits::visible_keys(const AttentionProblem& problem, RowTiles tiles) const {
  const auto keys = static_cast<double>(problem.kv_len);
  if (is_full_) return {{keys}, 1};
  if (!bounds_loop_ || !counts_) {
    const double share = looks_up_ ? 0.125 : 0.5, mean = keys * share;
    return {{1.25 * mean, mean, 0.75 * mean}, 3, share};
  }
  return count_keys(problem, tiles);
}

VisibleKeys MaskTraits::count_keys(const AttentionProblem& problem, RowTiles tiles) const {
  const auto keys = static_cast<double>(problem.kv_len);
  const auto length = static_cast<double>(problem.q_len);
  // The first and the last key of a row, before they are cut to those that there are.
  const auto first_and_last = [&](double row) {
    double first = 0, last = keys;
    for (const Condition& c : conditions_) {
      const double key = (c.row * row + c.q_len * length + c.kv_len * keys + c.constant) * c.border;
      if (c.key > 0) first = std::max(first, key);
      if (c.key < 0) last = std::min(last, key + 1);
    }
    return std::pair(first, last);
  };
  const std::int64_t count =
      std::max<std::int64_t>(1, (problem.q_len + tiles.rows - 1) / tiles.rows);
  const std::int64_t in_front = tiles.end_aligned ? count * tiles.rows - problem.q_len : 0;
  VisibleKeys visible;
  visible.samples = static_cast<int>(std::min<std::int64_t>(count, VisibleKeys::most_samples));
  double sum = 0;
  for (int i = 0; i < visible.samples; ++i) {
    constexpr std::int64_t last = VisibleKeys::most_samples - 1;
    const std::int64_t tile = count > last ? i * (count - 1) / last : i;
    const auto row = static_cast<double>(tile * tiles.rows - in_front);
    const auto [a, b] = first_and_last(row);
    const auto [c, d] = first_and_last(std::min(row + tiles.rows, length) - 1);
    // Mostly in order like this: the last rows see the most keys.
    const double seen = std::clamp(std::max(b, d) - std::min(a, c), 0.0, keys);
    visible.keys[static_cast<std::size_t>(visible.samples - 1 - i)] = seen;
    sum += seen;
  }
  if (problem.kv_len > 0) visible.share = sum / (visible.samples * keys);
  const std::span most_first(visible.keys.data(), static_cast<std::size_t>(visible.samples));
  if (!std::ranges::is_sorted(most_first, std::greater<>()))
    std::ranges::sort(most_first, std::greater<>());
  return visible;
}

}  // namespace flashcore
