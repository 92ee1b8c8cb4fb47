// A tanh takes two results of the special function unit, which a softmax needs itself. Where all
// arguments that a warp holds are small, as those of softcapped scores are, a polynomial of fifth
// degree takes its place, and one of ninth degree where they are moderate. The whole chain around
// the tanh (codegen/analysis/tanh_chain.h) stands in every branch: the special function unit works
// on exponentials beside the polynomial then, which a branch that ended before them would keep
// apart.
//
//   %tanh = tanh (mul %s, %factor)        %small = all_within %s, %limit
//   %p = exp2 (fma %tanh, %t, %m)         %p, %sum = if %small {
//   %sum = reduce_sum %p along cols ->      nest { polynomial ; exp2 ; reduce_sum }
//                                         } else {
//                                           nest { tanh ; exp2 ; reduce_sum }
//                                         }
//
// A mask that the tanh alone reads goes into the branches as well, and the test asks what is in
// front of it, so that tiles which a mask cuts are small like all others. Where the
// mask cuts few tiles, their test fails, and they take the branch for any arguments.
#include <algorithm>
#include <functional>
#include <set>
#include <vector>

#include "codegen/analysis/tanh_chain.h"
#include "codegen/analysis/tile_guard.h"
#include "codegen/layout/register_split.h"
#include "codegen/passes/copy_ops.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"
#include "codegen/passes/tanh_by_range.h"

namespace flashcore {
namespace {

using namespace ir;

class TanhExpansion {
 public:
  TanhExpansion(Function& f, const Schedule& schedule) : f_(f), schedule_(schedule), guards_(f) {}

  void run() {
    visit(f_.body, {});
    remove_dead_ops(f_);
  }

 private:
  /// What stands around the ops of a block.
  struct Surroundings {
    bool loop = false;   ///< they are the body of a loop
    int first_side = 0;  ///< the loop's first tile stands apart: above (1) or below (-1) the others
  };

  void visit(BlockId block, Surroundings around) {
    for (OpId id : std::vector(f_[block].ops)) {
      const Op op = f_[id];
      for (const BlockId region : Regions(op)) visit(region, surroundings(block, op));
    }
    for (const TanhChain& chain : tanh_chains(f_, block, guards_)) expand(block, chain, around);
  }

  [[nodiscard]] Surroundings surroundings(BlockId block, const Op& op) const {
    if (op.code != OpCode::loop) return {};
    const bool apart = std::ranges::any_of(f_[block].ops, [&](OpId id) {
      return f_[id].code == OpCode::enter && f_[id].axis == op.axis;
    });
    return {.loop = true, .first_side = apart ? (op.descending ? 1 : -1) : 0};
  }

  /// Whether the mask of a chain cuts a tile or none: in tiles as wide as high one at the start of
  /// the loop's tiles cuts the first iteration's and one more at most.
  [[nodiscard]] bool cuts_few_tiles(const TanhChain& chain, Surroundings around) const {
    const auto full = guards_.range(guards_.of(f_[chain.mask]));
    const auto& axes = f_[chain.value].type.axes;
    return full && around.first_side != 0 && !full->begin != !full->end &&
           (full->end ? 1 : -1) == around.first_side && has_room() &&
           f_[axes[1]].tile >= f_[axes[0]].tile;
  }

  /// Whether a thread has as many registers as beside one other warpgroup; beside two there are
  /// none to spare.
  [[nodiscard]] bool has_room() const {
    constexpr int enough = 200;
    const int given = register_split(schedule_).consumer;
    const int at_start = registers_at_start(schedule_.threads(), schedule_.blocks_per_processor);
    return (given ? given : at_start) >= enough;
  }

  [[nodiscard]] bool has_guarded_mask(BlockId block) const {
    return std::ranges::any_of(f_[block].ops,
                               [&](OpId id) { return static_cast<bool>(guard_of(f_, f_[id])); });
  }

