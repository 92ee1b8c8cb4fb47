#include "codegen/passes/rewrite.h"

#include <algorithm>
#include <iterator>
#include <ranges>

#include <fmt/format.h>

#include "codegen/analysis/tile_guard.h"

namespace flashcore {
namespace {

using namespace ir;

bool has_effect(const Function& f, const Op& op) {
  switch (kind_of(op.code)) {
    case OpKind::sync:
      return true;
    case OpKind::memory:
      return op.code != OpCode::load && op.code != OpCode::read_slot && op.code != OpCode::beside &&
             op.code != OpCode::tile_is_full;
    case OpKind::control:
      if (op.code == OpCode::yield || op.code == OpCode::scan_tiles) return true;
      return any_op_of(f, op, [&](const Op& inner) {
        // What stands in a region of control is looked at by itself.
        const bool holds_others = kind_of(inner.code) == OpKind::control && inner.body;
        return inner.code != OpCode::yield && !holds_others && has_effect(f, inner);
      });
    default:
      return false;
  }
}

/// Regions of an op that is removed stay in the function, where passes that go through all blocks find them.
void clear_regions(Function& f, const Op& op) {
  for (const BlockId region : Regions(op)) {
    for (const OpId id : f[region].ops) clear_regions(f, f[id]);
    f[region].ops.clear();
  }
}

bool sweep(Function& f, BlockId block, const std::vector<int>& uses) {
  bool changed = false;
  std::erase_if(f[block].ops, [&](OpId id) {
    bool used = has_effect(f, f[id]);
    for (ValueId result : f[id].results) used = used || uses[result.index] > 0;
    if (used) return false;
    clear_regions(f, f[id]);
    changed = true;
    return true;
  });
  for (OpId id : f[block].ops)
    for (const BlockId region : Regions(f[id])) changed = sweep(f, region, uses) || changed;
  return changed;
}

}  // namespace

std::vector<int> count_uses(const Function& f) {
  std::vector<int> uses(f.values.size(), 0);
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    for_each_use(op, [&](const ValueId& v) { ++uses[v.index]; });
  });
  return uses;
}

ProbeOps::ProbeOps(const Function& f) {
  if (!std::ranges::any_of(f.tensors, [](const Tensor& t) { return t.unwritten.has_value(); }))
    return;
  observes_.resize(f.ops.size());
  std::vector<int> unobserved = count_uses(f);
  // Ops stand after what they read, so that from the last to the first every reader is known.
  std::vector<const Op*> ops;
  for_each_op(f, f.body, [&](const Op& op, BlockId) { ops.push_back(&op); });
  const std::vector<int> uses = unobserved;
  for (const Op* op : ops | std::views::reverse) {
    const OpKind kind = kind_of(op->code);
    bool only = op->code == OpCode::store && f[op->tensor].unwritten;
    if (kind == OpKind::source || kind == OpKind::elementwise)
      only = uses[op->results[0].index] > 0 && unobserved[op->results[0].index] == 0;
    if (!only) continue;
    observes_[static_cast<std::size_t>(op - f.ops.data())] = true;
    for_each_use(*op, [&](const ValueId& v) { --unobserved[v.index]; });
  }
}

std::vector<int> count_uses_without_probes(const Function& f) {
  std::vector<int> uses = count_uses(f);
  const ProbeOps probes(f);
  for (std::size_t i = 0; i < f.ops.size(); ++i)
    if (probes.has(OpId(i))) for_each_use(f.ops[i], [&](const ValueId& v) { --uses[v.index]; });
  return uses;
}

bool reaches_f32_output(const Function& f, ValueId value) {
  const ProbeOps probes(f);
  std::vector<bool> reached(f.values.size());
  reached[value.index] = true;
  bool shows = false;
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    if (probes.has(OpId(static_cast<std::size_t>(&op - f.ops.data())))) return;
    if (!any_use(op, [&](ValueId v) { return reached[v.index]; })) return;
    for (ValueId result : op.results) reached[result.index] = true;
    shows = shows || (op.code == OpCode::store && f[op.tensor].dtype == DType::f32);
  });
  return shows;
}

