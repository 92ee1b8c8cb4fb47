// Local algebra as a table of rules, each a function from an op to a cheaper value or nothing,
// applied until none applies; then common subexpressions and dead ops are removed.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <optional>
#include <set>
#include <tuple>

#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// What a rule sees: the op, and a builder placed just before it.
struct Site {
  Function& f;
  Builder& b;
  const Op& op;
  const std::vector<int>& uses;

  [[nodiscard]] const Op* operand(std::size_t i) const { return f.definition(op.operands[i]); }
  [[nodiscard]] const double* number(std::size_t i) const { return constant_of(f, op.operands[i]); }
  [[nodiscard]] bool once(std::size_t i) const { return uses[op.operands[i].index] == 1; }
};

using Rule = ValueId (*)(Site&);

/// A value that outlives the op it was made for keeps the author's name.
void inherit_name(Function& f, ValueId to, ValueId from) {
  if (f[to].name.empty() && !f[to].type.is_scalar()) f[to].name = f[from].name;
}

ValueId scalar_like(Site& s, double number) {
  return s.b.constant(number, s.f[s.op.results[0]].type.dtype);
}

// exp and log in base 2, which the hardware computes.
ValueId exp_to_exp2(Site& s) {
  if (s.op.code != OpCode::exp) return {};
  return s.b.elementwise(
      OpCode::exp2, {s.b.mul(s.op.operands[0], s.b.constant(std::numbers::log2e, DType::f32))});
}
ValueId log_to_log2(Site& s) {
  if (s.op.code != OpCode::log) return {};
  return s.b.mul(s.b.elementwise(OpCode::log2, {s.op.operands[0]}),
                 s.b.constant(std::numbers::ln2, DType::f32));
}

ValueId fold_constants(Site& s) {
  if (kind_of(s.op.code) != OpKind::elementwise || s.op.operands.size() != 2) return {};
  const double *a = s.number(0), *b = s.number(1);
  if (!a || !b || !s.f[s.op.results[0]].type.is_scalar()) return {};
  const bool integer = s.f[s.op.results[0]].type.dtype == DType::i32;
  switch (s.op.code) {
    case OpCode::add:
      return scalar_like(s, *a + *b);
    case OpCode::sub:
      return scalar_like(s, *a - *b);
    case OpCode::mul:
      return scalar_like(s, *a * *b);
    case OpCode::div:
      if (integer && *b == 0) return {};
      return scalar_like(s, integer ? std::floor(*a / *b) : *a / *b);
    case OpCode::min:
      return scalar_like(s, std::fmin(*a, *b));
    case OpCode::max:
      return scalar_like(s, std::fmax(*a, *b));
    default:
      return {};
  }
}

// x + 0, x - 0, x * 1, x / 1 (the operand that stays must already have the result's type).
ValueId drop_neutral(Site& s) {
  const bool sum = s.op.code == OpCode::add || s.op.code == OpCode::sub;
  if (!sum && s.op.code != OpCode::mul && s.op.code != OpCode::div) return {};
  const bool commutes = s.op.code == OpCode::add || s.op.code == OpCode::mul;
  for (std::size_t i : {1, 0}) {
    const ValueId other = s.op.operands[1 - i];
    if ((i == 1 || commutes) && is_number(s.f, s.op.operands[i], sum ? 0 : 1) &&
        s.f[other].type == s.f[s.op.results[0]].type)
      return other;
  }
  return {};
}

// x / k is x (1 / k) for a number k: a division is many instructions, and a factor joins others.
ValueId divide_by_number(Site& s) {
  const double* k = s.op.code == OpCode::div ? s.number(1) : nullptr;
  if (!k || *k == 0 || !std::isfinite(*k)) return {};
  const TileType& type = s.f[s.op.results[0]].type;
  if (type.dtype != DType::f32 || type.is_scalar()) return {};
  return s.b.mul(s.op.operands[0], s.b.constant(1 / *k, DType::f32));
}

bool fits_in_f32(double number) {
  const double size = std::abs(number);
  return size == 0 ||
         (size >= std::numeric_limits<float>::min() && size <= std::numeric_limits<float>::max());
}

// (x k) l is x (k l) for scalars k and l, whose product is taken once a block. Two numbers may have
// none that an f32 holds, as a large cap and what makes powers of two of it.
ValueId gather_scalings(Site& s) {
  if (s.f[s.op.results[0]].type.dtype != DType::f32) return {};
  const auto outer = scaled_tile(s.f, &s.op);
  const auto inner = outer ? scaled_tile(s.f, s.f.definition(outer->tile)) : std::nullopt;
  if (!inner || s.uses[outer->tile.index] != 1) return {};
  const double *k = constant_of(s.f, inner->factor), *l = constant_of(s.f, outer->factor);
  if (k && l && !fits_in_f32(*k * *l)) return {};
  return s.b.mul(inner->tile, s.b.mul(inner->factor, outer->factor));
}

// where(c, x k, e) with k > 0 and e infinite is where(c, x, e) k: the mask acts on unscaled scores.
ValueId scale_after_mask(Site& s) {
  if (s.op.code != OpCode::where || !s.once(1)) return {};
  const auto scaled = positively_scaled_tile(s.f, s.operand(1));
  const double* other = s.number(2);
  if (!scaled || !other || !std::isinf(*other)) return {};
  const ValueId masked = s.b.where(s.op.operands[0], scaled->tile, s.op.operands[2]);
  inherit_name(s.f, scaled->tile, s.op.operands[1]);
  inherit_name(s.f, masked, s.op.results[0]);
  return s.b.mul(masked, scaled->factor);
}

