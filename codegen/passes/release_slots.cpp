// A ring's slot may be filled again once the last product that reads it has landed.
#include <set>

#include "codegen/passes/products_in_flight.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

/// Behind the landing of the last product of a block that reads a slot; behind the loop, if that is inside
/// one.
void release_slots(Function& f, BlockId block) {
  for (std::size_t i = 0; i < f[block].ops.size(); ++i) {
    const Op op = f[f[block].ops[i]];
    if (op.body) release_slots(f, op.body);
    if (op.code != OpCode::await_slot) continue;
    std::size_t last = i;
    std::set<ValueId> reads{op.results[0]};
    for (std::size_t k = i + 1; k < f[block].ops.size(); ++k) {
      const Op& user = f[f[block].ops[k]];
      bool uses = false;
      const auto look = [&](const Op& at, BlockId = {}) {
        for_each_use(at, [&](const ValueId& v) { uses = uses || reads.count(v) > 0; });
      };
      look(user);
      if (user.body) for_each_op(f, user.body, look);
      if (!uses) continue;
      last = k;
      // A view, or a product in flight, reads on under another name.
      if (user.code == OpCode::transpose || user.started) reads.insert(user.results[0]);
      if (user.code == OpCode::land_products)
        for (ValueId landed : user.operands) reads.erase(landed);
    }
    Op release{.code = OpCode::release_slot};
    release.buffer = op.buffer;
    const OpId id = f.add_op(std::move(release), {});
    auto& ops = f[block].ops;
    ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(last) + 1, id);
  }
}

}  // namespace flashcore
