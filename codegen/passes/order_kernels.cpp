// A kernel may start beside the end of the one launched before it on its stream, and the next one beside its own,
// where the target can do that (programmatic dependent launch):
//
//   wait_for_kernels      in front of the first op that touches a tensor, or that a block may leave
//                         at: what earlier kernels write is there, and what they read they have read
//   launch_dependents     right behind it: the next kernel starts while this one's last blocks run
//
// A kernel waits for the one in front of it alone. That it thereby waits for all of them holds by
// induction: every block of every kernel waits before it does anything else, so no kernel ends before
// those in front of it have ended.
#include <algorithm>

#include "codegen/analysis/visit.h"
#include "codegen/passes/passes.h"

namespace flashcore {
namespace {

using namespace ir;

bool touches_tensor(const Op& op) {
  return (op.tensor && op.code != OpCode::dimension) || op.code == OpCode::segment ||
         op.code == OpCode::claim_tile;
}

}  // namespace

void order_kernels(Function& f, const PassContext& context) {
  if (!context.target.dependent_launch) return;
  std::vector<OpId>& ops = f[f.body].ops;
  const auto first =
      std::ranges::find_if(ops, [&](OpId id) { return any_op_of(f, f[id], touches_tensor); });
  const OpId wait = f.add_op({.code = OpCode::wait_for_kernels}, {});
  const OpId launch = f.add_op({.code = OpCode::launch_dependents}, {});
  ops.insert(first, {wait, launch});
}

}  // namespace flashcore