// max(x k) with k > 0 is max(x) k: one product a row instead of one an element.
ValueId scale_after_maximum(Site& s) {
  if (s.op.code != OpCode::reduce_max && s.op.code != OpCode::reduce_min) return {};
  const auto scaled = positively_scaled_tile(s.f, s.operand(0));
  if (!scaled) return {};
  inherit_name(s.f, scaled->tile, s.op.operands[0]);
  return s.b.mul(s.b.reduce(s.op.code, scaled->tile, s.op.axis), scaled->factor);
}

// x + dot(a, b) accumulates in the product.
ValueId accumulate_in_dot(Site& s) {
  if (s.op.code != OpCode::add) return {};
  for (std::size_t i : {0, 1}) {
    const Op* dot = s.operand(i);
    if (!dot || dot->code != OpCode::dot || dot->operands.size() != 2 || !s.once(i)) continue;
    const ValueId other = s.op.operands[1 - i], a = dot->operands[0], b = dot->operands[1];
    if (s.f[other].type == s.f[s.op.results[0]].type) return s.b.dot(a, b, other, dot->rounding);
  }
  return {};
}

// a b - c and a b + c round once, in one instruction.
ValueId fuse_multiply_add(Site& s) {
  if (s.op.code != OpCode::add && s.op.code != OpCode::sub) return {};
  if (s.f[s.op.results[0]].type.dtype != DType::f32) return {};
  for (std::size_t i : {0, 1}) {
    if (i == 1 && s.op.code == OpCode::sub) break;
    const Op* product = s.operand(i);
    if (!product || product->code != OpCode::mul) continue;
    if (s.f[s.op.operands[i]].type != s.f[s.op.results[0]].type) continue;
    const ValueId a = product->operands[0], b = product->operands[1];
    ValueId c = s.op.operands[1 - i];
    if (s.op.code == OpCode::sub) c = s.b.neg(c);
    return s.b.elementwise(OpCode::fma, {a, b, c});
  }
  return {};
}

constexpr std::array<Rule, 10> rules{
    exp_to_exp2,     log_to_log2,      fold_constants,      drop_neutral,      divide_by_number,
    gather_scalings, scale_after_mask, scale_after_maximum, accumulate_in_dot, fuse_multiply_add};

/// Applies the first rule that fits somewhere; `uses` counts what was read before that.
bool apply_rules(Function& f, BlockId block, const std::vector<int>& uses) {
  for (std::size_t i = 0; i < f[block].ops.size(); ++i) {
    const OpId id = f[block].ops[i];
    if (f[id].body && apply_rules(f, f[id].body, uses)) return true;
    if (f[id].results.size() != 1) continue;
    for (Rule rule : rules) {
      const Op op = f[id];  // a copy: the builder may move the arena
      Builder b(f, block, i);
      Site site{f, b, op, uses};
      const ValueId replacement = rule(site);
      if (!replacement) continue;
      inherit_name(f, replacement, op.results[0]);
      replace_uses(f, op.results[0], replacement);
      remove_dead_ops(f);
      return true;
    }
  }
  return false;
}

/// A number counts by its bits: NaN is equal to no number, and -0 is not 0.
using Key = std::tuple<OpCode, std::vector<ValueId>, std::uint32_t, std::uint32_t, std::uint32_t,
                       std::uint64_t, std::uint8_t, DType, std::vector<AxisId>>;

/// Equal pure ops of a block and the blocks around it are one. `known` is a copy, so that the
/// regions of two loops share nothing with each other.
void merge_equal_ops(Function& f, BlockId block, std::map<Key, ValueId> known) {
  for (const OpId id : f[block].ops) {
    if (f[id].body) merge_equal_ops(f, f[id].body, known);
    const Op& op = f[id];
    const OpKind kind = kind_of(op.code);
    if (kind != OpKind::source && kind != OpKind::elementwise && kind != OpKind::reduction &&
        op.code != OpCode::transpose)
      continue;
    const TileType& type = f[op.results[0]].type;
    const Key key{op.code,         op.operands,
                  op.axis.index,   op.parameter.index,
                  op.tensor.index, std::bit_cast<std::uint64_t>(op.number),
                  op.wraps,        type.dtype,
                  type.axes};
    const auto [found, fresh] = known.try_emplace(key, op.results[0]);
    if (!fresh) replace_uses(f, op.results[0], found->second);
  }
}

/// Scalars that a loop does not change move in front of it, where bounds can be made of them.
void hoist_scalars(Function& f, BlockId block) {
  rewrite_ops(f, block, [&](Builder& b, OpId loop) {
    const BlockId body = f[loop].body;
    if (!body) return;
    hoist_scalars(f, body);
    std::set<ValueId> inside(f[body].arguments.begin(), f[body].arguments.end());
    for (OpId id : f[body].ops) inside.insert(f[id].results.begin(), f[id].results.end());
    std::vector<OpId> kept;
    for (OpId id : f[body].ops) {
      const Op& op = f[id];
      const OpKind kind = kind_of(op.code);
      const bool moves =
          (kind == OpKind::source || kind == OpKind::elementwise) &&
          f[op.results[0]].type.is_scalar() &&
          !(op.code == OpCode::tile_begin && f.origin(op.axis) == f[loop].axis) &&
          std::ranges::none_of(op.operands, [&](ValueId v) { return inside.contains(v); });
      if (!moves) {
        kept.push_back(id);
        continue;
      }
      inside.erase(op.results[0]);
      b.place(id);
    }
    f[body].ops = std::move(kept);
  });
}

}  // namespace

void simplify(Function& f, const PassContext&) {
  remove_dead_ops(f);
  while (apply_rules(f, f.body, count_uses_without_probes(f))) {
  }
  hoist_scalars(f, f.body);
  merge_equal_ops(f, f.body, {});
  remove_dead_ops(f);
}

}  // namespace flashcore