std::optional<CarriedSum> carried_sum(const Function& f, ValueId next, ValueId carried) {
  const auto factor_in = [&](const Op& product) {
    const std::vector<ValueId>& factors = product.operands;
    return factors[0] == carried ? factors[1] : factors[1] == carried ? factors[0] : ValueId{};
  };
  const auto scaled = [&](ValueId value, ValueId added) -> std::optional<CarriedSum> {
    if (value == carried) return CarriedSum{{}, added, {}};
    const Op* product = definition_as(f, value, OpCode::mul);
    const ValueId factor = product ? factor_in(*product) : ValueId{};
    return factor ? std::optional(CarriedSum{factor, added, value}) : std::nullopt;
  };
  const Op* op = f.definition(next);
  if (op && op->code == OpCode::fma && factor_in(*op))
    return CarriedSum{factor_in(*op), op->operands[2], {}};
  if (op && op->code == OpCode::add) {
    const auto sum = scaled(op->operands[0], op->operands[1]);
    return sum ? sum : scaled(op->operands[1], op->operands[0]);
  }
  const bool product = op && op->code == OpCode::dot && op->operands.size() == 3;
  return product ? scaled(op->operands[2], {}) : std::nullopt;
}

std::optional<SumOfOperand> sum_of_operand(const Function& f, const Op& loop, std::size_t i,
                                           const std::vector<int>& uses) {
  const Carried carried = carried_by(f, loop)[i];
  const std::optional<CarriedSum> sum = carried_sum(f, carried.next, carried.argument);
  const auto read_once = [&](ValueId value) { return uses[value.index] == 1; };
  if (!is_number(f, carried.start, 0) || !sum || !sum->added || sum->scaled ||
      !read_once(carried.argument) || !read_once(sum->added))
    return std::nullopt;
  ValueId total = sum->added;
  for (const Op* op = f.definition(total); op && guard_of(f, *op); op = f.definition(total))
    total = op->operands[1];
  const Op* reduction = definition_as(f, total, OpCode::reduce_sum);
  if (!reduction || !read_once(total)) return std::nullopt;
  for (OpId id : f[loop.body].ops) {
    if (f[id].code != OpCode::dot) continue;
    const ValueId left = f[id].operands[0], terms = reduction->operands[0];
    const Op* cast = definition_as(f, left, OpCode::cast);
    if (cast && cast->operands[0] == terms && is_half(f[left].type.dtype) &&
        f[left].type.axes[1] == reduction->axis)
      return SumOfOperand{sum->factor, total, terms, left, id};
  }
  return std::nullopt;
}

std::vector<OpId> readers_of(const Function& f, BlockId block, ValueId value) {
  std::vector<OpId> found;
  std::ranges::copy_if(f[block].ops, std::back_inserter(found), [&](OpId id) {
    return any_op_of(f, f[id], [&](const Op& op) { return reads(op, value); });
  });
  return found;
}

bool is_divided(const Function& f, const Op& role) {
  return std::ranges::any_of(f[role.body].ops, has_code(f, OpCode::role));
}

std::vector<OpId> roles_of(const Function& f) {
  std::vector<OpId> roles;
  for_each_op(f, f.body, [&](const Op& op, BlockId block) {
    if (op.code != OpCode::role || is_divided(f, op)) return;
    const auto& ops = f[block].ops;
    roles.push_back(*std::ranges::find_if(ops, [&](OpId id) { return &f[id] == &op; }));
  });
  return roles;
}

