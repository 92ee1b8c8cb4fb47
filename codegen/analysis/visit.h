// Short ways to look through a program: axes of a kind, what makes a value, which number it is, the
// regions of an op, what it reads and carries, whether some op is of a kind.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

#include "dsl/error.h"
#include "dsl/ir/function.h"

namespace flashcore {

/// The axis that a product sums over.
inline ir::AxisId inner_axis(const ir::Function& f, const ir::Op& dot) {
  return f[dot.operands[0]].type.axes[1];
}

/// What a map has for a key, derived when it is first asked for.
template <class Map, class Derive>
typename Map::mapped_type remembered(Map& map, const typename Map::key_type& key,
                                     const Derive& derive) {
  const auto found = map.find(key);
  return found != map.end() ? found->second : (map[key] = derive());
}

/// The op that ends a region.
inline ir::Op& last_of(ir::Function& f, ir::BlockId region) { return f[f[region].ops.back()]; }
inline const ir::Op& last_of(const ir::Function& f, ir::BlockId region) {
  return f[f[region].ops.back()];
}

/// What carried value i of a loop starts from.
inline ir::ValueId initial_of(const ir::Op& loop, std::size_t i) {
  return loop.operands[static_cast<std::size_t>(loop.bounds) + i];
}

/// The first axis of a kind, and the last; none if there is none.
inline ir::AxisId first_axis_of(const ir::Function& f, ir::AxisKind kind) {
  const auto found = std::ranges::find(f.axes, kind, &ir::Axis::kind);
  return found == f.axes.end() ? ir::AxisId()
                               : ir::AxisId(static_cast<std::size_t>(found - f.axes.begin()));
}
inline ir::AxisId last_axis_of(const ir::Function& f, ir::AxisKind kind) {
  for (std::size_t i = f.axes.size(); i-- > 0;)
    if (f.axes[i].kind == kind) return ir::AxisId(i);
  return {};
}

/// The tensor dimension that an access has an axis of its tile along.
inline std::size_t dimension_along(const ir::Op& access, ir::AxisId axis) {
  const auto found = std::ranges::find(access.coordinates, axis, &ir::Coordinate::axis);
  if (found == access.coordinates.end())
    throw InternalError("an access without the axis of its tile");
  return static_cast<std::size_t>(found - access.coordinates.begin());
}

/// How a value that has a layout lies in registers along one of its axes.
inline const ir::AxisLayout& layout_along(const ir::Function& f, ir::ValueId value,
                                          ir::AxisId axis) {
  const auto& axes = f[value].type.axes;
  return f[value].layout.axes.at(
      static_cast<std::size_t>(std::ranges::find(axes, axis) - axes.begin()));
}

/// Whether one dimension alone has the positions along the axis, one after the other.
inline bool runs_along(const ir::Function& f, const ir::Op& access, ir::AxisId axis) {
  return std::ranges::none_of(access.coordinates, [&](const ir::Coordinate& c) {
    return axis_of(f, c) == axis && is_computed(f, c);
  });
}

/// A value that a loop carries: what it starts from, what an iteration has and hands to the next one,
/// and what is there behind the loop.
struct Carried {
  ir::ValueId start, argument, next, result;
};

inline std::vector<Carried> carried_by(const ir::Function& f, const ir::Op& loop) {
  std::vector<Carried> carried;
  for (std::size_t i = 0; i < loop.results.size(); ++i)
    carried.push_back({initial_of(loop, i), f[loop.body].arguments[i + 1],
                       last_of(f, loop.body).operands[i], loop.results[i]});
  return carried;
}

/// What a loop carries that has the value as its result or in an iteration; none for other values.
inline std::optional<Carried> carried_as(const ir::Function& f, ir::ValueId value) {
  for (const ir::Op& op : f.ops)
    if (op.code == ir::OpCode::loop)
      for (const Carried& carried : carried_by(f, op))
        if (carried.result == value || carried.argument == value) return carried;
  return std::nullopt;
}

/// The op that makes a value, if it is of this code; else null.
inline const ir::Op* definition_as(const ir::Function& f, ir::ValueId value, ir::OpCode code) {
  const ir::Op* op = f.definition(value);
  return op && op->code == code ? op : nullptr;
}

/// Whether an op without operands makes the value.
inline bool is_source(const ir::Function& f, ir::ValueId value) {
  const ir::Op* op = f.definition(value);
  return op && ir::kind_of(op->code) == ir::OpKind::source;
}

/// The number a value is known to be, if it is a constant.
inline const double* constant_of(const ir::Function& f, ir::ValueId value) {
  const ir::Op* op = definition_as(f, value, ir::OpCode::constant);
  return op ? &op->number : nullptr;
}

/// Whether a value is known to be this number.
inline bool is_number(const ir::Function& f, ir::ValueId value, double number) {
  const double* known = constant_of(f, value);
  return known && *known == number;
}

/// Whether a value is the constant minus infinity, which masks put in the place of what they hide.
inline bool is_minus_infinity(const ir::Function& f, ir::ValueId value) {
  return is_number(f, value, -INFINITY);
}

/// Where an op stands in its block.
inline std::size_t position_of(const ir::Function& f, ir::BlockId block, ir::OpId op) {
  const auto& ops = f[block].ops;
  return static_cast<std::size_t>(std::ranges::find(ops, op) - ops.begin());
}

/// Whether an op of the block makes the value.
inline bool made_in(const ir::Function& f, ir::BlockId block, ir::ValueId value) {
  return std::ranges::count(f[block].ops, f[value].definition) > 0;
}

/// Whether an op is of a code, for algorithms over the ops of a block.
inline auto has_code(const ir::Function& f, ir::OpCode code) {
  return [&f, code](ir::OpId id) { return f[id].code == code; };
}

/// The regions that an op has, for a loop over them. They stay the same while it changes.
class Regions {
 public:
  explicit Regions(const ir::Op& op) {
    for (const ir::BlockId region : {op.body, op.otherwise})
      if (region) regions_[count_++] = region;
  }
  [[nodiscard]] const ir::BlockId* begin() const { return regions_.data(); }
  [[nodiscard]] const ir::BlockId* end() const { return regions_.data() + count_; }

