// A load at computed positions reads each row of its tile from a place of its own:
//
//   %page = gather table[%batch, div (index cols), 16]
//   %k = load k[%page, %head, mod (index cols), 16, d]
//
// The copy that it becomes is issued some tiles ahead. So the issue has a region that computes the
// positions of the tile that it copies, where `index cols` counts from the beginning of that tile:
//
//   issue k[by cols, %head, by cols, d], %next_tile, %slot in key {
//     %0 = index cols
//     ...
//     yield %page, %row
//   }
//
// A copy by the copy engine is a box of rows that follow each other in one dimension, and in all
// others have one position. Its region computes the position of the first row, in scalars, where
// `tile_begin cols` is the place of the index; `by` without an axis is a position of all rows:
//
//   issue k[by, %head, by cols, d] in key {
//     %0 = tile_begin cols
//     ...
//     yield %page, %row
//   }
//
// A tile may be several boxes, as of pages that are shorter. The region, which is asked for each, then
// takes the number of the box's first row within the tile:
//
//   issue k[by, %head, by cols, d] in key boxes of 16 rows {
//     row %row : i32
//     %0 = tile_begin cols
//     %1 = add %0, %row
//     ...
//     yield %page, %place
//   }
#include "codegen/passes/issued_loads.h"

#include <algorithm>
#include <map>
#include <string>

#include <fmt/format.h>

#include "codegen/analysis/box_positions.h"
#include "codegen/passes/rewrite.h"
#include "dsl/error.h"

namespace flashcore {
namespace {

using namespace ir;

/// Copies what computes the positions of a tile into the region of its issue: of each row, or of the
/// first row alone, in scalars: that of the tile, or of the box that begins at `row`.
class PositionCopier {
 public:
  PositionCopier(Function& f, const Op& load, BlockId region, bool first_row, ValueId row,
                 const std::function<bool(ValueId)>& made_inside)
      : f_(f),
        load_(load),
        region_(f, region),
        first_row_(first_row),
        row_(row),
        made_inside_(made_inside) {}

  ValueId copy(ValueId value) {
    if (const auto known = copies_.find(value); known != copies_.end()) return known->second;
    if (f_[value].type.is_scalar() && !made_inside_(value)) return value;
    const OpId id = f_[value].definition;
    if (!id || !is_position(f_[id])) refuse(id);
    Op op = f_[id];
    const ValueId result = first_row_ && op.code == OpCode::index && !f_[value].type.is_scalar()
                               ? first_position(op)
                               : copy_of(std::move(op), f_[value].type);
    f_[result].name = f_[value].name;
    return copies_[value] = result;
  }

 private:
  ValueId copy_of(Op op, TileType type) {
    for_each_use(op, [&](ValueId& used) { used = copy(used); });
    if (first_row_) type.axes.clear();
    op.results.clear();
    return region_.at(op.where).make(std::move(op), std::move(type));
  }

  /// What an index is for the first row.
  ValueId first_position(const Op& index) {
    const ValueId begin = region_.at(index.where).tile_begin(index.axis);
    const AxisId rows = f_[load_.results[0]].type.axes[0];
    return row_ && f_.origin(index.axis) == f_.origin(rows) ? region_.add(begin, row_) : begin;
  }

  /// What has the same value for a position in whichever iteration it is asked for; of a first row,
  /// what one thread can compute ahead: nothing that a loop carries, and no tile.
  [[nodiscard]] bool is_position(const Op& op) const {
    const OpKind kind = kind_of(op.code);
    if (kind != OpKind::source && kind != OpKind::elementwise)
      return first_row_ && op.code == OpCode::load && f_[op.results[0]].type.is_scalar();
    return first_row_ || op.code != OpCode::tile_begin;
  }
  [[noreturn]] void refuse(OpId id) const {
    throw SpecError(
        {fmt::format("load of {} at positions that {} makes", f_[load_.tensor].name,
                     id ? std::string(name_of(f_[id].code)) : "an iteration"),
         fmt::format("{} iterations ahead, when these positions are not known yet",
                     first_row_ ? "the copy engine is asked" : "copies are issued"),
         fmt::format("compute them from index(axis), scalars{} gathers{}",
                     first_row_ ? "," : " and", first_row_ ? " and loads of scalars" : ""),
         load_.where});
  }

