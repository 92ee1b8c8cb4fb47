// Lookups whose index is a sum of positions, such as a bias by the distance of two tokens. One test
// of the tile says whether every index lies inside the tensor, and whether negative ones all count
// from its end; the elements are then read without a bounds check of each.
//
//   %b = nest {                               %inside = ... of the least and the greatest index
//     %i = sub %rows, %cols                   %b = if %inside {
//     %x = gather bias[%i]            ->        nest { ... %x = gather bias[%i] inside }
//     yield %x                                } else {
//   }                                           nest { ... %x = gather bias[%i] }
//                                             }
#include <cstdlib>
#include <utility>
#include <vector>

#include "codegen/passes/copy_ops.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"
#include "dsl/ir/affine.h"

namespace flashcore {
namespace {

using namespace ir;

/// An index of a lookup: its least and its greatest value in the tile, and what is added to one
/// that counts from the end.
struct Index {
  ValueId low, high, shift;
};

void leave_out_check(Function& f, BlockId nest, OpId gather, const std::vector<Index>& indices) {
  for (std::size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d].shift) continue;
    const ValueId index = f[gather].operands[d];
    const ValueId shifted = before(f, nest, gather).add(index, indices[d].shift);
    f[shifted].layout = f[index].layout;
    f[gather].operands[d] = shifted;
  }
  f[gather].inside = true;
  f[gather].wraps = 0;
}

/// Whether each index is a scalar or a sum of positions of tiles and scalars, each taken once,
/// and one is more than a position: those cost nothing to look at. In 32 bits, a sum that is out
/// of range then shows by a greatest that is below the least.
bool is_sum_of_positions(const Function& f, const Op& gather) {
  bool sums = false;
  for (ValueId index : gather.operands) {
    if (f[index].type.is_scalar()) continue;
    const auto form = affine_form(f, index);
    if (!form || form->positions.empty() || !form->quotients.empty()) return false;
    for (const auto& [scalar, factor] : form->scalars)
      if (std::abs(factor) != 1) return false;
    for (const auto& [axis, factor] : form->positions)
      if (std::abs(factor) != 1 || f[axis].kind == AxisKind::whole) return false;
    sums = sums || !definition_as(f, index, OpCode::index);
  }
  return sums;
}

Index build_range(Function& f, Builder& b, ValueId index) {
  const auto form = *affine_form(f, index);
  ValueId sum;
  const auto add = [&](ValueId term, std::int64_t factor) {
    if (!sum)
      sum = factor < 0 ? b.neg(term) : term;
    else
      sum = factor < 0 ? b.sub(sum, term) : b.add(sum, term);
  };
  for (const auto& [value, factor] : form.scalars) add(value, factor);
  std::int64_t below = 0, above = 0;
  for (const auto& [axis, factor] : form.positions) {
    add(b.tile_begin(axis), factor);
    (factor < 0 ? below : above) += f[axis].tile - 1;
  }
  const auto plus = [&](std::int64_t number) {
    return number == 0 ? sum : b.add(sum, b.integer(number));
  };
  return {named(f, plus(form.constant - below), "least"),
          named(f, plus(form.constant + above), "greatest"),
          {}};
}

/// Builds what index d has to hold, and adds that to the test.
Index build_test(Function& f, Builder& b, const Op& gather, std::size_t d, ValueId& test) {
  const ValueId index = gather.operands[d];
  const auto holds = [&](OpCode code, ValueId x, ValueId y) {
    test = build_both(b, test, b.elementwise(code, {x, y}));
  };
  const ValueId length = b.dimension(gather.tensor, static_cast<int>(d));
  Index range = f[index].type.is_scalar() ? Index{index, index, {}} : build_range(f, b, index);
  ValueId low = range.low, high = range.high;
  if (gather.wraps >> d & 1) {
    const ValueId negative = b.elementwise(OpCode::lt, {high, b.integer(0)});
    range.shift = named(f, b.where(negative, length, b.integer(0)), "from_end");
    low = b.add(low, range.shift);
    high = b.add(high, range.shift);
  }
  holds(OpCode::ge, low, b.integer(0));
  if (range.low != range.high) holds(OpCode::le, range.low, range.high);
  holds(OpCode::lt, high, length);
  return range;
}

void check_nest(Function& f, Builder& b, OpId nest) {
  std::vector<std::pair<OpId, std::vector<Index>>> lookups;
  ValueId test;
  for (OpId id : f[f[nest].body].ops) {
    const Op op = f[id];
    if (op.code != OpCode::gather || f[op.results[0]].type.axes.size() != 2 ||
        !is_sum_of_positions(f, op))
      continue;
    std::vector<Index>& indices = lookups.emplace_back(id, std::vector<Index>()).second;
    for (std::size_t d = 0; d < op.operands.size(); ++d)
      indices.push_back(build_test(f, b, op, d, test));
  }
  if (lookups.empty()) return;
  const std::vector<ValueId> results = f[nest].results;
  const auto unchecked = [&](Builder& in) {
    OpCopier copier(f);
    const OpId copied = copier.copy(in, nest);
    for (const auto& [gather, indices] : lookups)
      leave_out_check(f, f[copied].body, f[copier.renamed(f[gather].results[0])].definition,
                      indices);
    return f[copied].results;
  };
  const auto checked = [&](Builder& in) { return make_like(in, f[nest], results); };
  const std::vector<ValueId> made = build_if(b, test, unchecked, checked);
  for (std::size_t i = 0; i < results.size(); ++i) take_place(f, results[i], made[i]);
  b.remove(nest);
}

}  // namespace

void check_lookups(Function& f, const PassContext&) {
  rewrite_inside_out(f, f.body, [&](Builder& b, OpId id) {
    if (f[id].code == OpCode::nest) check_nest(f, b, id);
  });
}

}  // namespace flashcore
