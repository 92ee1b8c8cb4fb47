#include "dsl/ir/verify_stores.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "dsl/ir/verify_op.h"

namespace flashcore::ir {

void StoreRules::define(ValueId value, const Op& by) {
  std::set<AxisId>& from = depends_[value.index];
  if (by.axis && is_parallel(by.axis)) from.insert(by.axis);
  const auto inherit = [&](const ValueId& used) {
    from.insert(depends_[used.index].begin(), depends_[used.index].end());
  };
  for_each_use(by, inherit);
  for (const BlockId region : {by.body, by.otherwise})
    if (region) for_each_use(f_[f_[region].ops.back()], inherit);
}

void StoreRules::place(const Op& segment) {
  std::set<AxisId>& from = segment_depends_[segment.axis];
  for (const ValueId operand : segment.operands)
    from.insert(depends_[operand.index].begin(), depends_[operand.index].end());
}

bool StoreRules::names(const Op& store, AxisId axis) const {
  return std::ranges::any_of(store.coordinates, [&](const Coordinate& c) {
    if (c.axis == axis) return true;
    if (c.value && depends_[c.value.index].contains(axis)) return true;
    // The parts of a ragged axis that different blocks have lie apart.
    const auto part = c.axis ? segment_depends_.find(f_.origin(c.axis)) : segment_depends_.end();
    return part != segment_depends_.end() && part->second.contains(axis);
  });
}

void StoreRules::check(const Op& store) {
  const auto fail = [&](std::string why, std::string fix) {
    refuse_op(f_, store, std::move(why), std::move(fix));
  };
  if (const auto [first, fresh] = stored_.emplace(store.tensor, store.accumulation);
      !fresh && first->second != store.accumulation)
    fail(fmt::format("another store to {} adds otherwise, or not", f_[store.tensor].name),
         "let all stores of a program to one output add to it in the same way");
  const std::vector<AxisId> shared = axes_of_sharing_blocks(store);
  if (store.accumulation == Accumulation::in_order) check_turns(store, shared);
  if (store.accumulation == Accumulation::none && !shared.empty())
    fail(fmt::format("every position of {} writes the same elements", f_[shared[0]].name),
         fmt::format("index {} by {}", f_[store.tensor].name, f_[shared[0]].name));
}

/// The parallel axes along which blocks store the same elements.
std::vector<AxisId> StoreRules::axes_of_sharing_blocks(const Op& store) const {
  std::vector<AxisId> shared;
  for (std::size_t i = 0; i < f_.axes.size(); ++i)
    if (is_parallel(AxisId(i)) && f_.axes[i].extent != Extent(1) && !names(store, AxisId(i)))
      shared.push_back(AxisId(i));
  return shared;
}

/// Blocks that add in order are those of one axis of tiles, and note in an element of their own
/// how far they have come.
void StoreRules::check_turns(const Op& store, const std::vector<AxisId>& shared) {
  const auto fail = [&](std::string why, std::string fix) {
    refuse_op(f_, store, std::move(why), std::move(fix));
  };
  if (shared.size() != 1 || f_[shared[0]].kind != AxisKind::parallel_tiles)
    fail(fmt::format("blocks add in the order of one axis of tiles; to an element of {} add those "
                     "of {}",
                     f_[store.tensor].name, shared.empty() ? "no axis" : list(shared)),
         "index it by all other parallel axes, or add in any order");
  const bool walks = std::ranges::any_of(store.coordinates, [&](const Coordinate& c) {
    return c.axis && f_[c.axis].kind == AxisKind::tiles;
  });
  if (!walks)
    fail(fmt::format("{} is indexed by no axis of a loop", f_[store.tensor].name),
         "blocks pass their turn on tile by tile, in a loop over what they add to");
  std::vector<Extent> wanted;
  for (std::size_t i = 0; i < f_.axes.size(); ++i)
    if (is_parallel(AxisId(i))) wanted.push_back(f_.axes[i].extent);
  if (!store.turns || store.turns.index >= f_.tensors.size())
    fail("it names no tensor of turns", "write it behind \"in order of\"");
  const Tensor& notes = f_[store.turns];
  if (!notes.output || notes.dtype != DType::i32 || notes.dims != wanted) {
    std::string dims;
    for (const Extent& dim : wanted) dims += (dims.empty() ? "" : ", ") + dim.text();
    fail(fmt::format("{} does not hold a turn for each block", notes.name),
         fmt::format("declare it as output {}: i32 [{}]", notes.name, dims));
  }
  if (const auto [first, fresh] = stored_.emplace(store.turns, Accumulation::in_order);
      !fresh && first->second != Accumulation::in_order)
    fail(fmt::format("{} is stored by itself as well", notes.name),
         "let a kernel in front of this one store zeros there");
}

std::string StoreRules::list(const std::vector<AxisId>& axes) const {
  std::string text;
  for (const AxisId axis : axes) text += (text.empty() ? "" : " and ") + f_[axis].name;
  return text;
}

}  // namespace flashcore::ir
