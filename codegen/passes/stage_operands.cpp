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
#include <algorithm>
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
      if (root.transposed) {
        const auto [block, position] = place_of(use.dot);
        insert_before(f_, block, position, f_[use.dot].where, [&](Builder& b) {
          operand = b.transpose(operand);
          f_[operand].layout.space = Space::shared;
        });
      }
      f_[use.dot].operands[use.operand] = operand;
    }
  }

 private:
  struct Place {
    BlockId block;
    std::size_t position;
  };
  [[nodiscard]] Place place_of(OpId id) const {
    for (std::size_t b = 0; b < f_.blocks.size(); ++b) {
      const auto& ops = f_.blocks[b].ops;
      const auto found = std::find(ops.begin(), ops.end(), id);
      if (found != ops.end()) return {BlockId(b), static_cast<std::size_t>(found - ops.begin())};
    }
    return {};
  }

  /// Behind what makes a value: an op, or the start of the region that has it as an argument.
  [[nodiscard]] Place behind(ValueId value) const {
    if (!f_.definition(value)) return {block_of(f_, value), 0};
    const Place made = place_of(f_[value].definition);
    return {made.block, made.position + 1};
  }

  ValueId in_shared(ValueId value, OpId product) {
    const auto known = shared_.find(value);
    if (known != shared_.end()) return known->second;
    const auto [block, position] = behind(value);
    const int columns = f_[f_[value].type.axes[1]].tile;
    const int pitch = instruction_of(f_[product]).pitch(columns);
    ValueId shared;
    insert_before(f_, block, position, f_[product].where,
                  [&](Builder& b) { shared = move_to_shared(b, f_, value, "operand", pitch); });
    return shared_[value] = shared;
  }

  ValueId cast_again(ValueId value) {
    const auto known = casts_.find(value);
    if (known != casts_.end()) return known->second;
    const auto [block, position] = behind(value);
    const Op made_by = *f_.definition(value);
    ValueId copy;
    insert_before(f_, block, position, made_by.where,
                  [&](Builder& b) { copy = b.cast(made_by.operands[0], f_[value].type.dtype); });
    f_[copy].name = f_[value].name;
    return casts_[value] = copy;
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