BlockId work_of(const Function& f, const Op& role) {
  const BlockId body = role.body;
  BlockId work = body;
  for (OpId id : f[body].ops) {
    const Op& op = f[id];
    const Op* condition = op.code == OpCode::if_ ? f.definition(op.operands[0]) : nullptr;
    if (condition && condition->code == OpCode::first_thread)
      work = op.body;
    else if (kind_of(op.code) != OpKind::source && kind_of(op.code) != OpKind::sync)
      return body;
  }
  return work;
}

bool works_in_one_thread(const Function& f, const Op& role) {
  return work_of(f, role) != role.body;
}

void replace_use(Op& op, ValueId from, ValueId to) {
  for_each_use(op, [&](ValueId& v) {
    if (v == from) v = to;
  });
}

void replace_uses(Function& f, ValueId from, ValueId to) {
  for_each_op(f, f.body, [&](Op& op, BlockId) { replace_use(op, from, to); });
}

void replace_uses_behind(const Builder& b, ValueId from, ValueId to,
                         const std::function<bool(OpId)>& concerns) {
  Function& f = b.function();
  const auto replace = [&](const auto& self, OpId id) -> void {
    if (!concerns || concerns(id)) replace_use(f[id], from, to);
    for (const BlockId region : Regions(f[id]))
      for (OpId inner : f[region].ops) self(self, inner);
  };
  for (std::size_t i = b.position(); i < f[b.block()].ops.size(); ++i)
    replace(replace, f[b.block()].ops[i]);
}

ValueId replace_result(Function& f, OpId op, std::string name) {
  const ValueId added = add_value_like(f, f[op].results[0]);
  f[added].name = std::move(name);
  f[added].definition = op;
  f[op].results[0] = added;
  return added;
}

void take_place(Function& f, ValueId value, ValueId of) {
  const OpId made_by = f[of].definition;
  f[value].definition = made_by;
  std::ranges::replace(f[made_by].results, of, value);
}

Builder before(Function& f, BlockId block, OpId op) {
  return {f, block, position_of(f, block, op)};
}

Builder behind(Function& f, BlockId block, OpId op) {
  Builder b = before(f, block, op);
  b.go_behind(op);
  return b;
}

ValueId last_position(Builder& b, AxisId axis) {
  const ValueId end = b.add(b.tile_begin(axis), b.integer(b.function()[axis].tile)),
                one = b.integer(1);
  return b.sub(b.function()[axis].end_aligned ? end : b.min(end, b.extent(axis)), one);
}

ValueId build_both(Builder& b, ValueId x, ValueId y) {
  const Function& f = b.function();
  if (!x || !y) return x ? x : y;
  if (is_number(f, x, 0) || is_number(f, y, 1) || x == y) return x;
  if (is_number(f, x, 1) || is_number(f, y, 0)) return y;
  return b.elementwise(OpCode::logical_and, {x, y});
}

Region region_of(std::vector<OpId> ops, std::vector<ValueId> yielded) {
  return [ops = std::move(ops), yielded = std::move(yielded)](Builder& b) {
    for (OpId id : ops) b.place(id);
    return yielded;
  };
}

BlockId build_region(const Builder& b, const Region& region) {
  Builder inside = b;
  inside.set_block(b.function().add_block());
  inside.append({.code = OpCode::yield, .operands = region(inside)});
  return inside.block();
}

std::vector<ValueId> build_if(Builder& b, ValueId condition, const Region& holds,
                              const Region& otherwise, const std::vector<ValueId>& like) {
  Function& f = b.function();
  Op op{.code = OpCode::if_, .operands = {condition}, .body = build_region(b, holds)};
  if (otherwise) op.otherwise = build_region(b, otherwise);
  const std::vector<ValueId> yielded = last_of(f, op.body).operands;
  return make_like(b, std::move(op), like.empty() ? yielded : like);
}

void remove_dead_ops(Function& f) {
  while (sweep(f, f.body, count_uses(f))) {
  }
}

ValueId add_value_like(Function& f, ValueId value) {
  const ValueId added(f.values.size());
  f.values.push_back(Value(f[value]));
  f[added].definition = {};
  return added;
}

