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
#include "codegen/passes/issued_positions.h"

#include <fmt/format.h>

#include "codegen/passes/copy_ops.h"
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

}  // namespace

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
  const OpId last = f.add_op(std::move(yield), {});
  f[issue.body].ops.push_back(last);
}

}  // namespace flashcore
