// Puts operations into a block, at its end or in front of one that is there, and infers their types.
// The DSL and the passes both build through it, so that a wrong combination of operands is one error
// with the author's place in it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dsl/ir/function.h"
#include "dsl/ir/type_rules.h"

namespace flashcore::ir {

class Builder {
 public:
  Builder(Function& f, BlockId block) : f_(f), block_(block) {}
  /// Puts ops, one behind the other, in front of the one at `position`, and says that they are from
  /// where that is from; at the end of the block, if there is none.
  Builder(Function& f, BlockId block, std::size_t position);

  /// Where the ops to come are from.
  Builder& at(Location where) {
    where_ = std::move(where);
    return *this;
  }
  /// Collects the ops to come in a list instead of a block, for a pass that rebuilds one.
  void set_block(BlockId block) {
    block_ = block;
    position_.reset();
  }
  [[nodiscard]] BlockId block() const { return block_; }
  /// Where the next op is put: behind what the builder has put there.
  [[nodiscard]] std::size_t position() const;
  [[nodiscard]] Function& function() const { return f_; }

  ValueId constant(double number, DType dtype, std::vector<AxisId> axes = {});
  ValueId integer(std::int64_t number);
  ValueId parameter(ParameterId parameter);
  ValueId extent(AxisId axis);
  ValueId index(AxisId axis);
  ValueId tile_begin(AxisId axis);
  ValueId tile_count(AxisId axis);
  ValueId dimension(TensorId tensor, int dimension);

  /// Any op of kind elementwise but cast. Operands broadcast by axis; dtypes must agree.
  ValueId elementwise(OpCode code, std::vector<ValueId> operands);
  ValueId cast(ValueId value, DType dtype);
  /// One i32 index a dimension.
  ValueId gather(TensorId tensor, std::vector<ValueId> indices, std::uint8_t wraps = 0);
  ValueId reduce(OpCode code, ValueId value, AxisId axis);
  ValueId combine_partials(ValueId value, AxisId axis, OpCode reduction);
  /// In the memory space of what it is a view of.
  ValueId transpose(ValueId value);
  /// [m, k] x [k, n] -> [m, n] in fp32, added to `accumulator` if there is one.
  ValueId dot(ValueId a, ValueId b, ValueId accumulator = {},
              OperandRounding rounding = OperandRounding::none);
  ValueId load(TensorId tensor, std::vector<Coordinate> coordinates);
  ValueId searchsorted(TensorId tensor, ValueId number);
  void segment(AxisId axis, ValueId begin, ValueId end);
  void store(TensorId tensor, std::vector<Coordinate> coordinates, ValueId value,
             Accumulation accumulation = Accumulation::none, TensorId turns = {});

  // Shorthand for the integer arithmetic of bounds.
  ValueId add(ValueId a, ValueId b) { return elementwise(OpCode::add, {a, b}); }
  ValueId sub(ValueId a, ValueId b) { return elementwise(OpCode::sub, {a, b}); }
  ValueId mul(ValueId a, ValueId b) { return elementwise(OpCode::mul, {a, b}); }
  ValueId div(ValueId a, ValueId b) { return elementwise(OpCode::div, {a, b}); }
  ValueId min(ValueId a, ValueId b) { return elementwise(OpCode::min, {a, b}); }
  ValueId max(ValueId a, ValueId b) { return elementwise(OpCode::max, {a, b}); }
  ValueId neg(ValueId a) { return elementwise(OpCode::neg, {a}); }
  ValueId where(ValueId condition, ValueId a, ValueId b) {
    return elementwise(OpCode::where, {condition, a, b});
  }

  /// Puts an op as it is. `make` is for one with a single result, which it returns.
  OpId append(Op op, const std::vector<TileType>& result_types = {});
  ValueId make(Op op, TileType type);
  /// Puts an op that is in no block yet.
  void place(OpId op);
  /// Goes behind an op of the block.
  void go_behind(OpId op);
  /// Takes an op from the block.
  void remove(OpId op);

 private:
  /// Puts an op whose type follows from type_rules.h.
  ValueId append_inferred(Op op);

  Function& f_;
  BlockId block_;
  std::optional<std::size_t> position_;  ///< none: the end of the block
  Location where_;
};

}  // namespace flashcore::ir
