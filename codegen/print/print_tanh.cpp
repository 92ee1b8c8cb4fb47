// The hyperbolic tangent of a tile. It takes two results of the special function unit, which softmax needs itself;
// where all arguments of a warp are small, as those of capped scores are, a polynomial takes their place. What stands
// around the tanh joins it: a factor in front, the `where` that keeps what a mask has hidden, and a product with a
// scalar and a sum with a row's value behind, so that a small one costs three instructions more than no cap at all.
#include <algorithm>
#include <cmath>

#include "codegen/print/kernel_printer.h"

namespace flashcore {

using namespace ir;

/// The op that reads the value, if one of this block is all that does.
const Op* KernelPrinter::only_reader(BlockId block, ValueId value) const {
  if (uses_[value.index] != 1) return nullptr;
  for (OpId id : f_[block].ops)
    for (ValueId operand : f_[id].operands)
      if (operand == value) return f_[id].body ? nullptr : &f_[id];
  return nullptr;
}

/// Finds the tanhs of a block, and what joins each.
void KernelPrinter::find_tanhs(BlockId block) {
  const auto& ops = f_[block].ops;
  std::map<ValueId, std::size_t> made_at;
  for (std::size_t at = 0; at < ops.size(); ++at)
    for (ValueId result : f_[ops[at]].results) made_at[result] = at;
  for (OpId id : ops) {
    const Op& op = f_[id];
    if (op.code != OpCode::tanh || f_[op.results[0]].type.axes.size() < 2 ||
        f_[op.results[0]].home.space != Space::registers)
      continue;
    Tanh tanh{.from = op.operands[0], .value = op.results[0]};
    const Op* product = f_.definition(tanh.from);
    if (product && product->code == OpCode::mul && uses_[tanh.from.index] == 1 && home_block_[tanh.from.index] == block)
      for (std::size_t k : {0, 1}) {
        const ValueId x = product->operands[1 - k];
        if (!f_[product->operands[k]].type.is_scalar() || f_[x].type.is_scalar() || is_source(x)) continue;
        folded_.insert(tanh.from);
        tanh.factor = product->operands[k];
        tanh.from = x;
        break;
      }
    const auto join = [&](const Op& with) {
      folded_.insert(tanh.value);
      tanh.value = with.results[0];
    };
    if (const Op* where = only_reader(block, tanh.value); where && keeps_hidden(*where, tanh)) {
      folded_.insert(where->operands[0]);
      join(*where);
      tanh.masked = true;
    }
    if (const Op* sum = only_reader(block, tanh.value); sum && sum->code == OpCode::fma)
      for (std::size_t k : {0, 1})
        if (sum->operands[1 - k] == tanh.value && f_[sum->operands[k]].type.is_scalar() &&
            f_[sum->operands[2]].type.axes.size() == 1 && !is_source(sum->operands[2])) {
          join(*sum);
          tanh.times = sum->operands[k];
          tanh.plus = sum->operands[2];
          break;
        }
    last_use_[tanh.from.index] = std::max(last_use_[tanh.from.index], made_at.at(tanh.value));
    tanhs_.emplace(tanh.value, tanh);
  }
}

/// where(x > -inf, tanh, -inf), of the x that the tanh is of.
bool KernelPrinter::keeps_hidden(const Op& where, const Tanh& tanh) const {
  const auto minus_inf = [&](ValueId value) {
    const Op* op = f_.definition(value);
    return op && op->code == OpCode::constant && std::isinf(op->number) && op->number < 0;
  };
  if (where.code != OpCode::where || where.masking || where.operands[1] != tanh.value || !minus_inf(where.operands[2]))
    return false;
  const Op* seen = f_.definition(where.operands[0]);
  return seen && seen->code == OpCode::gt && seen->operands[0] == tanh.from && minus_inf(seen->operands[1]) &&
         uses_[where.operands[0].index] == 1;
}

/// The largest magnitude among a thread's elements. The rows' maxima bound those above zero, where they are known;
/// those below are ordered by their bits, and integers are compared three at a time.
std::string KernelPrinter::print_largest(ValueId from) {
  const std::string parts = names_.unique(label(from) + "_parts"), largest = names_.unique(label(from) + "_largest");
  const Op* maximum = nullptr;
  for (std::size_t i = 0; i < position_; ++i) {
    const Op& op = f_[f_[block_].ops[i]];
    if (op.code == OpCode::reduce_max && op.operands[0] == from && f_[op.results[0]].home.space == Space::registers &&
        !storage_[op.results[0].index].empty())
      maximum = &op;
  }
  // Several side by side, since each waits for the one before it.
  constexpr int chains = 8;
  const std::string_view type = maximum ? "fc::u32" : "float";
  out_.line("{} {}[{}] = {{}};", type, parts, chains);
  {
    Writer::Scopes scopes;
    const Cursor cursor = open_loops(shape_of(from), scopes, /*braces=*/true);
    std::string chain = cursor.element;
    for (const std::string& fragment : cursor.fragments) chain += " + " + fragment + " * 4";
    out_.line("{}& part = {}[({}) % {}];", type, parts, chain, chains);
    out_.line("part = fc::max(part, fc::{}({}));", maximum ? "float_bits" : "magnitude", element(from, cursor));
  }
  {
    auto loop = out_.unrolled("i", chains);
    out_.line("{0}[0] = fc::max({0}[0], {0}[i]);", parts);
  }
  out_.line("float {} = {};", largest, maximum ? fmt::format("fc::magnitude(fc::bits_float({}[0]))", parts) : parts + "[0]");
  if (maximum) {
    Writer::Scopes scopes;
    const Cursor cursor = open_loops(shape_of(maximum->results[0]), scopes);
    out_.line("{0} = fc::max({0}, fc::magnitude({1}));", largest, element(maximum->results[0], cursor));
  }
  return largest;
}

void KernelPrinter::print_tanh(const Tanh& tanh) {
  const std::string factor = tanh.factor ? scalar(tanh.factor) : "1.f";
  const std::string times = tanh.times ? scalar(tanh.times) : "1.f";
  const bool in_place =
      dies_at(tanh.from, position_) && shape_of(tanh.from) == shape_of(tanh.value) && !is_source(tanh.from);
  std::string text = fmt::format("tanh({} * {})", label(tanh.from), factor);
  if (tanh.masked) text += ", -inf where that is";
  if (tanh.times) text += fmt::format(", times {} plus {}", times, label(tanh.plus));
  out_.comment(fmt::format("{} = {}", label(tanh.value), text));
  const std::string small = names_.unique("small");
  out_.line("const fc::small_tanh {} = fc::small_tanh_of(fc::in_place({}){});", small, factor,
            tanh.times ? ", " + times : "");
  const std::string largest = print_largest(tanh.from);
  if (in_place)
    storage_[tanh.value.index] = storage_[tanh.from.index];
  else
    declare(tanh.value);
  for (const bool all_small : {true, false}) {
    auto branch = all_small ? out_.block("if (fc::all_lanes(fc::is_small({}, {})))", small, largest) : out_.block("else");
    Writer::Scopes scopes;
    const Cursor cursor = open_loops(shape_of(tanh.value), scopes);
    const std::string x = element(tanh.from, cursor), plus = tanh.plus ? element(tanh.plus, cursor) : "";
    std::string result;
    if (all_small) {
      result = tanh.times ? fmt::format("fc::evaluate_add({}, {}, {})", small, x, plus)
                          : fmt::format("fc::evaluate({}, {})", small, x);
    } else {
      result = fmt::format("fc::tanh({} * {})", x, factor);
      if (tanh.times) result = fmt::format("fc::fma({}, {}, {})", result, times, plus);
      if (tanh.masked) result = fmt::format("{0} > -fc::infinity() ? {1} : -fc::infinity()", x, result);
    }
    out_.line("{} = {};", element(tanh.value, cursor), result);
  }
}

}  // namespace flashcore