  void expand(BlockId block, TanhChain chain, Surroundings around) {
    // Two copies for small ones, so that tiles no mask cuts have one without: worth it in a loop.
    if (!around.loop) chain.mask = {};
    if (around.loop && !chain.mask) chain.rounding = {};
    const bool few = chain.mask && cuts_few_tiles(chain, around);
    const bool moderate = few || (around.loop && !has_guarded_mask(block) && has_room());
    chain_ = &chain;
    end_ = f_[chain.value].definition;

    const BlockId scalars = f_.add_block(), choices = f_.add_block();
    Builder b(f_, scalars);
    b.at(f_[f_[chain.value].definition].where);
    // Results of the special function unit are waited for together, but not those of all elements:
    // that would want more registers than there are.
    const TanhByRange tanh(b, chain, /*fence=*/has_room() ? 2 : 1);
    const ValueId full = chain.mask ? guards_.of(f_[chain.mask]) : ValueId{};
    ValueId limit = tanh.limit();
    if (few)
      limit =
          as_uniform(f_, b.elementwise(OpCode::where, {full, limit, b.constant(-1, DType::f32)}));
    const ValueId small = within(b, chain.raw, limit);

    b.set_block(choices);
    const auto any = [&](bool hides, ValueId x) {
      return [=, &tanh](Builder& in) { return tanh.build_nest(in, x, Arguments::any, hides); };
    };
    const auto polynomial = [&](Arguments arguments, bool hides, ValueId x) {
      return [=, &tanh](Builder& in) { return tanh.build_nest(in, x, arguments, hides); };
    };
    const auto masked_any = [&](Builder& in) {
      return tanh.build_nest(in, build_mask(in), Arguments::any, true);
    };
    const auto moderate_or = [&](ValueId x, bool hides, const auto& otherwise) {
      return [=, this, &otherwise](Builder& in) {
        constexpr double more = TanhByRange::squares_of_moderate / TanhByRange::squares_of_small;
        const ValueId bound = as_uniform(f_, in.mul(limit, in.constant(more, DType::f32)));
        return choose(in, within(in, chain_->raw, bound), polynomial(Arguments::moderate, hides, x),
                      otherwise);
      };
    };
    Op choice;
    if (few) {
      choice = choose_op(b, small, polynomial(Arguments::small, false, chain.raw),
                         moderate_or(chain.raw, false, masked_any));
    } else if (chain.mask) {
      const auto cut = [&](Builder& in) {
        const ValueId x = build_mask(in);
        return choose(in, small, polynomial(Arguments::small, true, x), any(true, x));
      };
      choice = choose_op(b, as_uniform(f_, b.elementwise(OpCode::logical_and, {small, full})),
                         polynomial(Arguments::small, false, chain.raw), cut);
    } else if (moderate) {
      choice = choose_op(b, small, polynomial(Arguments::small, true, chain.from),
                         moderate_or(chain.from, true, any(true, chain.from)));
    } else {
      choice = choose_op(b, small, polynomial(Arguments::small, true, chain.from),
                         any(true, chain.from));
    }
    place(block, scalars, choices, std::move(choice));
  }

  /// The tests stand where the scores are there, the choice where the chain has stood.
  void place(BlockId block, BlockId scalars, BlockId choices, Op choice) {
    const TanhChain& chain = *chain_;
    const auto made_here = [&](ValueId value) { return value && made_in(f_, block, value); };
    auto& ops = f_[block].ops;
    choice.results = {chain.value};
    if (chain.sum) choice.results.push_back(f_[chain.sum].results[0]);
    if (chain.rounding) {
      if (!chain.rounding->apart) choice.results.pop_back();
      choice.results.push_back(f_[chain.rounding->chosen].results[0]);
    }
    const OpId id(f_.ops.size());
    for (ValueId result : choice.results) f_[result].definition = id;
    const OpId last = end_;
    const OpId first_read = made_here(chain.factor) || made_here(chain.times)
                                ? last
                                : readers_of(f_, block, chain.raw).front();
    f_.ops.push_back(std::move(choice));
    const auto put = [&](BlockId from, OpId before) {
      ops.insert(std::ranges::find(ops, before), f_[from].ops.begin(), f_[from].ops.end());
    };
    f_[choices].ops.push_back(id);
    put(scalars, first_read);
    put(choices, last);
    std::set<OpId> gone(chain.ops.begin(), chain.ops.end());
    if (chain.rounding) gone.insert(chain.rounding->chosen);
    if (chain.mask) {
      gone.insert(chain.mask);
      for (OpId own : ops_of_mask(f_, block, chain.mask)) gone.insert(own);
    }
    std::erase_if(ops, [&](OpId op) { return gone.count(op) > 0; });
  }

  ValueId within(Builder& b, ValueId tile, ValueId limit) {
    return as_uniform(
        f_, make(b, {.code = OpCode::all_within, .operands = {tile, limit}}, {DType::i1, {}}));
  }

  // ---- branches

  using Branch = std::function<std::vector<ValueId>(Builder&)>;

  Op choose_op(Builder& b, ValueId condition, const Branch& holds, const Branch& otherwise) {
    Op op{.code = OpCode::if_, .operands = {condition}};
    const BlockId outer = b.block();
    const auto region = [&](const Branch& branch) {
      const BlockId block = f_.add_block();
      b.set_block(block);
      b.append({.code = OpCode::yield, .operands = branch(b)}, {});
      return block;
    };
    op.body = region(holds);
    op.otherwise = region(otherwise);
    b.set_block(outer);
    return op;
  }

  std::vector<ValueId> choose(Builder& b, ValueId condition, const Branch& holds,
                              const Branch& otherwise) {
    const Op op = choose_op(b, condition, holds, otherwise);
    return append_like(f_, b.block(), op, last_of(f_, op.body).operands);
  }

  /// The mask with all that it alone reads; its guard is still there for guard_masks.
  ValueId build_mask(Builder& b) {
    OpCopier copier(f_);
    for (OpId own : ops_of_mask(f_, block_of_mask(), chain_->mask)) append_copy(b, copier, own);
    return f_[append_copy(b, copier, chain_->mask)].results[0];
  }

  OpId append_copy(Builder& b, OpCopier& copier, OpId op) {
    const OpId copied = copier.copy(op);
    f_[b.block()].ops.push_back(copied);
    return copied;
  }

  [[nodiscard]] BlockId block_of_mask() const {
    BlockId found;
    for_each_op(f_, f_.body, [&](const Op& op, BlockId block) {
      if (&op == &f_[chain_->mask]) found = block;
    });
    return found;
  }

  Function& f_;
  const Schedule& schedule_;
  TileGuards guards_;
  const TanhChain* chain_ = nullptr;  ///< the one at hand
  OpId end_;                          ///< makes that value
};

}  // namespace

void expand_tanh(Function& f, const PassContext& context) {
  TanhExpansion(f, context.schedule).run();
}

}  // namespace flashcore
