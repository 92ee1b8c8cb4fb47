// A computed operand of a product, such as a state that a loop carries, is written to shared memory
// in front of the product, unless it stays in registers (analysis/warp_partition.h):
//
//   out = dot(query, cast(state))      becomes      shared = convert cast(state) in state_tile
//                                                   out = dot(query, shared)
//
// A tile that several products read is written once, in the block that computes it. Several tiles
// that are computed in front of one product are written together, so that one barrier stands
// between all of them and the products.
//
// If the instruction takes no operand that threads have written, infer_layouts refuses the program.
#include <map>

#include "codegen/analysis/warp_partition.h"
#include "codegen/instructions/instruction.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

class OperandStaging {
 public:
  OperandStaging(Function& f, const Schedule& schedule) : f_(f), schedule_(schedule) {}

  void run() {
    struct Use {
      OpId dot;
      std::size_t operand;
      bool shared;
    };
    std::vector<Use> uses;
    for_each_op(f_, f_.body, [&](const Op& op, BlockId) {
      if (op.code != OpCode::dot) return;
      for (std::size_t k : {0, 1})
        if (goes_through_shared(f_, op, k, schedule_))
          uses.push_back({f_[op.results[0]].definition, k, true});
        else if (k == 0 && is_cast_read_elsewhere(f_, op.operands[0]))
          uses.push_back({f_[op.results[0]].definition, k, false});
    });
    for (const Use& use : uses) {
      const OperandRoot root = operand_root(f_, f_[use.dot].operands[use.operand]);
      ValueId operand = use.shared ? in_shared(root.value, use.dot) : cast_again(root.value);
      if (root.transposed)
        operand = before(f_, block_of(f_, f_[use.dot].results[0]), use.dot).transpose(operand);
      f_[use.dot].operands[use.operand] = operand;
    }
  }

 private:
  /// Behind what makes a value: an op, or the start of the region that has it as an argument.
  [[nodiscard]] Builder behind_value(ValueId value) {
    const BlockId block = block_of(f_, value);
    return f_.definition(value) ? behind(f_, block, f_[value].definition) : Builder(f_, block, 0);
  }

  ValueId in_shared(ValueId value, OpId product) {
    ValueId& known = shared_[value];
    if (known) return known;
    const int pitch = instruction_of(f_[product]).pitch(f_[f_[value].type.axes[1]].tile);
    Builder b = behind_value(value);
    return known = move_to_shared(b, value, "operand", pitch);
  }

  ValueId cast_again(ValueId value) {
    ValueId& known = casts_[value];
    if (known) return known;
    known = behind_value(value).cast(f_.definition(value)->operands[0], f_[value].type.dtype);
    f_[known].name = f_[value].name;
    return known;
  }

  Function& f_;
  const Schedule& schedule_;
  std::map<ValueId, ValueId> shared_, casts_;
};

}  // namespace

void stage_operands(Function& f, const PassContext& context) {
  OperandStaging(f, context.schedule).run();
  remove_dead_ops(f);  // transposes of what products read now from there
}

}  // namespace flashcore
