// A position along the last axis of a nest is what all elements of a thread's row have in common,
// thread_begin, and a number that is known when the kernel is compiled, thread_offset. Split, it
// costs an element little:
//
//   %c = le (index cols), %row      ->   %c = le (thread_offset cols), (sub %row, thread_begin)
//   %f = cast (sub %row, index cols)  ->  %f = add (cast (sub %row, thread_begin)), (cast (neg ...))
//   %g = gather x[index cols]       ->   %g = gather x[add thread_begin, thread_offset]
//
// One comparison with a constant, one conversion a row (the sum of both, as floats, is at most a
// rounding off, and exact up to 2^24), and an address whose part that differs is a constant of the
// instruction.
#include <optional>
#include <vector>

#include "codegen/analysis/inside_axis.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"
#include "dsl/ir/nest.h"
#include "dsl/ir/type_rules.h"

namespace flashcore {
namespace {

using namespace ir;

class PositionSplitting {
 public:
  explicit PositionSplitting(Function& f) : f_(f) {}

  void run() {
    rewrite_inside_out(f_, f_.body, [&](Builder&, OpId id) {
      if (f_[id].code == OpCode::nest) nest(f_[id].body);
    });
    remove_dead_ops(f_);
  }

 private:
  void nest(BlockId block) {
    block_ = block;
    shape_ = {};
    for (OpId id : f_[block].ops)
      if (kind_of(f_[id].code) == OpKind::elementwise && shape_.layout.axes.empty())
        shape_ = f_[f_[id].results[0]];
    const AxisLayout& along = shape_.layout.axes.back();
    if (along.fragments * along.slots == 1) return;
    for (OpId id : std::vector(f_[block].ops)) {
      if (is_comparison(f_[id].code))
        compare(id);
      else if (f_[id].code == OpCode::cast)
        convert(id);
      else if (f_[id].code == OpCode::gather)
        look_up(id);
    }
  }

  struct Split {
    ValueId begin, offset;  ///< no offset: the same for all of a row
  };

  /// An i32 made of positions and scalars by additions, split in front of an op.
  std::optional<Split> split(Builder& b, ValueId value) {
    // What is long is not the cheaper one, and what is shared would be computed at every use.
    constexpr int longest = 12;
    int terms = 0;
    const auto can = [&](const auto& self, ValueId v) -> bool {
      const Op* op = computation_of(f_, v);
      if (f_[v].type.dtype != DType::i32 || ++terms > longest) return false;
      if (f_[v].type.is_scalar()) return true;
      if (!op) return false;
      if (op->code == OpCode::index) return shape_.type.has(op->axis);
      return (op->code == OpCode::add || op->code == OpCode::sub) && self(self, op->operands[0]) &&
             self(self, op->operands[1]);
    };
    if (!can(can, value)) return std::nullopt;
    return build(b, value);
  }

  Split build(Builder& b, ValueId value) {
    if (f_[value].type.is_scalar()) return {value, {}};
    const Op op = *computation_of(f_, value);
    if (op.code == OpCode::index) {
      if (op.axis != last_axis()) return {b.index(op.axis), {}};
      return {part(b, OpCode::thread_begin), part(b, OpCode::thread_offset)};
    }
    const Split x = build(b, op.operands[0]), y = build(b, op.operands[1]);
    Split sum{computed(b, op.code, {x.begin, y.begin}), x.offset};
    if (!y.offset) return sum;
    if (x.offset)
      sum.offset = computed(b, op.code, {x.offset, y.offset});
    else
      sum.offset = op.code == OpCode::add ? y.offset : computed(b, OpCode::neg, {y.offset});
    return sum;
  }

  [[nodiscard]] AxisId last_axis() const { return shape_.type.axes.back(); }

  ValueId part(Builder& b, OpCode code) {
    const ValueId value = b.make({.code = code, .axis = last_axis()}, {DType::i32, {last_axis()}});
    f_[value].layout = {Space::registers, {shape_.layout.axes.back()}};
    return value;
  }

  ValueId computed(Builder& b, OpCode code, std::vector<ValueId> operands) {
    const ValueId value = b.elementwise(code, std::move(operands));
    Layout& layout = f_[value].layout;
    if (!f_[value].type.is_scalar()) layout.space = Space::registers;
    for (AxisId axis : f_[value].type.axes)
      layout.axes.push_back(
          shape_.layout.axes[axis == last_axis() ? shape_.layout.axes.size() - 1 : 0]);
    return value;
  }

  /// A comparison of a column's position with something that is the same along the row. No position
  /// is negative, so what is below -1 may as well be that, and the difference is in range.
  void compare(OpId id) {
    const Op op = f_[id];
    if (op.code == OpCode::eq || op.code == OpCode::ne) return;
    for (std::size_t k : {0, 1}) {
      const ValueId column = op.operands[k], other = op.operands[1 - k];
      const Op* index = definition_as(f_, column, OpCode::index);
      if (!index || index->axis != last_axis() || f_[other].type.has(index->axis)) continue;
      const bool has_room = leaves_room(f_, other, index->axis);
      Builder b = before(f_, block_, id);
      const ValueId bound = has_room ? other : computed(b, OpCode::max, {other, b.integer(-1)});
      const ValueId begin = part(b, OpCode::thread_begin);
      f_[id].operands[1 - k] = computed(b, OpCode::sub, {bound, begin});
      f_[id].operands[k] = part(b, OpCode::thread_offset);
      return;
    }
  }

  /// A conversion to float. A scalar times positions is the scalar times each of their parts: the
  /// row's is taken once, and joins the other in one instruction.
  void convert(OpId id) {
    const Op op = f_[id];
    const ValueId value = op.results[0];
    if (f_[value].type.dtype != DType::f32) return;
    Builder b = before(f_, block_, id);
    const auto parts = split(b, op.operands[0]);
    if (!parts || !parts->offset) return;
    const ValueId begin = as_float(b, parts->begin), offset = as_float(b, parts->offset);
    const std::vector<OpId> readers = readers_of(f_, block_, value);
    const auto scaled = readers.size() == 1 ? scaled_tile(f_, &f_[readers[0]]) : std::nullopt;
    if (!scaled) {
      f_[id] = {
          .code = OpCode::add, .operands = {begin, offset}, .results = {value}, .where = op.where};
      return;
    }
    const ValueId of_row = computed(b, OpCode::mul, {scaled->factor, begin});
    f_[readers[0]].code = OpCode::fma;
    f_[readers[0]].operands = {scaled->factor, offset, of_row};
  }

  ValueId as_float(Builder& b, ValueId value) {
    const ValueId converted = b.cast(value, DType::f32);
    f_[converted].layout = f_[value].layout;
    return converted;
  }

  /// Positions themselves, of which none is negative; where no index is outside, any that can be
  /// split.
  void look_up(OpId id) {
    for (std::size_t d = 0; d < f_[id].operands.size(); ++d) {
      const ValueId index = f_[id].operands[d];
      const bool position = definition_as(f_, index, OpCode::index) && !(f_[id].wraps >> d & 1);
      if (!f_[id].inside && !position) continue;
      Builder b = before(f_, block_, id);
      if (const auto parts = split(b, index); parts && parts->offset)
        f_[id].operands[d] = computed(b, OpCode::add, {parts->begin, parts->offset});
    }
  }

  Function& f_;
  BlockId block_;  ///< the nest at hand, and what its elements are like
  Value shape_;
};

}  // namespace

void split_positions(Function& f, const PassContext&) { PositionSplitting(f).run(); }

}  // namespace flashcore
