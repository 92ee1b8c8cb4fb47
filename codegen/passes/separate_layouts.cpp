// With softmax = shared, products and the operations between them have layouts that have no
// registers in common: an accumulator has the layout of its instruction, everything else a layout
// of rows (layout/register_layouts.h). This pass adds a pair of conversions, through a buffer in
// shared memory, wherever a value goes from one side to the other:
//
//   a product's result that anything but an accumulator reads      accumulator -> shared -> rows
//   a computed operand of a product                                rows -> shared
//
// An accumulator that a loop carries from product to product is not converted. A computed third
// operand, as in out * decay + p v, is added behind the product instead, so that its tile is
// converted once and not twice.
#include "codegen/analysis/warp_partition.h"
#include "codegen/instructions/instruction.h"
#include "codegen/layout/register_layouts.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

bool stays_in_sums(const Function& f, ValueId value);

bool can_start_sum(const Function& f, ValueId value) {
  const double* number = constant_of(f, value);
  return number ? *number == 0 : stays_in_sums(f, value);
}

/// A carried value that every iteration hands to a product as its third operand, and nothing else
/// reads.
bool accumulates(const Function& f, const Carried& carried) {
  const Op* next = definition_as(f, carried.next, OpCode::dot);
  return next && next->operands.size() == 3 && can_start_sum(f, carried.start) &&
         all_readers(f, f.body, carried.argument,
                     [](const Op& op, std::size_t k) { return op.code == OpCode::dot && k == 2; });
}

/// Whether a value is a sum of products, from zero on.
bool stays_in_sums(const Function& f, ValueId value) {
  if (definition_as(f, value, OpCode::dot)) return true;
  const std::optional<Carried> carried = carried_as(f, value);
  return carried && accumulates(f, *carried);
}

void split_sum(Function& f, Builder& b, OpId id) {
  if (f[id].operands.size() != 3 || can_start_sum(f, f[id].operands[2])) return;
  const ValueId sum = f[id].results[0], start = f[id].operands[2];
  f[id].operands.pop_back();
  // The sum keeps its name; what the product alone is gets a new value.
  const ValueId product = replace_result(f, id, "product");
  take_place(f, sum, b.add(start, product));
}

/// A computed operand goes to shared memory in front of the product.
void stage_operand(Function& f, Builder& b, OpId id, std::size_t k) {
  const OperandRoot root = operand_root(f, f[id].operands[k]);
  if (definition_as(f, root.value, OpCode::load)) return;
  const int pitch = instruction_of(f[id]).pitch(f[f[root.value].type.axes[1]].tile);
  ValueId shared = move_to_shared(b, root.value, "operand", pitch);
  if (root.transposed) shared = b.transpose(shared);
  f[id].operands[k] = shared;
}

bool takes_sum(const Function& f, const Op& op, BlockId block, std::size_t k) {
  if (op.code == OpCode::dot) return k == 2;
  if (op.code == OpCode::loop) {
    const auto bounds = static_cast<std::size_t>(op.bounds);
    return k >= bounds && accumulates(f, carried_by(f, op)[k - bounds]);
  }
  if (op.code != OpCode::yield || f[block].arguments.empty()) return false;
  const std::optional<Carried> carried = carried_as(f, f[block].arguments[k + 1]);
  return carried && accumulates(f, *carried);
}

/// Everything but products' sums and the loops that carry them reads a conversion.
void convert_for_others(Function& f, Builder& b, ValueId value) {
  std::vector<std::pair<OpId, std::size_t>> readers;
  for (std::size_t block = 0; block < f.blocks.size(); ++block)
    for (OpId id : f.blocks[block].ops) {
      const Op& op = f[id];
      for (std::size_t k = 0; k < op.operands.size(); ++k)
        if (op.operands[k] == value && !takes_sum(f, op, BlockId(block), k))
          readers.emplace_back(id, k);
    }
  if (readers.empty()) return;
  const TileType type = f[value].type;
  const ValueId shared = move_to_shared(b, value, "product", shared_pitch(f[type.axes[1]].tile));
  const ValueId rows =
      named(f, b.make({.code = OpCode::convert, .operands = {shared}}, type), f[value].name);
  for (const auto& [id, k] : readers) f[id].operands[k] = rows;
}

}  // namespace

void separate_layouts(Function& f, const PassContext& context) {
  if (context.schedule.softmax != Softmax::shared) return;
  rewrite_all_blocks(f, [&](Builder& b, OpId id) {
    if (f[id].code != OpCode::dot) return;
    for (std::size_t k : {0, 1}) stage_operand(f, b, id, k);
    b.go_behind(id);
    split_sum(f, b, id);
  });
  rewrite_all_blocks(f, [&](Builder& b, OpId id) {
    b.go_behind(id);
    for (ValueId result : std::vector(f[id].results))
      if (stays_in_sums(f, result)) convert_for_others(f, b, result);
  });
}

}  // namespace flashcore
