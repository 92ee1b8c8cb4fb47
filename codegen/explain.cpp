#include "codegen/explain.h"

#include <cstdlib>
#include <vector>

#include <fmt/format.h>

#include "codegen/analysis/loop_masks.h"
#include "codegen/generate.h"
#include "dsl/expression_writer.h"
#include "dsl/ir/affine.h"
#include "dsl/ir/conjuncts.h"

namespace flashcore {
namespace {

using namespace ir;

std::vector<OpId> loops_of(const Function& f) {
  std::vector<OpId> loops;
  for (std::size_t b = 0; b < f.blocks.size(); ++b)
    for (OpId id : f.blocks[b].ops)
      if (f[id].code == OpCode::loop) loops.push_back(id);
  return loops;
}

/// Conditions on positions as their author would write them: `cols <= rows + length(cols)`.
class ExpressionText final : ExpressionWriter {
 public:
  ExpressionText(const Function& f, const PositionNames& names)
      : ExpressionWriter(f, /*logic_apart=*/false), names_(names) {}

  /// A value as an expression of positions, lengths, parameters and tensors.
  /// "..." stands for what is beyond a few lines.
  std::string of(ValueId value, Tightness least = loosest) {
    written_ = 0;
    return write(value, least);
  }

  /// A linear term that is at least 0 where it holds, solved for the position along `axis`.
  std::string bound(const AffineForm& term, AxisId axis) {
    const std::int64_t factor = term.positions.at(axis);
    // Across the comparison every sign turns where the position counts positively.
    const std::int64_t sign = factor > 0 ? -1 : 1;
    std::string text;
    const auto add = [&](std::int64_t by, const std::string& what) {
      const std::int64_t size = std::abs(by);
      const std::string product = what.empty() ? fmt::format("{}", size)
                                  : size == 1  ? what
                                               : fmt::format("{} * {}", size, what);
      const bool less = by * sign < 0;
      text += text.empty() ? (less ? "-" : "") + product : (less ? " - " : " + ") + product;
    };
    for (const bool positive : {true, false}) {
      const auto counts = [&](std::int64_t by) { return by != 0 && (by * sign > 0) == positive; };
      for (const auto& [other, by] : term.positions)
        if (other != axis && counts(by)) add(by, source(OpCode::index, other));
      for (const auto& [quotient, by] : term.quotients)
        if (counts(by))
          add(by,
              fmt::format("({} // {})", source(OpCode::index, quotient.first), quotient.second));
      for (const auto& [scalar, by] : term.scalars)
        if (counts(by)) add(by, of(scalar, product));
      if (counts(term.constant)) add(term.constant, "");
    }
    if (text.empty()) text = "0";
    const std::string times = std::abs(factor) == 1 ? "" : fmt::format("{} * ", std::abs(factor));
    return fmt::format("{}{} {} {}", times, source(OpCode::index, axis),
                       factor > 0 ? ">=" : "<=", text);
  }

 private:
  Piece piece(ValueId value) override {
    constexpr int most = 200;
    if (++written_ > most) return {"..."};
    const Op* op = f_.definition(value);
    const std::string& name = f_[value].name;
    if (!op) return {name.empty() ? "a carried value" : name};
    switch (op->code) {
      case OpCode::constant:
        return {fmt::format("{}", op->number), op->number < 0 ? prefix : whole};
      case OpCode::parameter:
        return {f_[op->parameter].name};
      case OpCode::extent:
      case OpCode::index:
        return {source(op->code, op->axis)};
      default:
        break;
    }
    if (kind_of(op->code) != OpKind::elementwise)
      return {name.empty() ? std::string(name_of(op->code)) : name};
    const bool widens = op->code == OpCode::cast && is_half(f_[op->operands[0]].type.dtype);
    return widens ? piece(op->operands[0]) : applied(*op);
  }

  std::string source(OpCode code, AxisId axis) const {
    const std::string& name = f_[axis].name;
    const std::string text = code == OpCode::extent ? fmt::format("length({})", name) : name;
    const auto found = names_.find(text);
    return found == names_.end() ? text : found->second;
  }

  const PositionNames& names_;
  int written_ = 0;  ///< operations of the text in the making
};

/// What the masks of a loop of `f` came to; `bounded` is the same loop behind bound_masks.
std::string explain_loop(const Function& f, const Op& loop, const Op& bounded,
                         const Schedule& schedule, ExpressionText words) {
  std::string text;
  const auto line = [&]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
    text += fmt::format(format, std::forward<Args>(args)...) + "\n";
  };
  const Axis& axis = f[loop.axis];
  line("loop over {}: tiles of {}, {}{}", axis.name, axis.tile,
       loop.descending ? "from the last to the first" : "from the first to the last",
       schedule.descending && !loop.descending ? ", whose order may matter" : "");
  const std::vector<LoopMask> masks = loop_masks(f, loop);
  const bool scanned(bounded.buffer);
  bool dropped = false;
  for (const LoopMask& mask : masks) {
    for (const ValueId condition : conjuncts_of(f, f[mask.where].operands[0]))
      if (bounds_loop(f, loop, condition))
        for (const AffineForm& term : affine_condition(f, condition).terms)
          line("  bounded: {}", words.bound(term, loop.axis));
      else
        line("  {}: {}", scanned ? "scanned" : "not analysed", words.of(condition));
    if (!mask.skips)
      line("  empty tiles are visited: they change what the loop carries");
    else if (mask.condition.complete || scanned)
      line("  empty tiles are not visited: they change nothing");
    else if (!mask.condition.terms.empty())
      line("  tiles outside the bounds are not visited, all others are");
    else
      line("  every tile is visited: nothing says ahead which ones are empty");
    dropped = dropped || (mask.droppable && (mask.condition.complete || scanned));
  }
  if (masks.empty())
    line("  no mask: every tile is visited");
  else if (!dropped)
    line("  every tile that is visited is masked");
  else if (scanned || !schedule.peel_masks)
    line("  full tiles run without the mask, after one test a tile");
  else
    line("  full tiles run without the mask, in a loop of their own");
  return text;
}

}  // namespace

std::string explain(const Program& program, const Schedule& schedule, const Target& target,
                    const PositionNames& names) {
  Function before, after;
  PassNotes notes;
  const auto observe = [&](std::string_view pass, const Function& f) {
    if (pass == "mask_tails") before = f;
    if (pass == "bound_masks") after = f;
  };
  (void)generate(program, schedule, target, observe, &notes);
  // Bounding adds regions of scans and no loops.
  const std::vector<OpId> loops = loops_of(before), bounded = loops_of(after);
  std::string text;
  for (std::size_t i = 0; i < loops.size(); ++i)
    text += explain_loop(before, before[loops[i]], after[bounded[i]], schedule, {before, names});
  if (text.empty()) text = "no loops\n";
  for (const std::string& note : notes) text += note + "\n";
  return text;
}

}  // namespace flashcore