 private:
  std::array<ir::BlockId, 2> regions_;
  std::size_t count_ = 0;
};

/// Whether `test(ValueId)` holds for something the op reads.
template <class Test>
bool any_use(const ir::Op& op, Test&& test) {
  bool any = false;
  ir::for_each_use(op, [&](const ir::ValueId& value) { any = any || test(value); });
  return any;
}
inline bool reads(const ir::Op& op, ir::ValueId value) {
  return any_use(op, [&](ir::ValueId used) { return used == value; });
}

/// Whether `test(const Op&)` holds for some op of a block or of a region in it.
template <class Test>
bool any_op(const ir::Function& f, ir::BlockId block, Test&& test) {
  bool any = false;
  ir::for_each_op(f, block, [&](const ir::Op& op, ir::BlockId) { any = any || test(op); });
  return any;
}
/// Whether an op of this code stands in a block or in a region inside it.
inline bool holds(const ir::Function& f, ir::BlockId block, ir::OpCode code) {
  return any_op(f, block, [&](const ir::Op& op) { return op.code == code; });
}
/// Whether `test(const Op&)` holds for an op or for some op of its regions.
template <class Test>
bool any_op_of(const ir::Function& f, const ir::Op& op, Test&& test) {
  bool any = test(op);
  for (const ir::BlockId region : Regions(op)) any = any || any_op(f, region, test);
  return any;
}

/// Whether `test(op, k)` holds for every op of a block or inside it whose operand k is the value.
template <class Test>
bool all_readers(const ir::Function& f, ir::BlockId block, ir::ValueId value, Test&& test) {
  return !any_op(f, block, [&](const ir::Op& op) {
    for (std::size_t k = 0; k < op.operands.size(); ++k)
      if (op.operands[k] == value && !test(op, k)) return true;
    return false;
  });
}

/// By value: whether a region, or one inside it, makes it or has it as an argument.
inline std::vector<bool> made_inside(const ir::Function& f, ir::BlockId region) {
  std::vector<bool> inside(f.values.size());
  const auto note = [&](const std::vector<ir::ValueId>& values) {
    for (ir::ValueId value : values) inside[value.index] = true;
  };
  note(f[region].arguments);
  ir::for_each_op(f, region, [&](const ir::Op& op, ir::BlockId) {
    note(op.results);
    for (const ir::BlockId inner : Regions(op)) note(f[inner].arguments);
  });
  return inside;
}

/// Whether products alone read a value, as their left operand.
inline bool is_only_left_operand(const ir::Function& f, ir::ValueId value) {
  return all_readers(f, f.body, value, [](const ir::Op& op, std::size_t k) {
    return op.code == ir::OpCode::dot && k == 0;
  });
}

/// Whether a computed 16-bit tile stays packed in registers, as the left operand of the products that read it:
/// all else that does widens its elements to f32 or, where warps can write packed tiles, takes it to shared
/// memory, perhaps for products that read it transposed.
inline bool stays_packed(const ir::Function& f, ir::ValueId value, bool can_write_packed) {
  bool is_operand = false;
  const bool others = any_op(f, f.body, [&](const ir::Op& op) {
    if (std::ranges::count(op.operands, value) == 0) return false;
    const bool left = op.code == ir::OpCode::dot && op.operands[0] == value &&
                      std::ranges::count(op.operands, value) == 1;
    const bool written = op.code == ir::OpCode::convert || op.code == ir::OpCode::transpose;
    is_operand = is_operand || left;
    return !left && op.code != ir::OpCode::cast && !(written && can_write_packed);
  });
  return is_operand && !others;
}

}  // namespace flashcore