  Function& f_;
  const Op& load_;
  Builder region_;
  const bool first_row_;
  const ValueId row_;
  const std::function<bool(ValueId)>& made_inside_;
  std::map<ValueId, ValueId> copies_;
};

}  // namespace

bool is_copied(const Function& f, const Op& op) {
  return op.code == OpCode::load && f[op.results[0]].layout.space == Space::shared;
}

Buffer channel_for(const Function& f, const Op& load, Transport transport, int stages) {
  const TileType& type = f[load.results[0]].type;
  const bool multiplied = any_op(f, f.body, [&](const Op& op) {
    return op.code == OpCode::dot && std::ranges::count(op.operands, load.results[0]) > 0;
  });
  if (type.axes.size() != 2 && multiplied)
    throw SpecError({fmt::format("a product of a vector of {}", f[load.tensor].name),
                     "an operand of a product has two axes", "load a tile with two axes",
                     load.where});
  // Two loops may load the same tensor; each has a channel of its own.
  const std::string& named = f[load.results[0]].name;
  const int columns = f[type.axes.back()].tile;
  const bool vector = type.axes.size() == 1;
  return {.name = unused_buffer_name(f, named.empty() ? f[load.tensor].name : named),
          .dtype = type.dtype,
          .rows = vector ? 1 : f[type.axes[0]].tile,
          .columns = columns,
          .stages = stages,
          .pitch = vector ? columns : 0,
          .transport = transport};
}

void refuse_inner_loop(const Function& f, const Op& loop) {
  throw SpecError({fmt::format("a loop over {} inside another loop", f[loop.axis].name),
                   "products in nested loops cannot be pipelined",
                   "make the outer axis a parallel one", loop.where});
}

void issue_positions(Function& f, Op& issue, const Op& load, bool as_box,
                     const std::function<bool(ValueId)>& made_inside) {
  issue.coordinates = load.coordinates;
  const auto is_made_here = [&](const Coordinate& c) {
    return is_computed(f, c) || (as_box && c.value && made_inside(c.value));
  };
  if (std::ranges::none_of(load.coordinates, is_made_here)) return;
  const AxisId rows = f[load.results[0]].type.axes[0];
  int rows_of_box = 0;
  if (as_box) {
    const TileBoxes boxes = boxes_of_tile(f, load, f[rows].tile, f[issue.buffer].blocks);
    if (!boxes.rows)
      throw SpecError({fmt::format("copy tma of {} at computed positions", f[load.tensor].name),
                       boxes.why_none,
                       fmt::format("positions that are divided by a multiple of {}, as in pages of "
                                   "{} rows, or copy = cp_async, which copies row by row",
                                   box_row_step, 2 * box_row_step),
                       load.where});
    rows_of_box = boxes.rows;
    if (rows_of_box != f[rows].tile) issue.box_rows = rows_of_box;
  }
  issue.body = f.add_block();
  const ValueId row =
      issue.box_rows ? f.add_argument(issue.body, {DType::i32, {}}, "row") : ValueId();
  PositionCopier copier(f, load, issue.body, as_box, row, made_inside);
  Op yield{.code = OpCode::yield};
  for (Coordinate& c : issue.coordinates) {
    if (!is_made_here(c)) continue;
    AxisId along = is_computed(f, c) ? axis_of(f, c) : AxisId();
    const int run = along == rows ? rows_of_box : along ? f[along].tile : 0;
    if (as_box && along && NumberRuns(f, f.origin(along), run).of(c.value)->step == 0) along = {};
    const ValueId position = copier.copy(c.value);
    if (as_box && f[position].name.empty()) f[position].name = "position";
    yield.operands.push_back(position);
    c = {.axis = along, .value = {}, .computed = true};
  }
  Builder(f, issue.body).append(std::move(yield));
}

}  // namespace flashcore
