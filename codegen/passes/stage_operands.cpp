// An operand of a product that is computed, such as a state that a loop carries, is written to
// shared memory in front of the product, where it does not stay in registers
// (analysis/warp_shares.h):
//
//   out = dot(query, cast(state))      becomes      shared = convert cast(state) in state_tile
//                                                   out = dot(query, shared)
//
// A tile that several products read is written once, in the block that makes it. Where several
// tiles are made in front of one product, they are written together, so that one barrier stands
// between all of them and the products.
//
// Where the instruction takes no operand that threads have written, infer_layouts refuses the
// program.
#include <algorithm>
#include <map>

#include "codegen/analysis/warp_shares.h"
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
    struct Staged {
      OpId dot;
      std::size_t operand;
    };
    std::vector<Staged> staged;
    for_each_op(f_, f_.body, [&](const Op& op, BlockId) {
      if (op.code != OpCode::dot) return;
      for (std::size_t k : {0, 1})
        if (goes_through_shared(f_, op, k, schedule_))
          staged.push_back({f_[op.results[0]].definition, k});
    });
    for (const Staged& one : staged) {
      const OperandRoot root = operand_root(f_, f_[one.dot].operands[one.operand]);
      ValueId shared = in_shared(root.value, one.dot);
      if (root.transposed) {
        const auto [block, position] = place_of(one.dot);
        insert_before(f_, block, position, f_[one.dot].where, [&](Builder& b) {
          shared = b.transpose(shared);
          f_[shared].home.space = Space::shared;
        });
      }
      f_[one.dot].operands[one.operand] = shared;
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

  /// The tile in shared memory, for the product `first` and those behind it.
  ValueId in_shared(ValueId value, OpId first) {
    const auto known = shared_.find(value);
    if (known != shared_.end()) return known->second;
    const BlockId home = block_of(f_, value);
    const std::size_t position = front_of(home, value, first);
    const int columns = f_[f_[value].type.axes[1]].tile;
    const int pitch = instruction_of(f_[first]).pitch(columns);
    ValueId shared;
    insert_before(f_, home, position, f_[first].where,
                  [&](Builder& b) { shared = move_to_shared(b, f_, value, "operand", pitch); });
    conversions_.push_back(f_[shared].definition);
    return shared_[value] = shared;
  }

  /// In front of the product, or of the loop that holds it; beside an earlier conversion, if the
  /// value is there by then.
  [[nodiscard]] std::size_t front_of(BlockId home, ValueId value, OpId product) const {
    const auto& ops = f_[home].ops;
    std::size_t made = 0, position = ops.size();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (ops[i] == f_[value].definition) made = i + 1;
      bool holds = ops[i] == product;
      if (f_[ops[i]].body)
        for_each_op(f_, f_[ops[i]].body,
                    [&](const Op& op, BlockId) { holds = holds || &op == &f_[product]; });
      if (holds) position = std::min(position, i);
    }
    const auto is_conversion = [&](OpId id) {
      return std::find(conversions_.begin(), conversions_.end(), id) != conversions_.end();
    };
    const auto behind = ops.begin() + static_cast<std::ptrdiff_t>(made);
    const auto front = ops.begin() + static_cast<std::ptrdiff_t>(position);
    const auto others = std::find_if(behind, front, is_conversion);
    return static_cast<std::size_t>(std::find_if_not(others, front, is_conversion) - ops.begin());
  }

  Function& f_;
  const Schedule& schedule_;
  std::map<ValueId, ValueId> shared_;
  std::vector<OpId> conversions_;
};

}  // namespace

void stage_operands(Function& f, const PassContext& context) {
  OperandStaging(f, context.schedule).run();
  remove_dead_ops(f);  // transposes of what products read now from there
}

}  // namespace flashcore
