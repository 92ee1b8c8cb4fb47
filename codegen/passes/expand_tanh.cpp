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
// front of it, so that tiles which a mask cuts are small like all others. Where it cuts few tiles,
// those pass for large ones.
#include <algorithm>
#include <functional>
#include <set>
#include <vector>

#include "codegen/analysis/mask_ops.h"
#include "codegen/analysis/tanh_chain.h"
#include "codegen/layout/register_split.h"
#include "codegen/passes/copy_ops.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// x -> tanh(k x) l, as scalars of a block. For k x from -0.3 to 0.3 the polynomial of fifth degree
/// with the least error there is within 1.2e-6 of the true value times itself; for k x from -0.8 to
/// 0.8 that of ninth degree is, whose coefficients are in proportion to the first of the other.
struct Coefficients {
  ValueId square, first, third, fifth;
  ValueId limit;               ///< of the squares of those that are small
  ValueId exponent, twice, l;  ///< for any x: l - 2 l / (exp2(exponent x) + 1), twice = -2 l
};
constexpr double squares_of_small = 0.09, squares_of_moderate = 0.64;

enum class Arguments : std::uint8_t { small, moderate, any };

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
      for (const BlockId region : {op.body, op.otherwise})
        if (region) visit(region, surroundings(block, op));
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
    const int partial = register_split(schedule_).consumer;
    return (partial ? partial
                    : registers_at_start(schedule_.threads(), schedule_.blocks_per_processor)) >=
           enough;
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
    like_ = f_[chain.value];

    const BlockId scalars = f_.add_block(), choices = f_.add_block();
    Builder b(f_, scalars);
    b.at(f_[f_[chain.value].definition].where);
    coefficients_ = build_coefficients(b);
    const ValueId full = chain.mask ? guards_.of(f_[chain.mask]) : ValueId{};
    ValueId limit = coefficients_.limit;
    if (few)
      limit = scalar(b.elementwise(OpCode::where, {full, limit, b.constant(-1, DType::f32)}));
    const ValueId small = within(b, chain.raw, limit);

    b.set_block(choices);
    const auto any = [&](bool hides, ValueId x) {
      return [=, this](Builder& in) { return build_nest(in, x, Arguments::any, hides); };
    };
    const auto polynomial = [&](Arguments arguments, bool hides, ValueId x) {
      return [=, this](Builder& in) { return build_nest(in, x, arguments, hides); };
    };
    const auto masked_any = [&](Builder& in) {
      return build_nest(in, build_mask(in), Arguments::any, true);
    };
    const auto moderate_or = [&](ValueId x, bool hides, const auto& otherwise) {
      return [=, this, &otherwise](Builder& in) {
        constexpr double more = squares_of_moderate / squares_of_small;
        const ValueId bound = scalar(in.mul(limit, in.constant(more, DType::f32)));
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
      choice = choose_op(b, scalar(b.elementwise(OpCode::logical_and, {small, full})),
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
    const auto made_here = [&](ValueId value) {
      return value && std::ranges::count(f_[block].ops, f_[value].definition) > 0;
    };
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

  // ---- scalars

  ValueId scalar(ValueId value) {
    f_[value].layout.space = Space::uniform;
    return value;
  }

  /// Made anew in every iteration: a loop would keep them all in registers.
  Coefficients build_coefficients(Builder& b) {
    const auto number = [&](double x) { return b.constant(x, DType::f32); };
    const auto mul = [&](ValueId x, ValueId y) { return scalar(b.mul(x, y)); };
    const ValueId l = chain_->times ? chain_->times : number(1);
    const ValueId factor = chain_->factor ? chain_->factor : number(1);
    const ValueId k =
        scalar(f_[b.append({.code = OpCode::in_place, .operands = {factor}}, {{DType::f32, {}}})]
                   .results[0]);
    Coefficients c{.l = l};
    c.square = mul(k, k);
    const ValueId cube = mul(c.square, k);
    const auto scaled = [&](ValueId x) { return chain_->times ? mul(x, l) : x; };
    c.first = scaled(mul(number(0.99999887), k));
    c.third = scaled(mul(number(-0.33310075), cube));
    c.fifth = scaled(mul(number(0.12634595), mul(cube, c.square)));
    c.limit = mul(number(squares_of_small), scalar(b.elementwise(OpCode::reciprocal, {c.square})));
    c.exponent = mul(number(2.885390082), k);
    const std::pair<ValueId, const char*> names[] = {
        {c.square, "square"}, {c.first, "first"}, {c.third, "third"},       {c.fifth, "fifth"},
        {c.limit, "limit"},   {cube, "cube"},     {c.exponent, "exponent"}, {k, "factor"}};
    for (const auto& [value, name] : names) f_[value].name = name;
    c.twice = chain_->times ? mul(number(-2), l) : number(-2);
    return c;
  }

  ValueId within(Builder& b, ValueId tile, ValueId limit) {
    return scalar(
        f_[b.append({.code = OpCode::all_within, .operands = {tile, limit}}, {{DType::i1, {}}})]
            .results[0]);
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
    Op op = choose_op(b, condition, holds, otherwise);
    const std::vector<ValueId> like = f_[f_[op.body].ops.back()].operands;
    return append_like(b, std::move(op), like);
  }

  /// Appends an op whose results are like values that there are.
  std::vector<ValueId> append_like(Builder& b, Op op, const std::vector<ValueId>& like) {
    std::vector<TileType> types;
    for (ValueId value : like) types.push_back(f_[value].type);
    const std::vector<ValueId> results = f_[b.append(std::move(op), types)].results;
    for (std::size_t i = 0; i < like.size(); ++i) {
      f_[results[i]].layout = f_[like[i]].layout;
      f_[results[i]].name = f_[like[i]].name;
    }
    return results;
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

  // ---- elements

  /// A nest with the chain on `x`. What a mask may hide counts as a product takes it.
  std::vector<ValueId> build_nest(Builder& outer, ValueId x, Arguments arguments, bool hides) {
    Op nest{.code = OpCode::nest};
    // Results of the special function unit are waited for together, but not those of all elements:
    // that would want more registers than there are.
    if (arguments == Arguments::any) nest.fence = has_room() ? 2 : 1;
    nest.body = f_.add_block();
    Builder b(f_, nest.body);
    b.at(f_[f_[chain_->value].definition].where);
    ValueId value = build_tanh(b, x, arguments);
    if (chain_->raised) value = element(b, OpCode::exp2, {value});
    std::vector<ValueId> made{value};
    if (chain_->sum) build_sums(b, made, hides);
    b.append({.code = OpCode::yield, .operands = made}, {});
    f_[value].name = like_.name;
    return append_like(outer, std::move(nest), made);
  }

  void build_sums(Builder& b, std::vector<ValueId>& made, bool hides) {
    const ValueId value = made[0];
    const auto& rounding = chain_->rounding;
    const auto rounded = [&] {
      const ValueId narrow = like_element(b.cast(value, rounding->to));
      return like_element(b.cast(narrow, DType::f32));
    };
    made.push_back(reduce(b, rounding && !rounding->apart && hides ? rounded() : value));
    if (!rounding || !rounding->apart) return;
    const ValueId added = hides ? element(b, OpCode::sub, {rounded(), value})
                                : like_element(b.constant(0, DType::f32, like_.type.axes));
    made.push_back(reduce(b, added));
  }

  ValueId reduce(Builder& b, ValueId value) {
    Op sum = f_[chain_->sum];
    const Value like = f_[sum.results[0]];
    sum.operands = {value};
    sum.results.clear();
    const ValueId result = f_[b.append(std::move(sum), {like.type})].results[0];
    f_[result].layout = like.layout;
    f_[result].name = like.name;
    return result;
  }

  ValueId like_element(ValueId value) {
    f_[value].layout = like_.layout;
    return value;
  }
  ValueId element(Builder& b, OpCode code, std::vector<ValueId> operands) {
    return like_element(b.elementwise(code, std::move(operands)));
  }

  ValueId build_tanh(Builder& b, ValueId x, Arguments arguments) {
    const Coefficients& c = coefficients_;
    const auto number = [&](double value) { return b.constant(value, DType::f32); };
    const auto fma = [&](ValueId p, ValueId q, ValueId r) {
      return element(b, OpCode::fma, {p, q, r});
    };
    const auto mul = [&](ValueId p, ValueId q) { return element(b, OpCode::mul, {p, q}); };
    if (arguments == Arguments::any) return build_any(b, x);
    const auto finish = [&](ValueId p, ValueId q) {
      return chain_->plus ? fma(p, q, chain_->plus) : mul(p, q);
    };
    if (arguments == Arguments::small) {
      const ValueId square = mul(x, x);
      return finish(x, fma(fma(c.fifth, square, c.third), square, c.first));
    }
    const ValueId square = mul(mul(x, x), c.square);
    const ValueId high =
        fma(fma(number(0.0121001490), square, number(-0.0491801933)), square, number(0.132305769));
    return finish(mul(x, c.first),
                  fma(fma(high, square, number(-0.333254096)), square, number(1.00000012)));
  }

  /// By the special function unit. Minus infinity stays that: the least positive number times any
  /// other x is too small to show.
  ValueId build_any(Builder& b, ValueId x) {
    const Coefficients& c = coefficients_;
    const auto number = [&](double value) { return b.constant(value, DType::f32); };
    const ValueId power = element(b, OpCode::exp2, {element(b, OpCode::mul, {x, c.exponent})});
    const ValueId inverse =
        element(b, OpCode::reciprocal, {element(b, OpCode::add, {power, number(1)})});
    ValueId high = c.l;
    if (chain_->plus) {
      high = b.add(chain_->plus, c.l);
      f_[high].layout = f_[chain_->plus].layout;
    }
    if (chain_->masked)
      high = element(b, OpCode::fma,
                     {element(b, OpCode::min, {x, number(0)}), number(1.401298464e-45), high});
    return element(b, OpCode::fma, {c.twice, inverse, high});
  }

  Function& f_;
  const Schedule& schedule_;
  TileGuards guards_;
  const TanhChain* chain_ = nullptr;  ///< the one at hand, with what its value is like
  Value like_;
  OpId end_;  ///< makes that value
  Coefficients coefficients_;
};

}  // namespace

void expand_tanh(Function& f, const PassContext& context) {
  TanhExpansion(f, context.schedule).run();
}

}  // namespace flashcore
