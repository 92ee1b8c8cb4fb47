#include "codegen/analysis/box_positions.h"

#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "codegen/analysis/visit.h"

namespace flashcore {

using namespace ir;

namespace {

constexpr std::int64_t most = std::int64_t{1} << 31;

/// A divisor of the product of two numbers, from a divisor of each. Where the product of the divisors
/// would become too large, one of them serves.
std::int64_t divisor_of_product(std::int64_t a, std::int64_t b) {
  return a != 0 && b > most / a ? a : a * b;
}

std::optional<NumberRun> scaled(const NumberRun& run, std::int64_t factor, std::int64_t multiple) {
  if (std::abs(run.step) > most || std::abs(factor) > most) return std::nullopt;
  return NumberRun{run.step * factor, multiple};
}

}  // namespace

std::optional<NumberRun> NumberRuns::of(ValueId value) {
  return remembered(known_, value, [&] { return derive(value); });
}

std::optional<NumberRun> NumberRuns::derive(ValueId value) {
  const Op* op = f_.definition(value);
  const bool scalar = f_[value].type.is_scalar();
  const std::optional<NumberRun> unknown = scalar ? std::optional(NumberRun{}) : std::nullopt;
  if (!op || op->body) return unknown;
  std::vector<NumberRun> runs;
  for (const ValueId operand : op->operands) {
    const std::optional<NumberRun> run = of(operand);
    if (!run) return unknown;
    runs.push_back(*run);
  }
  const auto together = [&](std::size_t a, std::size_t b) {
    return std::gcd(runs[a].multiple, runs[b].multiple);
  };
  switch (op->code) {
    case OpCode::constant:
      return NumberRun{0, std::abs(static_cast<std::int64_t>(op->number))};
    case OpCode::tile_begin:
      return NumberRun{0, f_.origin(op->axis) == axis_ ? tile_ : 1};
    case OpCode::index:
      if (scalar) return unknown;
      return f_.origin(op->axis) == axis_ ? std::optional(NumberRun{1, tile_}) : std::nullopt;
    case OpCode::neg:
      return NumberRun{-runs[0].step, runs[0].multiple};
    case OpCode::add:
      return NumberRun{runs[0].step + runs[1].step, together(0, 1)};
    case OpCode::sub:
      return NumberRun{runs[0].step - runs[1].step, together(0, 1)};
    case OpCode::mul: {
      const double *a = constant_of(f_, op->operands[0]), *b = constant_of(f_, op->operands[1]);
      const std::int64_t multiple = divisor_of_product(runs[0].multiple, runs[1].multiple);
      if (b) return scaled(runs[0], static_cast<std::int64_t>(*b), multiple);
      if (a) return scaled(runs[1], static_cast<std::int64_t>(*a), multiple);
      if (runs[0].step || runs[1].step) return unknown;
      return NumberRun{0, multiple};
    }
    case OpCode::div:
    case OpCode::mod:
      return divide(*op);
    default:
      break;
  }
  for (const NumberRun& run : runs)
    if (run.step) return unknown;
  if (op->code == OpCode::min || op->code == OpCode::max) return NumberRun{0, together(0, 1)};
  if (op->code == OpCode::where) return NumberRun{0, together(1, 2)};
  return scalar || kind_of(op->code) == OpKind::elementwise ? std::optional(NumberRun{})
                                                            : std::nullopt;
}

/// Of a quotient by a constant, or what it leaves: all elements have one quotient where the first
/// one's remainder leaves room for the others.
std::optional<NumberRun> NumberRuns::divide(const Op& op) {
  const bool scalar = f_[op.results[0]].type.is_scalar();
  const NumberRun a = *of(op.operands[0]);
  const double* by = constant_of(f_, op.operands[1]);
  const std::int64_t k = by ? static_cast<std::int64_t>(*by) : 0;
  if (k <= 0) return scalar ? std::optional(NumberRun{}) : std::nullopt;
  const std::int64_t room = std::gcd(a.multiple, k);
  if (a.step < 0 || (tile_ - 1) * a.step >= room) return std::nullopt;
  if (op.code == OpCode::mod) return NumberRun{a.step, room};
  return NumberRun{0, a.multiple % k == 0 ? a.multiple / k : 1};
}

namespace {

/// Why so many rows, of which the first is a multiple of them along their axis, do not lie in one box;
/// empty where they do.
std::string why_no_box(const Function& f, const Op& load, int rows) {
  const std::vector<AxisId>& axes = f[load.results[0]].type.axes;
  const std::string& tensor = f[load.tensor].name;
  NumberRuns runs(f, f.origin(axes[0]), rows);
  int dimensions = 0;
  for (std::size_t d = 0; d < load.coordinates.size(); ++d) {
    const Coordinate& c = load.coordinates[d];
    const AxisId along = axis_of(f, c);
    if (!is_computed(f, c)) {
      dimensions += along == axes[0];
      continue;
    }
    if (along != axes[0]) {
      const std::optional<NumberRun> run =
          NumberRuns(f, f.origin(along), f[along].tile).of(c.value);
      const bool follows = run && run->step == 1 && d + 1 == load.coordinates.size();
      const int chunk = 16 / size_of(f[load.tensor].dtype);
      if (follows && run->multiple % chunk == 0) continue;
      if (follows)
        return fmt::format(
            "the positions along {} of a row of {} begin at no known multiple of {} elements, 16 "
            "bytes, as boxes of the copy engine do",
            f[along].name, tensor, chunk);
      return fmt::format(
          "the positions along {} of a row of {} are computed, and not known to follow each other",
          f[along].name, tensor);
    }
    const std::optional<NumberRun> run = runs.of(c.value);
    if (!run || (run->step != 0 && run->step != 1))
      return fmt::format(
          "in dimension {} of {}, {} rows of a tile along {} are not known to have one position, "
          "or positions that follow each other",
          d, tensor, rows, f[along].name);
    dimensions += run->step == 1;
  }
  if (dimensions == 1) return "";
  return fmt::format("the rows of a tile along {} follow each other in {} dimensions of {}",
                     f[axes[0]].name, dimensions, tensor);
}

}  // namespace

TileBoxes boxes_of_tile(const Function& f, const Op& load, int tile, int blocks) {
  std::string why = why_no_box(f, load, tile);
  if (why.empty()) return {tile, ""};
  // A vector is one line of its slot, of which no part is a line.
  const int share = f[load.results[0]].type.axes.size() == 1 ? 0 : tile / blocks;
  for (int rows = share / box_row_step * box_row_step; rows > 0; rows -= box_row_step) {
    if (share % rows) continue;
    why = why_no_box(f, load, rows);
    if (why.empty()) return {rows, ""};
  }
  return {0, std::move(why)};
}

}  // namespace flashcore
