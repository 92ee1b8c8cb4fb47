#include "codegen/passes/tile_numbers.h"

#include <algorithm>
#include <bit>
#include <tuple>

#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

namespace {

const TileType scalar{DType::i32, {}};

/// Bytes that the loops of a block read along `axis`, for each of its elements.
int looped_bytes(const Function& f, AxisId axis) {
  int bytes = 0;
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    if (op.code != OpCode::issue || f[axis].kind != AxisKind::tiles) return;
    for (const Coordinate& c : op.coordinates)
      if (c.axis == axis) bytes += f[op.buffer].columns * size_of(f[op.buffer].dtype);
  });
  return bytes;
}

/// Into how many parts of one size a number is divided, rounded up.
ValueId parts(Builder& b, ValueId all, ValueId size) {
  const ValueId rounded = b.sub(b.add(all, size), b.integer(1));
  return b.elementwise(OpCode::quotient, {rounded, size});
}

/// The quotient, and what it leaves.
std::pair<ValueId, ValueId> divide(Builder& b, ValueId left, ValueId right) {
  const OpId made = b.append({.code = OpCode::divide, .operands = {left, right}}, {scalar, scalar});
  return {b.function()[made].results[0], b.function()[made].results[1]};
}

}  // namespace

TileNumbers::TileNumbers(Function& f, const PassContext& context, const TileSegments& segments)
    : f_(f), schedule_(context.schedule), target_(context.target), segments_(segments) {
  for (std::size_t i = 0; i < f.axes.size(); ++i) {
    if (f.axes[i].kind == AxisKind::parallel_tiles && !f.axes[i].alias_of)
      tiled_.push_back(AxisId(i));
    if (f.axes[i].kind == AxisKind::parallel) positions_.insert(positions_.begin(), AxisId(i));
    if (const int bytes = looped_bytes(f, AxisId(i))) looped_.emplace_back(AxisId(i), bytes);
  }
}

void TileNumbers::order_grid() {
  const bool tiles_first = schedule_.grid_order == GridOrder::tiles_first;
  f_.grid = tiles_first ? tiled_ : positions_;
  const std::vector<AxisId>& rest = tiles_first ? positions_ : tiled_;
  f_.grid.insert(f_.grid.end(), rest.begin(), rest.end());
  f_.flat_grid = schedule_.flat_grid;
  if (schedule_.persistent) std::erase(positions_, segments_.counted_by());
}

std::vector<AxisId> TileNumbers::numbered_axes() const {
  std::vector<AxisId> axes = f_.grid;
  std::erase(axes, segments_.counted_by());
  return axes;
}

bool TileNumbers::is_dynamic() const {
  return schedule_.tile_scheduler == PersistentScheduler::dynamic;
}

ValueId TileNumbers::count(Builder& b) const {
  return named_unless_source(f_, count_along_all(b, numbered_axes()),
                             in_clusters() ? "cluster_count" : "block_count");
}

TilePosition TileNumbers::numbered(Builder& b, ValueId tile, const TileGroups& groups) const {
  return in_cluster(
      b, groups.size ? position_in_groups(b, tile, groups) : position_of(b, tile, numbered_axes()));
}

ValueId& TileNumbers::rows_of(TilePosition& numbered) const {
  const std::vector<AxisId> axes = numbered_axes();
  const auto at = std::ranges::find(axes, tiled_.front()) - axes.begin();
  return numbered[static_cast<std::size_t>(at)];
}

TileNumbers::Found TileNumbers::find(Builder& b, TilePosition numbered) const {
  if (!segments_.counted_by()) return {std::move(numbered), {}};
  const std::vector<ValueId> found = segments_.find(b, rows_of(numbered));
  TilePosition position;
  auto next = numbered.begin();
  for (const AxisId axis : f_.grid) {
    const bool segment = axis == segments_.counted_by();
    const ValueId own = segment ? found[0] : *next++;
    position.push_back(axis == tiled_.front() ? found[1] : own);
  }
  return {position, found[2]};
}

ValueId TileNumbers::rank(Builder& b) const {
  return b.make({.code = OpCode::cluster_rank, .blocks = schedule_.multicast_blocks}, scalar);
}

/// The position along each of some axes of the tile that has this number among all along them.
TilePosition TileNumbers::position_of(Builder& b, ValueId rest,
                                      const std::vector<AxisId>& axes) const {
  TilePosition position;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    ValueId at = rest;
    if (i + 1 < axes.size()) std::tie(rest, at) = divide(b, rest, count_along(b, axes[i]));
    if (f_[axes[i]].descending && !segments_.counts_tiles_of(axes[i]))
      at = b.sub(b.sub(count_along(b, axes[i]), b.integer(1)), at);
    position.push_back(at);
  }
  return position;
}