OpId add_op_like(Function& f, Op op, const std::vector<ValueId>& like) {
  const OpId id(f.ops.size());
  op.results.clear();
  for (ValueId value : like) {
    op.results.push_back(add_value_like(f, value));
    f[op.results.back()].definition = id;
  }
  f.ops.push_back(std::move(op));
  return id;
}

std::vector<ValueId> make_like(Builder& b, Op op, const std::vector<ValueId>& like) {
  const OpId id = add_op_like(b.function(), std::move(op), like);
  b.place(id);
  return b.function()[id].results;
}

ValueId add_carried(Function& f, OpId loop, ValueId initial, std::string name) {
  const ValueId argument = named(f, add_value_like(f, initial), name);
  const ValueId result = named(f, add_value_like(f, initial), std::move(name));
  f[loop].operands.push_back(initial);
  f[f[loop].body].arguments.push_back(argument);
  f[result].definition = loop;
  f[loop].results.push_back(result);
  return argument;
}

void drop_carried(Function& f, OpId loop, std::size_t i) {
  Op& op = f[loop];
  const auto at = static_cast<std::ptrdiff_t>(i);
  const auto erase = [](auto& list, std::ptrdiff_t position) {
    list.erase(list.begin() + position);
  };
  erase(last_of(f, op.body).operands, at);
  erase(op.operands, op.bounds + at);
  erase(op.results, at);
  erase(f[op.body].arguments, at + 1);
}

ValueId convert_to(Builder& b, ValueId value, BufferId buffer, std::string name, Op convert) {
  convert.operands = {value};
  convert.buffer = buffer;
  const ValueId shared = b.make(std::move(convert), b.function()[value].type);
  b.function()[shared].layout.space = Space::shared;
  b.function()[shared].name = std::move(name);
  return shared;
}

ValueId move_to_shared(Builder& b, ValueId value, const char* otherwise, int pitch) {
  Function& f = b.function();
  const TileType type = f[value].type;
  const std::string name = f[value].name.empty() ? otherwise : f[value].name;
  const BufferId buffer = f.add_buffer({unused_buffer_name(f, name + "_tile"), type.dtype,
                                        f[type.axes[0]].tile, f[type.axes[1]].tile, 1, pitch});
  return convert_to(b, value, buffer, name + "_shared");
}

std::string unused_buffer_name(const Function& f, const std::string& wanted) {
  std::string name = wanted;
  const auto taken = [&](const Buffer& buffer) { return buffer.name == name; };
  for (int n = 2; std::any_of(f.buffers.begin(), f.buffers.end(), taken); ++n)
    name = fmt::format("{}_{}", wanted, n);
  return name;
}

std::optional<Scaled> scaled_tile(const Function& f, const Op* op) {
  if (!op || op->code != OpCode::mul) return std::nullopt;
  for (const std::size_t k : {0, 1})
    if (f[op->operands[k]].type.is_scalar() && !f[op->operands[1 - k]].type.is_scalar())
      return Scaled{op->operands[1 - k], op->operands[k]};
  return std::nullopt;
}

std::optional<Scaled> positively_scaled_tile(const Function& f, const Op* op) {
  const std::optional<Scaled> scaled = scaled_tile(f, op);
  return scaled && is_positive(f, scaled->factor) ? scaled : std::nullopt;
}

bool is_positive(const Function& f, ValueId value) {
  const Op* op = f.definition(value);
  if (!op) return false;
  switch (op->code) {
    case OpCode::constant:
      return op->number > 0;
    case OpCode::parameter:
      return f[op->parameter].positive;
    case OpCode::mul:
      return is_positive(f, op->operands[0]) && is_positive(f, op->operands[1]);
    default:
      return false;
  }
}

bool is_positive_scalar(const Function& f, ValueId value) {
  return (f[value].type.is_scalar() || constant_of(f, value)) && is_positive(f, value);
}

}  // namespace flashcore
