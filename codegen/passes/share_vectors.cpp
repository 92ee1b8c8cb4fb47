// A vector along the columns of a product, such as the log-sum-exps of query rows beside transposed
// scores, lies in a warp as the columns do: every lane holds a quarter of it, and eight lanes hold
// the same. To load it so takes an instruction an element, and registers from the load, which should
// be early, to the product that it waits for. So in a loop with products a warp shares the load:
//
//   %lse = load lse[rows] @ rows(8f 2s 4l*2)        becomes
//
//   %lse_shared_out = load lse[rows] @ rows(2f 32l)
//   ...
//   %lse = convert %lse_shared_out @ rows(8f 2s 4l*2)      in front of the first op that reads it
//
// where the conversion is a shuffle an element: each lane gets it from the one that has loaded it. Computed
// positions lie where the elements do, so those of a shared load are computed for it alone.
#include <algorithm>
#include <map>
#include <vector>

#include "codegen/analysis/visit.h"
#include "codegen/layout/register_layouts.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// Whether a warp holds all of a vector, and its lanes would hold fewer elements each if they shared
/// them out, so that every fragment lies in one of theirs.
bool is_repeated(const Value& vector, const AxisLayout& shared_out) {
  const AxisLayout& layout = vector.layout.axes[0];
  return layout.warps == 1 && layout.lanes < shared_out.lanes && layout.lane_divisor == 1 &&
         layout.slot_stride == 1 && shared_out.lanes % layout.fragment_size() == 0;
}

/// Whether a position is computed element by element, from what every lane knows.
bool is_elementwise(const Function& f, ValueId position) {
  if (f[position].type.is_scalar() || is_source(f, position)) return true;
  const Op* op = f.definition(position);
  return op && kind_of(op->code) == OpKind::elementwise &&
         std::ranges::all_of(op->operands, [&](ValueId v) { return is_elementwise(f, v); });
}

/// The position in the lanes that share a load; `copies` are those of the block.
ValueId share_position(Builder& b, ValueId position, const AxisLayout& shared_out,
                       std::map<ValueId, ValueId>& copies) {
  Function& f = b.function();
  if (f[position].type.is_scalar() || is_source(f, position)) return position;
  if (const auto known = copies.find(position); known != copies.end()) return known->second;
  Op op = *f.definition(position);
  for (ValueId& operand : op.operands) operand = share_position(b, operand, shared_out, copies);
  op.results.clear();
  const ValueId copy = named(f, b.make(std::move(op), f[position].type), f[position].name);
  f[copy].layout = {Space::registers, {shared_out}};
  return copies[position] = copy;
}

void share_loads(Function& f, BlockId block) {
  std::map<ValueId, ValueId> copies;
  const bool multiplies = std::ranges::any_of(f[block].ops, has_code(f, OpCode::dot));
  for (OpId id : std::vector(f[block].ops)) {
    if (f[id].code == OpCode::loop) share_loads(f, f[id].body);
    if (block == f.body || !multiplies || f[id].code != OpCode::load) continue;
    const ValueId vector = f[id].results[0];
    const Layout& layout = f[vector].layout;
    if (f[vector].type.dtype != DType::f32 || layout.space != Space::registers ||
        layout.axes.size() != 1)
      continue;
    const AxisLayout shared_out = plain_vector(layout.axes[0].length(), 1);
    if (!is_repeated(f[vector], shared_out)) continue;
    const std::vector<OpId> readers = readers_of(f, block, vector);
    const auto is_shareable = [&](const Coordinate& c) {
      return !is_computed(f, c) || is_elementwise(f, c.value);
    };
    if (readers.empty() || !std::ranges::all_of(f[id].coordinates, is_shareable)) continue;
    Builder in_front = before(f, block, id);
    for (std::size_t d = 0; d < f[id].coordinates.size(); ++d)
      if (const Coordinate c = f[id].coordinates[d]; is_computed(f, c))
        f[id].coordinates[d].value = share_position(in_front, c.value, shared_out, copies);
    const ValueId share = replace_result(f, id, f[vector].name);
    f[share].layout = {Space::registers, {shared_out}};
    Builder b = before(f, block, readers.front());
    take_place(f, vector, b.make({.code = OpCode::convert, .operands = {share}}, f[share].type));
  }
}

}  // namespace

void share_vectors(Function& f, const PassContext&) {
  share_loads(f, f.body);
  remove_dead_ops(f);
}

}  // namespace flashcore
