#include "codegen/passes/tile_segments.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "codegen/passes/rewrite.h"
#include "dsl/error.h"

namespace flashcore {

using namespace ir;

namespace {

const TileType number{DType::i32, {}};

bool asks_where_block_is(const Function& f, const Op& op) {
  if (op.code != OpCode::index && op.code != OpCode::tile_begin) return false;
  const AxisKind kind = f[op.axis].kind;
  return kind == AxisKind::parallel || kind == AxisKind::parallel_tiles;
}

/// The axis whose position a list of numbers is read at; none if it is read otherwise. `further`: by how
/// much beyond the position.
AxisId read_by_position(const Function& f, const Op* load, int further) {
  if (!load || load->code != OpCode::load || load->coordinates.size() != 1) return {};
  const Op* at = f.definition(load->coordinates[0].value);
  if (at && further) {
    if (at->code != OpCode::add || !is_number(f, at->operands[1], further)) return {};
    at = f.definition(at->operands[0]);
  }
  return at && at->code == OpCode::index ? at->axis : AxisId();
}

}  // namespace

TileSegments::TileSegments(Function& f, AxisId rows) : f_(f), rows_(rows) {
  for (OpId id : f_[f_.body].ops) {
    const Op& op = f_[id];
    if (op.code != OpCode::segment || op.axis != rows) continue;
    const Op* begin = f_.definition(op.operands[0]);
    counted_by_ = read_by_position(f_, begin, 0);
    if (!counted_by_) return;
    starts_ = begin->tensor;
    if (!is_within(op.operands[1])) counted_by_ = {};
  }
}

bool TileSegments::is_within(ValueId number) const {
  const Op* op = f_.definition(number);
  if (!op) return false;
  const auto at = [&](std::size_t i) { return is_within(op->operands[i]); };
  if (op->code == OpCode::min) return at(0) || at(1);
  if (op->code != OpCode::load || op->tensor != starts_) return false;
  return read_by_position(f_, op, 0) == counted_by_ || read_by_position(f_, op, 1) == counted_by_;
}

ValueId TileSegments::count(Builder& b) const {
  const ValueId tiles =
      b.elementwise(OpCode::quotient, {length_of_dimension(b, rows_), b.integer(f_[rows_].tile)});
  const ValueId segments = b.extent(counted_by_), numbers = b.add(tiles, segments);
  if (!f_[counted_by_].ragged) return numbers;
  return b.where(b.elementwise(OpCode::lt, {b.integer(0), segments}), numbers, b.integer(0));
}

std::vector<ValueId> TileSegments::find(Builder& b, ValueId tile) const {
  const OpId found = b.append({.code = OpCode::find_segment,
                               .operands = {tile, b.extent(counted_by_)},
                               .axis = rows_,
                               .tensor = starts_},
                              {number, number, {DType::i1, {}}});
  return f_[found].results;
}

void TileSegments::take_ops() {
  std::set<ValueId> known;
  std::set<AxisId> placed;
  std::erase_if(f_[f_.body].ops, [&](OpId id) {
    Op& op = f_[id];
    if (op.code == OpCode::role) return false;
    const bool of_all_tiles = op.code == OpCode::segment && f_[op.axis].kind == AxisKind::parallel;
    bool depends = (op.code == OpCode::segment && !of_all_tiles) || asks_where_block_is(f_, op) ||
                   (op.axis && placed.contains(f_.origin(op.axis)));
    for_each_use(op, [&](const ValueId& v) { depends = depends || known.contains(v); });
    if (!depends) return false;
    known.insert(op.results.begin(), op.results.end());
    if (op.code == OpCode::segment) placed.insert(op.axis);
    if (is_handed_on(op)) loaded_.push_back(op.results[0]);
    segment_ops_.push_back(id);
    return true;
  });
}

bool TileSegments::is_handed_on(const Op& op) const {
  return op.code == OpCode::load && f_[op.results[0]].type == number;
}

OpCopier TileSegments::set(Builder& b, const std::vector<ValueId>& loaded) {
  OpCopier placed(f_);
  for (std::size_t i = 0; i < loaded.size(); ++i) placed.rename(loaded_[i], loaded[i]);
  ValueId exists;
  for (OpId id : segment_ops_) {
    if (!loaded.empty() && is_handed_on(f_[id])) continue;
    const OpId copied = placed.copy(b, id);
    const AxisId axis = f_[copied].axis;
    if (f_[copied].code != OpCode::segment) continue;
    if (f_[axis].kind == AxisKind::parallel_tiles) {
      exists = b.elementwise(OpCode::lt, {b.tile_begin(axis), b.extent(axis)});
    } else if (exists) {
      // A tile that does not exist goes through no loop over the axis.
      b.remove(copied);
      const std::vector<ValueId> bounds = f_[copied].operands;
      const ValueId end = b.where(exists, bounds[1], bounds[0]);
      f_[copied].operands[1] = end;
      b.place(copied);
    }
  }
  return placed;
}

void TileSegments::rename_in(BlockId block, const OpCopier& placed) const {
  const Builder from_top(f_, block, 0);
  for (OpId id : segment_ops_)
    for (const ValueId value : std::vector(f_[id].results))
      replace_uses_behind(from_top, value, placed.renamed(value));
}

ValueId length_of_dimension(Builder& b, AxisId axis) {
  const Function& f = b.function();
  if (!f[axis].ragged) return b.extent(axis);
  const Extent extent = f[axis].extent;
  for (std::size_t t = 0; t < f.tensors.size(); ++t)
    for (std::size_t d = 0; d < f.tensors[t].dims.size(); ++d)
      if (f.tensors[t].dims[d] == extent) return b.dimension(TensorId(t), static_cast<int>(d));
  // Keys in pages lie along no dimension: a table has a column for each page of so many.
  for (std::size_t t = 0; t < f.tensors.size(); ++t)
    for (std::size_t d = 0; d < f.tensors[t].dims.size(); ++d)
      if (f.tensors[t].dims[d] == Extent(extent.name))
        return b.add(b.mul(b.dimension(TensorId(t), static_cast<int>(d)), b.integer(extent.times)),
                     b.integer(extent.plus));
  throw InternalError(fmt::format("no tensor along the ragged axis {}", f[axis].name));
}

}  // namespace flashcore
