#include "codegen/analysis/loop_masks.h"

#include <algorithm>
#include <numeric>

#include "codegen/analysis/neutral.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// Whether a linear condition says something about the loop's axis, and is known outside the loop: its
/// scalars are not made inside, and its other positions are those of the block. Those of an alias
/// move along with the loop.
bool bounds_loop(const Function& f, const Op& loop, const AffineForm& form) {
  if (!form.positions.count(loop.axis)) return false;
  const std::vector<bool> inside = made_inside(f, loop.body);
  for (const auto& [scalar, factor] : form.scalars)
    if (inside[scalar.index]) return false;
  for (const auto& [axis, factor] : form.positions)
    if (axis != loop.axis && f[axis].kind != AxisKind::parallel_tiles) return false;
  return std::ranges::all_of(form.quotients, [&](const auto& term) {
    return f[term.first.first].kind == AxisKind::parallel_tiles;
  });
}

/// Smaller coefficients, and the constant rounded down: positions are integers.
AffineForm reduced(AffineForm form) {
  std::int64_t common = 0;
  for_each_kind(form, [&](const auto& terms) {
    for (const auto& [atom, factor] : terms) common = std::gcd(common, factor);
  });
  if (common < 2) return form;
  for_each_kind(form, [&](auto& terms) {
    for (auto& [atom, factor] : terms) factor /= common;
  });
  form.constant = form.constant / common - (form.constant % common < 0 ? 1 : 0);
  return form;
}

}  // namespace

bool bounds_loop(const Function& f, const Op& loop, ValueId condition) {
  const AffineCondition linear = affine_condition(f, condition);
  return linear.complete && std::ranges::all_of(linear.terms, [&](const AffineForm& term) {
           return bounds_loop(f, loop, term);
         });
}

std::vector<LoopMask> loop_masks(const Function& f, const Op& loop) {
  const ProbeOps probes(f);
  std::vector<LoopMask> masks;
  for (OpId id : f[loop.body].ops) {
    const Op& op = f[id];
    if (op.code != OpCode::where || !f[op.results[0]].type.has(loop.axis)) continue;
    if (probes.has(id)) continue;
    LoopMask mask{id, affine_condition(f, op.operands[0])};
    std::erase_if(mask.condition.terms, [&](const AffineForm& form) {
      // A term that is the same for all tiles of the loop bounds nothing, and is no less in force.
      const bool drop = !bounds_loop(f, loop, form);
      mask.condition.complete = mask.condition.complete && !drop;
      return drop;
    });
    mask.skips = may_skip(f, loop, op);
    // Only a value of the mask's own shape can stand in for it.
    mask.droppable = f[op.operands[1]].type == f[op.results[0]].type;
    masks.push_back(std::move(mask));
  }
  return masks;
}

std::vector<AffineForm> without_rows(const Function& f, const std::vector<AffineForm>& terms) {
  std::vector<AffineForm> implied;
  for (const AffineForm& low : terms)
    for (const auto& [axis, up] : low.positions) {
      if (f[axis].kind != AxisKind::parallel_tiles || up < 0) continue;
      for (const AffineForm& high : terms) {
        const auto down = high.positions.find(axis);
        if (down != high.positions.end() && down->second < 0)
          implied.push_back(reduced(low * -down->second + high * up));
      }
    }
  return implied;
}

}  // namespace flashcore
