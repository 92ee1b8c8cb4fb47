// Masks of loops that are not peeled: what only they need stands behind a test of the tile.
#include <algorithm>
#include <ranges>

#include "codegen/analysis/tile_guard.h"
#include "codegen/passes/rewrite.h"
#include "codegen/print/kernel_printer.h"

namespace flashcore {

using namespace ir;

/// Whether a mask cuts the tile; empty for a guard that is no comparison with the tile's number and
/// no question to a scan.
std::string KernelPrinter::cut_test(ValueId guard, ValueId tile) {
  const Op* op = f_.definition(guard);
  if (op && op->code == OpCode::tile_is_full)
    return tile_set_call("tile_is_masked", *op, scalar(tile));
  const auto full = guarded_range(f_, guard, tile);
  if (!full) return {};
  std::string test;
  if (full->begin) test = fmt::format("{} < {}", scalar(tile), scalar(full->begin));
  if (full->end)
    test += fmt::format("{}{} >= {}", full->begin ? " || " : "", scalar(tile), scalar(full->end));
  return test;
}

/// Finds what only the guarded masks of a block need: that is printed behind the guard's test.
/// `first_side` is where the first iteration of a loop lies that stands apart: above (1) or below
/// (-1) the tiles of this block.
void KernelPrinter::find_guarded_masks(BlockId block, int first_side) {
  const auto& ops = f_[block].ops;
  const auto entered =
      std::ranges::find_if(ops, [&](OpId id) { return f_[id].code == OpCode::enter; });
  const bool first = entered != ops.end();
  if (!first && f_[block].arguments.empty()) return;
  const ValueId tile = first ? f_[*entered].operands[0] : f_[block].arguments[0];
  masks_.iterations = first ? GuardedMasks::Iterations::first : GuardedMasks::Iterations::many;
  masks_.exist = std::ranges::any_of(
      ops, [&](OpId id) { return f_[id].code == OpCode::where && guard_of(f_, f_[id]); });
  for (std::size_t at = 0; at < ops.size(); ++at) {
    const Op& mask = f_[ops[at]];
    const ValueId guard = guard_of(f_, mask);
    const std::string test = guard ? cut_test(guard, tile) : "";
    if (test.empty()) continue;
    masks_.test = test;
    if (const auto full = guarded_range(f_, guard, tile))
      masks_.at_start =
          first_side != 0 && !full->begin != !full->end && (full->end ? 1 : -1) == first_side;
    const auto fold = [&](const auto& self, ValueId value) -> void {
      const Op* op = f_.definition(value);
      if (defining_block_[value.index] != block || !folded_.insert(value).second) return;
      if (op->code == OpCode::logical_and)
        for (ValueId operand : op->operands) self(self, operand);
    };
    fold(fold, guard);
    if (const ValueId condition = condition_behind_guard(f_, mask)) {
      folded_.insert(mask.operands[0]);
      behind_guard_[mask.operands[0]] = condition;
    }
    // Backwards from the mask: an op belongs to it if the mask's ops are all that read it.
    std::set<ValueId> own{mask.results[0]};
    std::vector<std::size_t> positions;
    for (std::size_t i = at; i-- > 0;) {
      const Op& op = f_[ops[i]];
      const bool computes =
          kind_of(op.code) == OpKind::elementwise || kind_of(op.code) == OpKind::reduction;
      if (!computes || f_[op.results[0]].layout.space != Space::registers ||
          op.results[0] == mask.operands[1])
        continue;
      bool inside = true, read = false;
      for (OpId reader : ops)
        for (ValueId operand : f_[reader].operands) {
          if (operand != op.results[0]) continue;
          read = true;
          inside = inside && !f_[reader].results.empty() && own.count(f_[reader].results[0]) > 0;
        }
      if (!inside || !read) continue;
      own.insert(op.results[0]);
      if (folded_.count(op.results[0])) continue;
      positions.insert(positions.begin(), i);
      masks_.printed_at[i] = at;
    }
    begin_lookups_early(block, at, positions);
    masks_.own[mask.results[0]] = std::move(positions);
  }
  keep_other_guards(block);
}

/// Guards, and conditions with a guard, that are read by more than the masks behind its test are
/// values like any other. From the last op to the first: readers stand behind what they read.
void KernelPrinter::keep_other_guards(BlockId block) {
  for (OpId id : f_[block].ops | std::views::reverse) {
    const Op& op = f_[id];
    if (op.results.size() != 1 || !folded_.count(op.results[0])) continue;
    const std::vector<OpId> readers = readers_of(f_, block, op.results[0]);
    const bool tested = std::ranges::all_of(readers, [&](OpId reader) {
      const Op& by = f_[reader];
      return by.results.size() == 1 &&
             (folded_.count(by.results[0]) || masks_.own.count(by.results[0]));
    });
    if (tested) continue;
    folded_.erase(op.results[0]);
    behind_guard_.erase(op.results[0]);
  }
}

/// What a mask looks up by row or by column waits for no score: that is taken out of the mask's
/// operations, to be loaded while the product that makes the scores is in flight. Lookups by
/// row and column would take as many registers as scores do, and beside a tanh none are left.
void KernelPrinter::begin_lookups_early(BlockId block, std::size_t mask,
                                        std::vector<std::size_t>& own) {
  const auto& ops = f_[block].ops;
  std::size_t wait = mask;
  while (wait-- > 0 && f_[ops[wait]].code != OpCode::wait_products) {
  }
  const bool caps =
      std::any_of(ops.begin(), ops.end(), [&](OpId id) { return f_[id].code == OpCode::tanh; });
  if (wait >= mask || caps) return;
  std::set<ValueId> made_here;
  for (OpId id : ops) made_here.insert(f_[id].results.begin(), f_[id].results.end());
  // Backwards: a lookup, and what its indices are made of.
  std::set<ValueId> wanted;
  std::vector<std::size_t> early;
  for (std::size_t at : own | std::views::reverse) {
    const Op& op = f_[ops[at]];
    if (f_[op.results[0]].type.axes.size() != 1 ||
        (op.code != OpCode::gather && !wanted.count(op.results[0])))
      continue;
    early.insert(early.begin(), at);
    wanted.insert(op.operands.begin(), op.operands.end());
  }
  std::set<ValueId> ready;
  std::erase_if(early, [&](std::size_t at) {
    const Op& op = f_[ops[at]];
    const bool waits = std::any_of(op.operands.begin(), op.operands.end(), [&](ValueId operand) {
      return made_here.count(operand) && !is_source(operand) && !ready.count(operand);
    });
    if (!waits) ready.insert(op.results[0]);
    return waits;
  });
  for (std::size_t at : early) {
    masks_.printed_at[at] = wait;
    std::erase(own, at);
  }
  if (early.empty()) return;
  auto& all = masks_.early[wait];
  all.insert(all.end(), early.begin(), early.end());
}

/// In front of where products complete.
void KernelPrinter::print_early_lookups() {
  const auto found = masks_.early.find(position_);
  if (found == masks_.early.end()) return;
  const std::string masked = names_.unique("masked");
  out_.line("const bool {} = {};", masked, masks_.test);
  masks_.test = masked;
  for (std::size_t at : found->second) declare(f_[f_[block_].ops[at]].results[0]);
  auto guard = out_.block("if ({})", masked);
  for (std::size_t at : found->second) emit_group(block_, {at}, /*end=*/0, false);
}

/// A mask in place: on a tile that no mask cuts the array keeps what it held.
void KernelPrinter::print_guarded_mask(BlockId block, std::size_t position) {
  const Op& mask = f_[f_[block].ops[position]];
  const ValueId value = mask.results[0], from = mask.operands[1];
  if (dies_at(from, position) && shape_of(from) == shape_of(value)) {
    storage_[value.index] = storage_[from.index];
  } else {
    declare(value);
    Writer::Scopes scopes;
    const Cursor cursor = open_loops(shape_of(value), scopes);
    out_.line("{} = {};", element(value, cursor), element(from, cursor));
  }
  auto guard = out_.block("if ({})", masks_.test);
  print_mask_of_tile(block, position);
}

/// The mask and what it is made of.
void KernelPrinter::print_mask_of_tile(BlockId block, std::size_t position) {
  const auto& ops = f_[block].ops;
  std::vector<std::size_t> run;
  for (std::size_t at : masks_.own.at(f_[ops[position]].results[0])) {
    if (kind_of(f_[ops[at]].code) != OpKind::reduction) {
      run.push_back(at);
      continue;
    }
    print_reduction_of_run(block, run, at);
    run.clear();
  }
  run.push_back(position);
  print_run(block, run);
}

/// A reduction of what a run makes for it alone, element by element, so that no tile of that has to
/// be held.
void KernelPrinter::print_reduction_of_run(BlockId block, const std::vector<std::size_t>& run,
                                           std::size_t position) {
  const auto& ops = f_[block].ops;
  const Op& op = f_[ops[position]];
  const Shape shape = shape_of(op.operands[0]);
  std::vector<std::size_t> group;
  std::set<ValueId> locals;
  for (std::size_t at : run) {
    const ValueId value = f_[ops[at]].results[0];
    if (!(shape_of(value) == shape)) {
      emit_group(block, {at}, at + 1, false);
      continue;
    }
    group.push_back(at);
    locals.insert(value);
  }
  const std::string partials = start_reduction(op);
  {
    Writer::Scopes scopes;
    const Cursor cursor = open_loops(shape, scopes, /*braces=*/true);
    print_elements(block, group, locals, cursor);
    print_element_of_reduction(op, partials, cursor);
  }
  finish_reduction(op, partials);
}

}  // namespace flashcore
