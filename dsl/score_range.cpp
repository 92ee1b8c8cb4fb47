#include "dsl/score_range.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "dsl/program_builder.h"

namespace flashcore {
namespace {

using ir::OpCode;

constexpr double beyond = std::numeric_limits<double>::infinity();

/// From low to high, both included, and minus infinity beside them where `hides`.
struct Range {
  double low = -beyond, high = beyond;
  bool hides = false;

  [[nodiscard]] bool is_finite() const { return std::isfinite(low) && std::isfinite(high); }
};

Range around(std::initializer_list<double> values) { return {std::min(values), std::max(values)}; }

Range either(const Range& a, const Range& b) {
  return {std::min(a.low, b.low), std::max(a.high, b.high), a.hides || b.hides};
}

Range of_constant(double number) {
  if (number == -beyond) return {beyond, -beyond, true};  // nothing but that
  return std::isfinite(number) ? Range{number, number} : Range{};
}

/// Of functions that stay within a range for every argument.
Range of_any(OpCode code) {
  switch (code) {
    case OpCode::tanh:
    case OpCode::erf:
    case OpCode::sin:
    case OpCode::cos:
      return {-1, 1};
    case OpCode::atan:
      return {-2, 2};
    case OpCode::lt:
    case OpCode::le:
    case OpCode::gt:
    case OpCode::ge:
    case OpCode::eq:
    case OpCode::ne:
    case OpCode::logical_and:
    case OpCode::logical_or:
    case OpCode::logical_not:
      return {0, 1};
    default:
      return {};
  }
}

/// Of the others, from what their operands are within. What is not listed may be anything.
Range of_operands(OpCode code, const std::vector<Range>& x) {
  const bool hides = std::any_of(x.begin(), x.end(), [](const Range& r) { return r.hides; });
  if (code == OpCode::where) return either(x[1], x[2]);
  if (hides) return code == OpCode::min || code == OpCode::max ? either(x[0], x[1]) : Range{};
  // The smaller and the larger one are bounded by a single operand on one side.
  if (code == OpCode::min) return {std::min(x[0].low, x[1].low), std::min(x[0].high, x[1].high)};
  if (code == OpCode::max) return {std::max(x[0].low, x[1].low), std::max(x[0].high, x[1].high)};
  if (!std::all_of(x.begin(), x.end(), [](const Range& range) { return range.is_finite(); }))
    return {};
  switch (code) {
    case OpCode::neg:
      return {-x[0].high, -x[0].low};
    case OpCode::abs:
      return {0, std::max(std::abs(x[0].low), std::abs(x[0].high))};
    case OpCode::floor:
    case OpCode::round:
      return {x[0].low - 1, x[0].high + 1};
    case OpCode::cast:
      return x[0];
    case OpCode::add:
      return {x[0].low + x[1].low, x[0].high + x[1].high};
    case OpCode::sub:
      return {x[0].low - x[1].high, x[0].high - x[1].low};
    case OpCode::mul:
      return around(
          {x[0].low * x[1].low, x[0].low * x[1].high, x[0].high * x[1].low, x[0].high * x[1].high});
    case OpCode::div:
      if (x[1].low <= 0 && x[1].high >= 0) return {};
      return around(
          {x[0].low / x[1].low, x[0].low / x[1].high, x[0].high / x[1].low, x[0].high / x[1].high});
    default:
      return {};
  }
}

}  // namespace

bool is_within(const Score& score, double largest) {
  ProgramBuilder builder("score");
  const auto position = [&](const char* name) { return builder.scalar(name, DType::i32); };
  const ScoreSite site{position("b"),      position("h"),     position("q_idx"),
                       position("kv_idx"), position("q_len"), position("kv_len")};
  if (score.text.empty()) return false;
  const Tile result = apply(score, builder.scalar("score", DType::f32), site);

  const ir::Function& f = builder.function();
  std::vector<Range> ranges(f.values.size());
  // Values are defined in the order of their numbers, operands first.
  for (std::size_t i = 0; i < f.values.size(); ++i) {
    const ir::Op* op = f.definition(ir::ValueId(i));
    if (op == nullptr) continue;
    if (op->code == OpCode::constant) {
      ranges[i] = of_constant(op->number);
      continue;
    }
    ranges[i] = of_any(op->code);
    if (ranges[i].is_finite()) continue;
    std::vector<Range> operands;
    for (const ir::ValueId operand : op->operands) operands.push_back(ranges[operand.index]);
    ranges[i] = of_operands(op->code, operands);
  }
  const Range& range = ranges[result.id().index];
  return range.low >= -largest && range.high <= largest;
}

}  // namespace flashcore
