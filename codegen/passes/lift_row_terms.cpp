// A score with a bias that is linear in positions, such as that of ALiBi, costs a multiply-add an
// element for the bias. But a term that all scores of a row have in common can be added to the
// row's values instead:
//
//   x = fma s, c, slope * (col - row)   becomes   l = slope * (col - begin)   the same in all tiles
//                                                 r = slope * (begin - row)   one number a row
//                                                 x = fma s, c, l
//   w = where mask, x, -inf                       w = where mask, x, -inf
//   m = reduce_max w                              m = reduce_max w + r
//   e = fma w, k, -m'                             e = fma w, k, fma(r, k, -m')
//
// where `begin` is the tile's first position. An element is left with l, which a thread keeps over
// the loop, since it is the same for all rows and all tiles.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// sign * index of the loop's axis + the sum of `rest`, as integers.
struct Positions {
  int sign = 0;
  std::vector<std::pair<int, ValueId>> rest;  ///< with signs
  int terms = 0;  ///< looked at; a term that is shared counts at every use
};

struct Biased {
  OpId score;           ///< x
  std::size_t operand;  ///< which of its operands is the bias
  ValueId slope;        ///< none where the positions are the bias
  Positions positions;
  ValueId read;  ///< what the readers read: w, or x where nothing is masked
};

bool split_positions_of(const Function& f, ValueId value, AxisId axis, int sign, Positions& into) {
  constexpr int most_terms = 100;
  if (++into.terms > most_terms) return false;
  const Op* op = f.definition(value);
  if (!f[value].type.has(axis)) {
    into.rest.emplace_back(sign, value);
    return true;
  }
  if (!op) return false;
  if (op->code == OpCode::index && op->axis == axis) {
    into.sign += sign;
    return true;
  }
  if (op->code == OpCode::neg) return split_positions_of(f, op->operands[0], axis, -sign, into);
  if (op->code != OpCode::add && op->code != OpCode::sub) return false;
  return split_positions_of(f, op->operands[0], axis, sign, into) &&
         split_positions_of(f, op->operands[1], axis, op->code == OpCode::add ? sign : -sign, into);
}

/// A scalar times positions as a float.
bool find_bias(const Function& f, ValueId value, AxisId axis, Biased& found) {
  const auto product = scaled_tile(f, f.definition(value));
  if (product) found.slope = product->factor;
  const Op* op = definition_as(f, product ? product->tile : value, OpCode::cast);
  return op && f[op->operands[0]].type.dtype == DType::i32 &&
         split_positions_of(f, op->operands[0], axis, 1, found.positions) &&
         std::abs(found.positions.sign) == 1;
}

bool hides_score(const Function& f, const Op& op, ValueId value) {
  if (op.code != OpCode::where || op.operands[1] != value) return false;
  const double* hidden = constant_of(f, op.operands[2]);
  return hidden && std::isinf(*hidden) && f[op.results[0]].type == f[value].type;
}

bool is_extreme(const Op& op, AxisId axis) {
  return (op.code == OpCode::reduce_max || op.code == OpCode::reduce_min) && op.axis == axis;
}

/// The operand of an op that is added to a score, or to a multiple of it, and is the same along
/// the row.
std::optional<std::size_t> row_operand(const Function& f, const Op& op, ValueId score,
                                       AxisId axis) {
  const auto alone = [&](std::size_t k) { return !f[op.operands[k]].type.has(axis); };
  if (op.code == OpCode::fma)
    for (std::size_t k : {0, 1})
      if (op.operands[k] == score && alone(1 - k) && alone(2)) return 2;
  if (op.code == OpCode::sub && op.operands[0] == score && alone(1)) return 1;
  if (op.code == OpCode::add)
    for (std::size_t k : {0, 1})
      if (op.operands[k] == score && alone(1 - k)) return 1 - k;
  return std::nullopt;
}

/// Whether all that a score is for is a maximum of its row, and what a row value is added to.
bool has_readers(const Function& f, const ProbeOps& probes, BlockId block, AxisId axis,
                 Biased& found) {
  const auto readers_but_probes = [&] {
    std::vector<OpId> readers = readers_of(f, block, found.read);
    std::erase_if(readers, [&](OpId id) { return probes.has(id); });
    return readers;
  };
  std::vector<OpId> readers = readers_but_probes();
  if (readers.size() == 1 && hides_score(f, f[readers[0]], found.read)) {
    found.read = f[readers[0]].results[0];
    readers = readers_but_probes();
  }
  bool extreme = false, shifted = false;
  for (OpId id : readers) {
    const Op& op = f[id];
    if (is_extreme(op, axis))
      extreme = true;
    else if (row_operand(f, op, found.read, axis))
      shifted = true;
    else
      return false;
  }
  return extreme && shifted;
}

