// The hyperbolic tangent of a tile. It takes two results of the special function unit, which
// softmax needs itself; where all arguments of a warp are small, as those of softcapped scores are,
// a polynomial takes their place, and one of higher degree where they are moderate. What stands
// around the tanh joins it: a factor in front, the `where` that keeps what a mask has hidden, and a
// product with a scalar and a sum with a row's value behind, so that a small one costs three
// instructions more than no cap at all. So do the exponential of that and the sum of a row: the
// special function unit works beside the polynomial then, which a branch that ended before it would
// keep apart.
#include <algorithm>

#include "codegen/analysis/tile_guard.h"
#include "codegen/layout/register_split.h"
#include "codegen/passes/rewrite.h"
#include "codegen/print/kernel_printer.h"

namespace flashcore {

using namespace ir;

constexpr int chains_of_squares = 8;

/// The op that reads the value, if one of this block is all that does.
const Op* KernelPrinter::only_reader(BlockId block, ValueId value) const {
  if (uses_[value.index] != 1) return nullptr;
  for (OpId id : f_[block].ops)
    for (ValueId operand : f_[id].operands)
      if (operand == value) return f_[id].body ? nullptr : &f_[id];
  return nullptr;
}

/// Finds the tanhs of a block, and what joins each; one that a mask alone needs stands in the
/// mask's loops.
void KernelPrinter::find_tanhs(BlockId block) {
  const auto& ops = f_[block].ops;
  std::map<ValueId, std::size_t> made_at;
  for (std::size_t at = 0; at < ops.size(); ++at)
    for (ValueId result : f_[ops[at]].results) made_at[result] = at;
  const auto stays = [&](const Op* op) {
    return op && !op->results.empty() && !masks_.printed_at.count(made_at.at(op->results[0]));
  };
  for (OpId id : ops) {
    const Op& op = f_[id];
    if (op.code != OpCode::tanh || op.precise || f_[op.results[0]].type.axes.size() < 2 ||
        f_[op.results[0]].layout.space != Space::registers || !stays(&op))
      continue;
    Tanh tanh{.from = op.operands[0], .value = op.results[0]};
    const Op* product = f_.definition(tanh.from);
    if (product && product->code == OpCode::mul && uses_[tanh.from.index] == 1 &&
        defining_block_[tanh.from.index] == block)
      for (std::size_t k : {0, 1}) {
        const ValueId x = product->operands[1 - k];
        if (!f_[product->operands[k]].type.is_scalar() || f_[x].type.is_scalar() || is_source(x))
          continue;
        folded_.insert(tanh.from);
        tanh.factor = product->operands[k];
        tanh.from = x;
        break;
      }
    const auto join = [&](const Op& with) {
      folded_.insert(tanh.value);
      tanh.value = with.results[0];
    };
    if (const Op* where = only_reader(block, tanh.value);
        stays(where) && keeps_hidden(*where, tanh)) {
      folded_.insert(where->operands[0]);
      join(*where);
      tanh.masked = true;
    }
    if (const Op* sum = only_reader(block, tanh.value); stays(sum) && sum->code == OpCode::fma)
      for (std::size_t k : {0, 1})
        if (sum->operands[1 - k] == tanh.value && f_[sum->operands[k]].type.is_scalar() &&
            f_[sum->operands[2]].type.axes.size() == 1 && !is_source(sum->operands[2])) {
          join(*sum);
          tanh.times = sum->operands[k];
          tanh.plus = sum->operands[2];
          break;
        }
    if (const Op* exponential = only_reader(block, tanh.value);
        stays(exponential) && exponential->code == OpCode::exp2) {
      join(*exponential);
      tanh.raised = true;
    }
    for (OpId reader : readers_of(f_, block, tanh.value))
      if (const Op& sum = f_[reader];
          sum.code == OpCode::reduce_sum && sum.axis == f_[tanh.value].type.axes[1]) {
        folded_.insert(sum.results[0]);
        tanh.sum = reader;
        break;
      }
    last_use_[tanh.from.index] = std::max(last_use_[tanh.from.index], made_at.at(tanh.value));
    // Of minus infinity the polynomial makes minus infinity, which is right for what is hidden, and
    // no tanh.
    const Op* mask = f_.definition(tanh.from);
    const bool hides = tanh.masked && (!tanh.factor || is_positive(f_, tanh.factor)) && mask &&
                       mask->code == OpCode::where && is_minus_infinity(f_, mask->operands[2]) &&
                       !is_local_of_mask(block, mask->operands[1]);
    tanh.raw = hides ? mask->operands[1] : tanh.from;
    // Two copies for small ones, so that tiles no mask cuts have one without: worth it where rounds
    // are many.
    const bool only_here = hides && masks_.many_iterations() && masks_.own.count(tanh.from) &&
                           uses_[tanh.from.index] == 2;
    if (only_here && dies_at(tanh.raw, made_at.at(tanh.from)) &&
        shape_of(tanh.raw) == shape_of(tanh.from)) {
      tanh.mask = made_at.at(tanh.from);
      keep_operands_of_mask(block, *tanh.mask, made_at.at(tanh.value));
      // In tiles as wide as high a mask at the start cuts the first iteration's and one more at
      // most.
      const auto& axes = f_[tanh.value].type.axes;
      tanh.few_cut = masks_.at_start && has_room() && f_[axes[1]].tile >= f_[axes[0]].tile;
    }
    if (tanh.sum && (tanh.mask || !masks_.many_iterations())) find_rounding(block, tanh);
    tanhs_.insert_or_assign(tanh.value, tanh);
  }
}

/// where(never, s, reduce_sum r), of the sum s of values and the values r as a product takes them;
/// or where(never, 0, reduce_sum(r - values)). It joins the branches of the tiles that need it: one
/// more branch behind them costs the other tiles a tenth of their time.
void KernelPrinter::find_rounding(BlockId block, Tanh& tanh) {
  const Op& sum = f_[tanh.sum];
  for (OpId id : f_[block].ops) {
    const Op& where = f_[id];
    if (where.results.size() != 1 || !masks_.own.count(where.results[0])) continue;
    const Op* rounded = f_.definition(where.operands[2]);
    if (!rounded || rounded->code != OpCode::reduce_sum || rounded->axis != sum.axis ||
        rounded->scope != ReductionScope::lane)
      continue;
    const auto cast_of = [&](ValueId value) {
      const Op* op = f_.definition(value);
      return op && op->code == OpCode::cast ? op : nullptr;
    };
    const Op* added = f_.definition(rounded->operands[0]);
    const bool apart = added && added->code == OpCode::sub && added->operands[1] == tanh.value;
    const Op* wide = cast_of(apart ? added->operands[0] : rounded->operands[0]);
    const Op* narrow = wide ? cast_of(wide->operands[0]) : nullptr;
    if (!narrow || narrow->operands[0] != tanh.value) continue;
    if (!apart && where.operands[1] != sum.results[0]) continue;
    tanh.rounding = {where.results[0], f_[narrow->results[0]].type.dtype, apart};
    folded_.insert(where.results[0]);
    return;
  }
}

bool KernelPrinter::joins_tanh(ValueId mask) const {
  return std::any_of(tanhs_.begin(), tanhs_.end(), [&](const auto& known) {
    return known.second.mask && known.second.from == mask;
  });
}

/// What a mask reads that is printed later than it stands, but for what it hides a part of, in
/// place.
void KernelPrinter::keep_operands_of_mask(BlockId block, std::size_t mask, std::size_t until) {
  const auto& ops = f_[block].ops;
  std::vector<std::size_t> positions = masks_.own.at(f_[ops[mask]].results[0]);
  std::set<ValueId> own{f_[ops[mask]].operands[1]};
  for (std::size_t at : positions) own.insert(f_[ops[at]].results[0]);
  positions.push_back(mask);
  for (std::size_t at : positions)
    for (ValueId operand : f_[ops[at]].operands)
      if (!own.count(operand)) last_use_[operand.index] = std::max(last_use_[operand.index], until);
}

/// Whether what a mask is about to hide may be printed in the mask's own loops: nothing before them
/// can read it then.
bool KernelPrinter::is_local_of_mask(BlockId block, ValueId value) const {
  const Op* made_by = f_.definition(value);
  return defining_block_[value.index] == block && made_by &&
         kind_of(made_by->code) == OpKind::elementwise;
}

/// where(x != -inf, tanh, -inf), of the x that the tanh is of.
bool KernelPrinter::keeps_hidden(const Op& where, const Tanh& tanh) const {
  if (where.code != OpCode::where || guard_of(f_, where) || where.operands[1] != tanh.value ||
      !is_minus_infinity(f_, where.operands[2]))
    return false;
  const Op* seen = f_.definition(where.operands[0]);
  return seen && seen->code == OpCode::ne && seen->operands[0] == tanh.from &&
         is_minus_infinity(f_, seen->operands[1]) && uses_[where.operands[0].index] == 1;
}

/// Prints the tests whose scores are there, and will be for the next op of the block at the latest:
/// what a mask is about to hide counts as any other score, so that tiles a mask cuts are small like
/// all others.
void KernelPrinter::print_tests_of_tanhs() {
  for (auto& [value, tanh] : tanhs_)
    if (defining_block_[value.index] == block_ && tanh.small.empty() &&
        !storage_[tanh.raw.index].empty() && !is_made_here(tanh.factor) &&
        !is_made_here(tanh.times))
      print_test(tanh, tanh.raw);
}

bool KernelPrinter::is_made_here(ValueId value) const {
  return value && defining_block_[value.index] == block_;
}

/// Whether there are branches to test for. Not in a copy of the loop for tiles that a mask cuts:
/// they are one or two a row, and branches take their time to compile.
bool KernelPrinter::has_branches() const {
  return !masks_.many_iterations() || !masks_.exist || !masks_.test.empty();
}

/// Adds up the squares of a thread's elements, of which one is at most the sum of several:
/// multiply-adds take half the time of comparisons. A sum of all would be too coarse; eight side by
/// side wait for each other less. Where a mask cuts few tiles, those pass for large ones.
void KernelPrinter::print_test(Tanh& tanh, ValueId from) {
  tanh.small = names_.unique("small");
  const bool tests = has_branches();
  out_.comment(fmt::format("{} tanh({} * {})",
                           tests ? "whether polynomials serve for" : "of few tiles,", label(from),
                           factor_of(tanh)));
  out_.line("const fc::small_tanh {} = fc::small_tanh_of(fc::in_place({}){});", tanh.small,
            factor_of(tanh), tanh.times ? ", " + scalar(tanh.times) : "");
  if (!tests) return;
  tanh.squares = names_.unique(label(from) + "_squares");
  out_.line("float {}[{}] = {{{}}};", tanh.squares, chains_of_squares,
            tanh.few_cut ? masks_.test + " ? fc::infinity() : 0.f" : "");
  {
    Writer::Scopes scopes;
    const Cursor cursor = open_loops(shape_of(from), scopes, /*braces=*/true);
    std::string chain = cursor.element;
    for (const std::string& fragment : cursor.fragments) chain += " + " + fragment + " * 4";
    const std::string sum = names_.unique("sum");
    out_.line("float& {} = {}[({}) % {}];", sum, tanh.squares, chain, chains_of_squares);
    out_.line("{0} = fc::fma({1}, {1}, {0});", sum, element(from, cursor));
    names_.release(sum);
  }
  tanh.test = print_verdict(tanh, "small");
}

/// Whether all elements of a thread are what one of the polynomials asks for.
std::string KernelPrinter::print_verdict(const Tanh& tanh, std::string_view what) {
  const std::string all = names_.unique(fmt::format("all_{}", what));
  out_.line("bool {} = true;", all);
  auto loop = out_.unrolled("i", chains_of_squares, false);
  out_.line("{0} = {0} && fc::is_{1}({2}, {3}[i]);", all, what, tanh.small, tanh.squares);
  return all;
}

std::string KernelPrinter::factor_of(const Tanh& tanh) {
  return tanh.factor ? scalar(tanh.factor) : "1.f";
}

void KernelPrinter::print_tanh(Tanh& tanh) {
  if (tanh.mask) storage_[tanh.from.index] = storage_[tanh.raw.index];
  if (tanh.small.empty()) print_test(tanh, tanh.from);
  const std::string factor = factor_of(tanh);
  const std::string times = tanh.times ? scalar(tanh.times) : "1.f";
  const bool in_place = dies_at(tanh.from, position_) &&
                        shape_of(tanh.from) == shape_of(tanh.value) && !is_source(tanh.from);
  std::string text = fmt::format("tanh({} * {})", label(tanh.from), factor);
  if (tanh.masked) text += ", -inf where that is";
  if (tanh.times) text += fmt::format(", times {} plus {}", times, label(tanh.plus));
  if (tanh.raised) text = fmt::format("exp2({})", text);
  out_.comment(fmt::format("{} = {}", label(tanh.value), text));
  if (in_place)
    storage_[tanh.value.index] = storage_[tanh.from.index];
  else
    declare(tanh.value);
  if (tanh.sum) {
    out_.comment(reduction_text(f_[tanh.sum]));
    const std::string sum = declare(f_[tanh.sum].results[0], true);
    if (tanh.rounding) {
      out_.comment(tanh.rounding->apart ? "and what rounding adds where a mask cuts the tile"
                                        : "as rounded where a mask cuts the tile");
      if (tanh.rounding->apart)
        declare(tanh.rounding->sum, true);
      else
        storage_[tanh.rounding->sum.index] = sum;
    }
  }
  if (has_branches()) {
    {
      auto branch =
          out_.block("if (fc::all_lanes({}{}))", tanh.test,
                     tanh.mask && !tanh.few_cut ? fmt::format(" && !({})", masks_.test) : "");
      print_tanh_of_each(tanh, Arguments::small, /*hides=*/!tanh.mask);
    }
    auto branch = out_.block("else");
    print_slow_tanh(tanh);
  } else {
    print_tanh_of_each(tanh, Arguments::any, /*hides=*/true);
  }
  if (tanh.sum) print_lane_combinations(f_[tanh.sum]);
}

/// Whether a thread has as many registers as beside one other warpgroup; beside two there are none
/// to spare.
bool KernelPrinter::has_room() const {
  constexpr int enough = 200;
  const int budget = register_split(schedule_).consumer;
  return (budget ? budget : registers_at_start(source_.threads, source_.min_blocks)) >= enough;
}

/// Of scores that are not small; and of tiles that a mask cuts, which take the same polynomial as
/// others, or, where they are few, none. Then, and where no mask is, there is a second polynomial.
void KernelPrinter::print_slow_tanh(const Tanh& tanh) {
  const bool moderate = tanh.few_cut || (masks_.many_iterations() && !masks_.exist && has_room());
  if (!tanh.mask && !moderate) return print_tanh_of_each(tanh, Arguments::any, /*hides=*/true);
  const std::string test = moderate ? print_verdict(tanh, "moderate") : tanh.test;
  if (tanh.mask && !tanh.few_cut) print_guarded_mask(block_, *tanh.mask);
  {
    auto branch = out_.block("if (fc::all_lanes({}))", test);
    print_tanh_of_each(tanh, moderate ? Arguments::moderate : Arguments::small,
                       /*hides=*/!tanh.few_cut);
  }
  auto branch = out_.block("else");
  if (tanh.few_cut) print_guarded_mask(block_, *tanh.mask);
  print_tanh_of_each(tanh, Arguments::any, /*hides=*/true);
}

/// Results of the special function unit are waited for together, but not those of all elements:
/// that would want more registers than there are. Two fragments at a time; three warpgroups leave
/// room for one.
void KernelPrinter::print_hold_in_nest(const Cursor& cursor) {
  if (cursor.element == "0") return;
  const bool one = !has_room() || cursor.fragments.back() != "j";
  out_.line("if ({} == 0{}) fc::hold_order();", cursor.element, one ? "" : " && j % 2 == 0");
}

/// What stands in a branch: every element of the tile, of which a mask may hide some.
void KernelPrinter::print_tanh_of_each(const Tanh& tanh, Arguments arguments, bool hides) {
  const bool held = arguments == Arguments::any;
  Writer::Scopes scopes;
  const Cursor cursor = open_loops(shape_of(tanh.value), scopes, /*braces=*/held || tanh.sum);
  if (held) print_hold_in_nest(cursor);
  // Polynomials make minus infinity of minus infinity themselves.
  const std::string_view which = arguments == Arguments::small      ? ""
                                 : arguments == Arguments::moderate ? "_moderate"
                                 : tanh.masked                      ? "_visible"
                                                                    : "_any";
  const std::string x = element(tanh.from, cursor),
                    plus = tanh.plus ? element(tanh.plus, cursor) : "";
  const std::string result =
      tanh.times ? fmt::format("fc::evaluate{}_add({}, {}, {})", which, tanh.small, x, plus)
                 : fmt::format("fc::evaluate{}({}, {})", which, tanh.small, x);
  out_.line("{} = {};", element(tanh.value, cursor),
            tanh.raised ? fmt::format("fc::exp2({})", result) : result);
  if (tanh.sum) print_sum_of_tanh(tanh, cursor, hides);
}

void KernelPrinter::print_sum_of_tanh(const Tanh& tanh, const Cursor& cursor, bool hides) {
  const std::string value = element(tanh.value, cursor),
                    sum = element(f_[tanh.sum].results[0], cursor);
  const bool rounds = tanh.rounding && hides;
  const std::string rounded =
      rounds ? fmt::format("fc::round_to<{}>({})", element_type(tanh.rounding->to), value) : "";
  out_.line("{} += {};", sum, rounds && !tanh.rounding->apart ? rounded : value);
  if (rounds && tanh.rounding->apart)
    out_.line("{} += {} - {};", element(tanh.rounding->sum, cursor), rounded, value);
}

}  // namespace flashcore
