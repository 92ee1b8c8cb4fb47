// In a block of several tiles the producer comes to the next tile while the consumers still read
// the operand that this one keeps for its whole loop, in its only slot. The slots that a loop's
// first product reads are free before that one is, so the first of their fills comes in front:
//
//   fill q                       becomes     once { fill k }
//   loop { fill k ; fill v }                 fill q
//                                            once { fill v
//                                                   loop over the other tiles { fill k ; fill v } }
#include <vector>

#include "codegen/passes/copy_ops.h"
#include "codegen/passes/first_round.h"
#include "codegen/passes/passes.h"

namespace flashcore {
namespace {

using namespace ir;

bool fills_only_slot(const Function& f, OpId id) {
  return f[id].code == OpCode::fill_slot && f[f[id].buffer].stages == 1;
}

/// A loop's first round: the fills from the `begin`-th to in front of the `end`-th, then `behind`.
class FirstRound {
 public:
  FirstRound(Function& f, const Op& loop) : f_(f), loop_(loop), round_(loop) {
    round_.once = true;
    round_.body = f_.add_block();
    const ValueId like = f_[loop.body].arguments[0];
    const Value value = f_[like];
    tile_ = f_.add_argument(round_.body, value.type, value.name);
    f_[tile_].home = value.home;
    copier_.rename(like, tile_);
  }

  void take(std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const OpId copied = copier_.copy(f_[loop_.body].ops[i]);
      f_[round_.body].ops.push_back(copied);
    }
  }
  void take_other_tiles() {
    Op rest = loop_;
    rest.operands = bounds_behind_first(f_, round_.body, loop_, tile_);
    rest.bounds = static_cast<int>(rest.operands.size());
    append(std::move(rest));
  }
  OpId finish() {
    append(Op{.code = OpCode::yield});
    return f_.add_op(std::move(round_), {});
  }

 private:
  void append(Op op) {
    const OpId id = f_.add_op(std::move(op), {});
    f_[round_.body].ops.push_back(id);
  }

  Function& f_;
  const Op loop_;
  Op round_;
  OpCopier copier_{f_};
  ValueId tile_;
};

void advance_in(Function& f, BlockId producer) {
  const std::vector<OpId> ops = f[producer].ops;
  std::size_t fill = 0;
  while (fill < ops.size() && !fills_only_slot(f, ops[fill])) ++fill;
  std::size_t at = fill;
  while (at < ops.size() && f[ops[at]].code != OpCode::loop) ++at;
  if (at == ops.size()) return;
  const Op loop = f[ops[at]];
  const std::size_t yield = f[loop.body].ops.size() - 1;

  FirstRound front(f, loop), behind(f, loop);
  front.take(0, 1);
  behind.take(1, yield);
  behind.take_other_tiles();
  std::vector<OpId> changed(ops.begin(), ops.begin() + static_cast<std::ptrdiff_t>(fill));
  for (std::size_t i = fill; i < at; ++i)  // the loop's bounds, if they stand behind the fill
    if (f[ops[i]].code != OpCode::fill_slot) changed.push_back(ops[i]);
  changed.push_back(front.finish());
  for (std::size_t i = fill; i < at; ++i)
    if (f[ops[i]].code == OpCode::fill_slot) changed.push_back(ops[i]);
  changed.push_back(behind.finish());
  changed.insert(changed.end(), ops.begin() + static_cast<std::ptrdiff_t>(at) + 1, ops.end());
  f[producer].ops = std::move(changed);
}

}  // namespace

void advance_fills(Function& f, const PassContext& context) {
  if (!context.schedule.has_next_tiles()) return;
  for (OpId id : std::vector(f[f.body].ops))
    if (f[id].code == OpCode::producer) advance_in(f, f[id].body);
}

}  // namespace flashcore
