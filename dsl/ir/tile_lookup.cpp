#include "dsl/ir/tile_lookup.h"

#include <algorithm>
#include <vector>

#include "dsl/ir/affine.h"

namespace flashcore {

using namespace ir;

namespace {

/// The axis along which an index goes up by one from element to element, if it does.
AxisId followed_axis(const Function& f, ValueId index) {
  const auto form = affine_form(f, index);
  if (!form || form->positions.size() != 1 || !form->quotients.empty()) return {};
  const auto& [axis, factor] = *form->positions.begin();
  return factor == 1 && f[axis].kind != AxisKind::whole ? axis : AxisId();
}

/// Whether the first of the columns along an axis, whose own position is a multiple of the tile, lies at a
/// multiple of 16 bytes.
bool begins_at_chunk(const Function& f, ValueId columns, DType dtype) {
  const auto is_aligned = [&](std::int64_t elements) {
    return elements * size_of(dtype) % 16 == 0;
  };
  const AffineForm form = *affine_form(f, columns);
  return is_aligned(form.constant) && std::ranges::all_of(form.scalars, [&](const auto& term) {
           return is_aligned(term.second);
         });
}

}  // namespace

bool looks_up_tile(const Function& f, const Op& op) {
  if (op.code != OpCode::gather || op.wraps || f[op.operands.back()].type.is_scalar()) return false;
  const Tensor& tensor = f[op.tensor];
  if (!tensor.aligned_rows || (!is_half(tensor.dtype) && tensor.dtype != DType::i1)) return false;
  std::vector<AxisId> followed;
  for (const ValueId index : op.operands)
    if (!f[index].type.is_scalar()) followed.push_back(followed_axis(f, index));
  return followed.size() == 2 && followed == f[op.results[0]].type.axes &&
         begins_at_chunk(f, op.operands.back(), tensor.dtype);
}

}  // namespace flashcore
