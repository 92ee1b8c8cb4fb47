// Asynchronous products run beside the warps that started them. Each is started where it stands and
// lands right behind; in a loop that takes what one product made, computes, and feeds it to
// another, the body is rotated so that one product of the next round and one of the last are in
// flight while a round computes:
//
//   loop { s = dot q, k ; p = f(s) ; acc = dot p, v, acc * d(s) }      becomes
//
//   once { s = dot q, k ; land ; p, d = f(s) ; acc = acc * d         the first round's first half
//          loop { start s' = dot q, k                                of this round
//                 start acc = dot p, v, acc                          of the round before
//                 land s' ; p', d' = f(s')
//                 land acc ; acc = acc * d' }
//          acc = dot p, v, acc ; land }                              the last round's second half
//
// The late product's tile is that of the round before, whose number is handed on where its wait
// asks for it.
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
      open_and_close_turns(f_[role].body);
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
      if (f_[op].code == OpCode::dot && instruction_of(f_[op]).asynchronous && !f_[op].started)
        ops.push_back(start_and_land(op));
    }
    f_[id].ops = std::move(ops);
  }

  void open_and_close_turns(BlockId region) {
    if (!holds(f_, region, OpCode::await_turn)) return;
    std::vector<OpId>& ops = f_[region].ops;
    ops.insert(ops.begin(), f_.add_op({.code = OpCode::open_turns}, {}));
    ops.push_back(f_.add_op({.code = OpCode::close_turns}, {}));
  }

  OpId start_and_land(OpId dot) {
    f_[dot].started = true;
    return land_products(f_, {f_[dot].results[0]}, 0);
  }

  Function& f_;
  const Schedule& schedule_;
};

}  // namespace

OpId land_products(Function& f, const std::vector<ValueId>& sums, int pending) {
  Op op{.code = OpCode::land_products};
  op.pending = pending;
  const OpId id(f.ops.size());
  for (ValueId sum : sums) {
    const ValueId landed = f.add_value(f[sum].type, f[sum].name);
    f[landed].home = f[sum].home;
    f[landed].definition = id;
    for (Op& reader : f.ops)
      for_each_use(reader, [&](ValueId& v) {
        if (v == sum) v = landed;
      });
    op.operands.push_back(sum);
    op.results.push_back(landed);
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
