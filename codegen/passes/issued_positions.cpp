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
#include "codegen/passes/issued_positions.h"

#include <algorithm>
#include <map>
#include <string>

#include <fmt/format.h>

#include "codegen/analysis/box_positions.h"
#include "codegen/passes/copy_ops.h"
#include "codegen/passes/rewrite.h"
#include "dsl/error.h"

namespace flashcore {
namespace {

using namespace ir;

class PositionCopier {
 public:
  PositionCopier(Function& f, const Op& load, BlockId region,
                 const std::function<bool(ValueId)>& made_inside)
      : f_(f), load_(load), region_(region), made_inside_(made_inside), copier_(f) {}

  ValueId copy(ValueId value) {
    if (const ValueId copied = copier_.renamed(value); copied != value) return copied;
    if (f_[value].type.is_scalar() && !made_inside_(value)) return value;
    const OpId id = f_[value].definition;
    if (!id || !is_position(f_[id]))
      throw SpecError({fmt::format("load of {} at positions that {} makes", f_[load_.tensor].name,
                                   id ? std::string(name_of(f_[id].code)) : "an iteration"),
                       "copies are issued iterations ahead, when these positions are not known yet",
                       "compute them from index(axis), scalars and gathers", load_.where});
    for (ValueId operand : std::vector(f_[id].operands)) copy(operand);
    const OpId copied = copier_.copy(id);
    f_[region_].ops.push_back(copied);
    const ValueId result = f_[copied].results[0];
    if (!f_[result].type.is_scalar()) f_[result].layout = {};
    return result;
  }

 private:
  /// What has the same value for a position in whichever iteration it is asked for.
  static bool is_position(const Op& op) {
    if (op.code == OpCode::tile_begin) return false;
    return kind_of(op.code) == OpKind::source || kind_of(op.code) == OpKind::elementwise;
  }

  Function& f_;
  const Op& load_;
  BlockId region_;
  const std::function<bool(ValueId)>& made_inside_;
  OpCopier copier_;
};

/// What computes the positions of a tile's first row, for a load in a loop or outside.
class FirstRowCopier {
 public:
  FirstRowCopier(Function& f, const Op& load, BlockId region,
                 const std::function<bool(ValueId)>& made_inside)
      : f_(f), load_(load), region_(region), made_inside_(made_inside) {}

  ValueId copy(ValueId value) {
    if (const auto known = copies_.find(value); known != copies_.end()) return known->second;
    if (f_[value].type.is_scalar() && !made_inside_(value)) return value;
    const OpId id = f_[value].definition;
    if (!id || !is_position(f_[id])) refuse(id);
    Op op = f_[id];
    for_each_use(op, [&](ValueId& used) { used = copy(used); });
    if (op.code == OpCode::index && !f_[value].type.is_scalar()) op.code = OpCode::tile_begin;
    op.results.clear();
    const OpId copied = f_.add_op(std::move(op), {{f_[value].type.dtype, {}}});
    f_[region_].ops.push_back(copied);
    const ValueId result = f_[copied].results[0];
    f_[result].name = f_[value].name;
    f_[result].layout.space = Space::uniform;
    return copies_[value] = result;
  }

 private:
  /// What one thread can compute ahead: nothing that a loop carries, and no tile.
  bool is_position(const Op& op) const {
    return kind_of(op.code) == OpKind::source || kind_of(op.code) == OpKind::elementwise ||
           (op.code == OpCode::load && f_[op.results[0]].type.is_scalar());
  }
  [[noreturn]] void refuse(OpId id) const {
    throw SpecError(
        {fmt::format("load of {} at positions that {} makes", f_[load_.tensor].name,
                     id ? std::string(name_of(f_[id].code)) : "an iteration"),
         "the copy engine is asked iterations ahead, when these positions are not known "
         "yet",
         "compute them from index(axis), scalars, gathers and loads of scalars", load_.where});
  }

  Function& f_;
  const Op& load_;
  BlockId region_;
  const std::function<bool(ValueId)>& made_inside_;
  std::map<ValueId, ValueId> copies_;
};

}  // namespace

void issue_box(Function& f, Op& issue, const Op& load,
               const std::function<bool(ValueId)>& made_inside) {
  issue.coordinates = load.coordinates;
  const auto is_made_here = [&](const Coordinate& c) {
    return is_computed(f, c) || (c.value && made_inside(c.value));
  };
  if (std::ranges::none_of(load.coordinates, is_made_here)) return;
  const AxisId rows = f[load.results[0]].type.axes[0];
  if (const std::string why = why_no_box(f, load, f[rows].tile); !why.empty())
    throw SpecError({fmt::format("copy tma of {} at computed positions", f[load.tensor].name), why,
                     "copy = cp_async, which copies row by row", load.where});
  issue.body = f.add_block();
  FirstRowCopier copier(f, load, issue.body, made_inside);
  Op yield{.code = OpCode::yield};
  for (Coordinate& c : issue.coordinates) {
    if (!is_made_here(c)) continue;
    AxisId along = is_computed(f, c) ? axis_of(f, c) : AxisId();
    if (along && NumberRuns(f, f.origin(along), f[along].tile).of(c.value)->step == 0) along = {};
    const ValueId first = copier.copy(c.value);
    if (f[first].name.empty()) f[first].name = "position";
    yield.operands.push_back(first);
    c = {.axis = along, .value = {}, .computed = true};
  }
  append_op(f, issue.body, std::move(yield));
}

void issue_positions(Function& f, Op& issue, const Op& load,
                     const std::function<bool(ValueId)>& made_inside) {
  issue.coordinates = load.coordinates;
  if (!has_computed_positions(f, load)) return;
  issue.body = f.add_block();
  PositionCopier copier(f, load, issue.body, made_inside);
  Op yield{.code = OpCode::yield};
  for (Coordinate& c : issue.coordinates) {
    if (!is_computed(f, c)) continue;
    yield.operands.push_back(copier.copy(c.value));
    c = {.axis = axis_of(f, c), .value = {}, .computed = true};
  }
  append_op(f, issue.body, std::move(yield));
}

}  // namespace flashcore
