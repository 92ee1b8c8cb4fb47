// Asynchronous products are issued where they stand, and the wait for each follows at once. A loop
// that feeds the result of one product, after some computation, to a second product is rotated, so
// that the first product of an iteration and the second product of the previous iteration are in
// flight together while the iteration computes:
//
//   loop { s = dot q, k ; p = f(s) ; acc = dot p, v, acc * d(s) }      becomes
//
//   first iteration {
//          s = dot q, k ; wait ; p, d = f(s) ; acc = acc * d        first half of the first tile
//          loop { issue s' = dot q, k                               first half of this tile
//                 issue acc = dot p, v, acc                         second half of the last one
//                 wait for s' ; p', d' = f(s')
//                 wait for acc ; acc = acc * d' }
//          acc = dot p, v, acc ; wait }                             second half of the last tile
//
// The second product's tile is that of the previous iteration, whose number is carried where its
// wait needs it.
#include <optional>
#include <vector>

#include "codegen/instructions/instruction.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/products_in_flight.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

class Overlap {
 public:
  Overlap(Function& f, const Schedule& schedule) : f_(f), schedule_(schedule) {}

  void run() {
    for (OpId role : roles_of(f_)) {
      block(f_[role].body);
      release_slots(f_, f_[role].body);
      open_and_close_ping_pong(f_[role].body);
    }
    remove_dead_ops(f_);
  }

 private:
  void block(BlockId id) {
    for (OpId op : std::vector(f_[id].ops)) {
      if (f_[op].code == OpCode::tile_loop) block(f_[op].body);
      if (f_[op].code != OpCode::loop) continue;
      const std::optional<ProductCut> cut =
          schedule_.overlap_products ? find_product_cut(f_, f_[op]) : std::nullopt;
      if (cut)
        rotate_loop(f_, schedule_, id, op, *cut);
      else
        block(f_[op].body);
    }
    std::vector<OpId> ops;
    for (OpId op : std::vector(f_[id].ops)) {
      ops.push_back(op);
      if (f_[op].code == OpCode::dot && instruction_of(f_[op]).asynchronous && !f_[op].issued)
        ops.push_back(issue_and_wait(op));
    }
    f_[id].ops = std::move(ops);
  }

  void open_and_close_ping_pong(BlockId region) {
    if (!holds(f_, region, OpCode::ping_pong_wait)) return;
    std::vector<OpId>& ops = f_[region].ops;
    ops.insert(ops.begin(), f_.add_op({.code = OpCode::ping_pong_open}, {}));
    ops.push_back(f_.add_op({.code = OpCode::ping_pong_close}, {}));
  }

  OpId issue_and_wait(OpId dot) {
    f_[dot].issued = true;
    return wait_products(f_, {f_[dot].results[0]}, 0);
  }

  Function& f_;
  const Schedule& schedule_;
};

}  // namespace

OpId wait_products(Function& f, const std::vector<ValueId>& sums, int pending) {
  Op op{.code = OpCode::wait_products};
  op.pending = pending;
  const OpId id(f.ops.size());
  for (ValueId sum : sums) {
    const ValueId waited = f.add_value(f[sum].type, f[sum].name);
    f[waited].layout = f[sum].layout;
    f[waited].definition = id;
    for (Op& reader : f.ops)
      for_each_use(reader, [&](ValueId& v) {
        if (v == sum) v = waited;
      });
    op.operands.push_back(sum);
    op.results.push_back(waited);
  }
  f.ops.push_back(std::move(op));
  return id;
}

void overlap_products(Function& f, const PassContext& context) {
  bool asynchronous = false;
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    asynchronous = asynchronous || (op.code == OpCode::dot && instruction_of(op).asynchronous);
  });
  if (asynchronous) Overlap(f, context.schedule).run();
}

}  // namespace flashcore