/// The block's own tile of a cluster's, which lie side by side along the first axis of tiles; the last
/// of them may lie behind all tiles of the axis.
TilePosition TileNumbers::in_cluster(Builder& b, TilePosition position) const {
  if (!in_clusters()) return position;
  ValueId& at = position[static_cast<std::size_t>(std::ranges::find(f_.grid, tiled_.front()) -
                                                  f_.grid.begin())];
  at = b.add(b.mul(at, b.integer(schedule_.multicast_blocks)), rank(b));
  return position;
}

TileGroups TileNumbers::plan(Builder& b) const {
  if (schedule_.grid_order != GridOrder::grouped) return {};
  // Half of the largest power of two in L2's size: with the whole of it keys and values were read
  // from memory one and a half times, since outputs pass through L2 as well and blocks drift apart.
  const auto budget = static_cast<int>(std::bit_floor(static_cast<unsigned>(target_.l2_bytes)) / 2);
  ValueId bytes;
  for (const auto& [axis, each] : looped_) {
    const ValueId length = b.max(b.integer(1), length_of_dimension(b, axis));
    const ValueId all = b.mul(length, b.integer(each));
    bytes = bytes ? b.add(bytes, all) : all;
  }
  TileGroups groups;
  groups.positions = named_unless_source(f_, count_along_all(b, positions_), "positions");
  const ValueId one = b.integer(1);
  const ValueId room =
      bytes ? b.elementwise(OpCode::quotient, {b.integer(budget), bytes}) : groups.positions;
  const ValueId most =
      named_unless_source(f_, b.max(one, b.min(groups.positions, room)), "most_of_group");
  const ValueId filled = b.max(one, b.elementwise(OpCode::quotient, {groups.positions, most}));
  groups.size = named_unless_source(f_, b.max(one, parts(b, groups.positions, filled)), "group");
  groups.last = named_unless_source(
      f_, b.max(b.integer(0), b.sub(parts(b, groups.positions, groups.size), b.integer(2))),
      "last_group");
  groups.tiles =
      named_unless_source(f_, b.mul(groups.size, count_along_all(b, tiled_)), "group_tiles");
  return groups;
}

TilePosition TileNumbers::position_in_groups(Builder& b, ValueId tile,
                                             const TileGroups& groups) const {
  const ValueId whole =
      named_unless_source(f_, divide(b, tile, groups.tiles).first, "whole_groups");
  const ValueId which = named_unless_source(f_, b.min(whole, groups.last), "which_group");
  const ValueId first = named_unless_source(f_, b.mul(which, groups.size), "first_position");
  const ValueId left = b.sub(groups.positions, first);
  const ValueId is_last = b.elementwise(OpCode::eq, {which, groups.last});
  const ValueId here =
      named_unless_source(f_, b.where(is_last, left, groups.size), "positions_here");
  const ValueId before = b.mul(which, groups.tiles);
  const ValueId in_group = named_unless_source(f_, b.sub(tile, before), "tile_of_group");
  const auto [row, rest] = divide(b, in_group, here);
  const ValueId position = b.add(first, rest);
  // In waves odd groups run backwards: where one ends with short tiles the next begins with such.
  const ValueId odd = b.elementwise(OpCode::mod, {which, b.integer(2)});
  ValueId backwards = b.elementwise(OpCode::ne, {odd, b.integer(0)});
  if (is_dynamic()) {
    const ValueId counter = b.make({.code = OpCode::has_counter}, {DType::i1, {}});
    const ValueId in_waves = b.elementwise(OpCode::logical_not, {counter});
    backwards = b.elementwise(OpCode::logical_and, {in_waves, backwards});
  }
  const ValueId last = b.sub(count_along_all(b, tiled_), b.integer(1));
  const ValueId from_end = b.sub(last, row);
  const ValueId place = b.where(backwards, from_end, row);
  TilePosition all = position_of(b, named_unless_source(f_, position, "position"), positions_);
  const TilePosition of_tile =
      position_of(b, named_unless_source(f_, place, "row_of_group"), tiled_);
  all.insert(all.end(), of_tile.begin(), of_tile.end());
  return all;
}

/// How many blocks lie along an axis, or clusters of blocks that share loads.
ValueId TileNumbers::count_along(Builder& b, AxisId axis) const {
  if (f_[axis].kind != AxisKind::parallel_tiles) return b.extent(axis);
  if (segments_.counts_tiles_of(axis)) return segments_.count(b);
  const ValueId tiles = b.tile_count(axis);
  const int blocks = axis == tiled_.front() ? schedule_.multicast_blocks : 1;
  return blocks == 1 ? tiles : parts(b, tiles, b.integer(blocks));
}

ValueId TileNumbers::count_along_all(Builder& b, const std::vector<AxisId>& axes) const {
  ValueId all;
  for (AxisId axis : axes) {
    const ValueId along = count_along(b, axis);
    all = all ? b.mul(all, along) : along;
  }
  return all ? all : b.integer(1);
}

ValueId named_unless_source(Function& f, ValueId value, const std::string& name) {
  const Op* made_by = f.definition(value);
  const bool source = made_by && kind_of(made_by->code) == OpKind::source;
  if (f[value].name.empty() && !source) f[value].name = name;
  return value;
}

}  // namespace flashcore
