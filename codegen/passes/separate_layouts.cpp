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

class LayoutSeparator {
 public:
  explicit LayoutSeparator(Function& f) : f_(f) {}

  void run() {
    for (std::size_t block = 0; block < f_.blocks.size(); ++block)
      rewrite_ops(f_, BlockId(block), [&](Builder& b, OpId id) {
        if (f_[id].code != OpCode::dot) return;
        for (std::size_t k : {0, 1}) stage_operand(b, id, k);
        b.go_behind(id);
        split_sum(b, id);
      });
    for (std::size_t block = 0; block < f_.blocks.size(); ++block)
      rewrite_ops(f_, BlockId(block), [&](Builder& b, OpId id) {
        b.go_behind(id);
        for (ValueId result : std::vector(f_[id].results))
          if (stays_in_sums(result)) convert_for_others(b, result);
      });
  }

 private:
  struct Carried {
    OpId loop;
    std::size_t index;
  };
  /// The loop and the place among its carried values that an argument of a region stands for.
  [[nodiscard]] Carried carried_as(ValueId argument) const {
    Carried found{};
    for_each_op(f_, f_.body, [&](const Op& op, BlockId) {
      if (op.code != OpCode::loop) return;
      const auto& arguments = f_[op.body].arguments;
      for (std::size_t i = 1; i < arguments.size(); ++i)
        if (arguments[i] == argument) found = {f_[op.results[i - 1]].definition, i - 1};
    });
    return found;
  }

  /// Whether a value is a sum of products, from zero on.
  [[nodiscard]] bool stays_in_sums(ValueId value) const {
    const Op* op = f_.definition(value);
    if (op && op->code == OpCode::dot) return true;
    if (op && op->code != OpCode::loop) return false;
    if (!op) {
      const Carried carried = carried_as(value);
      return carried.loop && accumulates(f_[carried.loop], carried.index);
    }
    for (std::size_t i = 0; i < op->results.size(); ++i)
      if (op->results[i] == value) return accumulates(*op, i);
    return false;
  }

  [[nodiscard]] bool can_start_sum(ValueId value) const {
    const Op* op = f_.definition(value);
    return op && op->code == OpCode::constant ? op->number == 0 : stays_in_sums(value);
  }

  /// A carried value that every iteration hands to a product as its third operand, and nothing else
  /// reads.
  [[nodiscard]] bool accumulates(const Op& loop, std::size_t i) const {
    const ValueId argument = f_[loop.body].arguments[i + 1];
    const Op* next = f_.definition(last_of(f_, loop.body).operands[i]);
    if (!next || next->code != OpCode::dot || next->operands.size() != 3) return false;
    if (!can_start_sum(initial_of(loop, i))) return false;
    return all_readers(f_, loop.body, argument, [](const Op& op, std::size_t k) {
      return op.code == OpCode::dot && k == 2;
    });
  }

  void split_sum(Builder& b, OpId id) {
    if (f_[id].operands.size() != 3 || can_start_sum(f_[id].operands[2])) return;
    const ValueId sum = f_[id].results[0], start = f_[id].operands[2];
    f_[id].operands.pop_back();
    // The sum keeps its name; what the product alone is gets a new value.
    const ValueId product = replace_result(f_, id, "product");
    take_place(f_, sum, b.add(start, product));
  }

  /// A computed operand goes to shared memory in front of the product.
  void stage_operand(Builder& b, OpId id, std::size_t k) {
    const OperandRoot root = operand_root(f_, f_[id].operands[k]);
    if (definition_as(f_, root.value, OpCode::load)) return;
    const int pitch = instruction_of(f_[id]).pitch(f_[f_[root.value].type.axes[1]].tile);
    ValueId shared = move_to_shared(b, root.value, "operand", pitch);
    if (root.transposed) shared = b.transpose(shared);
    f_[id].operands[k] = shared;
  }

  /// Everything but products' sums and the loops that carry them reads a conversion.
  void convert_for_others(Builder& b, ValueId value) {
    std::vector<std::pair<OpId, std::size_t>> readers;
    for (std::size_t block = 0; block < f_.blocks.size(); ++block)
      for (OpId id : f_.blocks[block].ops) {
        const Op& op = f_[id];
        for (std::size_t k = 0; k < op.operands.size(); ++k)
          if (op.operands[k] == value && !takes_sum(op, BlockId(block), k))
            readers.emplace_back(id, k);
      }
    if (readers.empty()) return;
    const TileType type = f_[value].type;
    const ValueId shared = move_to_shared(b, value, "product", shared_pitch(f_[type.axes[1]].tile));
    const ValueId rows = b.make({.code = OpCode::convert, .operands = {shared}}, type);
    f_[rows].name = f_[value].name;
    for (const auto& [id, k] : readers) f_[id].operands[k] = rows;
  }

  [[nodiscard]] bool takes_sum(const Op& op, BlockId block, std::size_t k) const {
    if (op.code == OpCode::dot) return k == 2;
    if (op.code == OpCode::loop) {
      const auto bounds = static_cast<std::size_t>(op.bounds);
      return k >= bounds && accumulates(op, k - bounds);
    }
    if (op.code != OpCode::yield) return false;
    bool sum = false;
    for_each_op(f_, f_.body, [&](const Op& loop, BlockId) {
      if (loop.body == block) sum = accumulates(loop, k);
    });
    return sum;
  }

  Function& f_;
};

}  // namespace

void separate_layouts(Function& f, const PassContext& context) {
  if (context.schedule.softmax == Softmax::shared) LayoutSeparator(f).run();
}

}  // namespace flashcore
