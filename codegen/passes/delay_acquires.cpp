// Where a tile lies in pages, the producer computes first where, and waits then for a slot:
//
//   acquire key                                   issue k[by, %head, by cols, d] in key acquiring {
//   issue k[by, %head, by cols, d] in key {         %page = gather table[...]
//     %page = gather table[...]             ->      yield %page, %row
//     yield %page, %row                           }
//   }
//
// A page comes from memory, and who waits for the slot would wait for that as well.
#include "codegen/analysis/visit.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

namespace {

bool looks_up(const Function& f, BlockId region) {
  return any_op(f, region,
                [](const Op& op) { return op.code == OpCode::gather || op.code == OpCode::load; });
}

}  // namespace

void delay_acquires(Function& f, const PassContext& /*context*/) {
  std::vector<BlockId> blocks;
  for_each_op(f, f.body, [&](const Op& op, BlockId block) {
    if (op.code == OpCode::acquire) blocks.push_back(block);
  });
  for (const BlockId block : blocks) {
    std::vector<OpId>& ops = f[block].ops;
    for (std::size_t i = 1; i < ops.size(); ++i) {
      const Op& acquire = f[ops[i - 1]];
      Op& issue = f[ops[i]];
      const bool are_pair = acquire.code == OpCode::acquire && issue.code == OpCode::issue &&
                            issue.buffer == acquire.buffer && !acquire.pending;
      if (!are_pair || !issue.body || !looks_up(f, issue.body)) continue;
      issue.acquires = true;
      ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(i - 1));
    }
  }
}

}  // namespace flashcore