std::optional<Biased> find_biased(const Function& f, const ProbeOps& probes, BlockId block,
                                  AxisId axis, OpId id) {
  const Op& op = f[id];
  if (probes.has(id)) return std::nullopt;
  std::vector<std::size_t> places;
  if (op.code == OpCode::fma) places = {2};
  if (op.code == OpCode::sub) places = {1};
  if (op.code == OpCode::add) places = {0, 1};
  if (places.empty()) return std::nullopt;
  const TileType& type = f[op.results[0]].type;
  if (type.dtype != DType::f32 || type.axes.size() != 2 || type.axes[1] != axis)
    return std::nullopt;
  for (std::size_t k : places) {
    Biased found{.score = id, .operand = k, .slope = {}, .positions = {}, .read = op.results[0]};
    if (find_bias(f, op.operands[k], axis, found) && has_readers(f, probes, block, axis, found))
      return found;
  }
  return std::nullopt;
}

/// Probes see the score as the program has it.
void show_probes(Function& f, const ProbeOps& probes, BlockId block, ValueId score, ValueId row) {
  for (OpId reader : readers_of(f, block, score)) {
    if (!probes.has(reader)) continue;
    const ValueId whole = before(f, block, reader).add(score, row);
    replace_use(f[reader], score, whole);
  }
}

void add_behind(Function& f, BlockId block, OpId reduction, ValueId row) {
  const ValueId result = f[reduction].results[0];
  Builder b = behind(f, block, reduction);
  const ValueId sum = b.add(result, row);
  std::swap(f[sum].name, f[result].name);
  replace_uses_behind(b, result, sum);
}

void add_to_operand(Function& f, BlockId block, OpId reader, std::size_t operand, ValueId score,
                    ValueId row) {
  Builder b = before(f, block, reader);
  const Op op = f[reader];
  const ValueId old = op.operands[operand];
  ValueId shifted;
  if (op.code == OpCode::fma)
    shifted = b.elementwise(OpCode::fma, {row, op.operands[op.operands[0] == score ? 1 : 0], old});
  else
    shifted = op.code == OpCode::sub ? b.sub(old, row) : b.add(old, row);
  f[reader].operands[operand] = shifted;
}

void lift_term(Function& f, const ProbeOps& probes, BlockId block, AxisId axis,
               const Biased& found) {
  Builder b = before(f, block, found.score);
  const ValueId begin = b.tile_begin(axis), index = b.index(axis);
  const bool falls = found.positions.sign < 0;
  const ValueId local = falls ? b.sub(begin, index) : b.sub(index, begin);
  ValueId rest = falls ? b.neg(begin) : begin;
  for (const auto& [sign, value] : found.positions.rest)
    rest = sign > 0 ? b.add(rest, value) : b.sub(rest, value);
  const auto scaled = [&](ValueId positions) {
    const ValueId value = b.cast(positions, DType::f32);
    return found.slope ? b.mul(found.slope, value) : value;
  };
  ValueId row = scaled(rest);
  if (f[found.score].code == OpCode::sub) row = b.neg(row);
  f[row].name = "row_bias";
  f[found.score].operands[found.operand] = named(f, scaled(local), "column_bias");
  const std::vector<OpId> readers =
      readers_of(f, block, found.read);  // before probes get one of their own
  for (ValueId score : {f[found.score].results[0], found.read})
    show_probes(f, probes, block, score, row);
  for (OpId reader : readers) {
    if (probes.has(reader)) continue;
    if (is_extreme(f[reader], axis))
      add_behind(f, block, reader, row);
    else if (const auto operand = row_operand(f, f[reader], found.read, axis))
      add_to_operand(f, block, reader, *operand, found.read, row);
  }
}

}  // namespace

void lift_row_terms(Function& f, const PassContext&) {
  const ProbeOps probes(f);
  for (std::size_t i = 0; i < f.ops.size(); ++i) {
    if (f.ops[i].code != OpCode::loop) continue;
    const BlockId body = f.ops[i].body;
    const AxisId axis = f.ops[i].axis;
    for (OpId id : std::vector(f[body].ops))
      if (const auto found = find_biased(f, probes, body, axis, id))
        lift_term(f, probes, body, axis, *found);
  }
  remove_dead_ops(f);
}

}  // namespace flashcore
