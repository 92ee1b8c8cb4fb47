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
#include <utility>
#include <vector>

#include "codegen/analysis/tanh_chain.h"
#include "codegen/analysis/tile_guard.h"
#include "codegen/layout/register_split.h"
#include "codegen/passes/copy_ops.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// What is known of those of a tanh.
enum class Arguments : std::uint8_t { small, moderate, any };

/// Builds tanh(k x) l and what a chain makes of it. For k x from -0.3 to 0.3 the polynomial of
/// fifth degree with the least error there is within 1.2e-6 of the true value times itself; for k x from
/// -0.8 to 0.8 that of ninth degree is, whose coefficients are in proportion to the first of the
/// other; for any other the special function unit serves.
class TanhByRange {
 public:
  /// Builds the coefficients, scalars, where the builder stands: anew in every iteration, since a
  /// loop would keep them all in registers. A nest for any arguments has `fence` (dsl/ir/op.h).
  TanhByRange(Builder& b, const TanhChain& chain, int fence)
      : f_(b.function()), chain_(chain), fence_(fence), like_(f_[chain.value]) {
    l_ = chain_.times ? chain_.times : number(b, 1);
    const ValueId factor = chain_.factor ? chain_.factor : number(b, 1);
    const ValueId k = named(
        f_, b.make({.code = OpCode::in_place, .operands = {factor}}, {DType::f32, {}}), "factor");
    square_ = named(f_, b.mul(k, k), "square");
    const ValueId cube = named(f_, b.mul(square_, k), "cube");
    const auto scaled = [&](ValueId x, const char* name) {
      return named(f_, chain_.times ? b.mul(x, l_) : x, name);
    };
    first_ = scaled(b.mul(number(b, 0.99999887), k), "first");
    third_ = scaled(b.mul(number(b, -0.33310075), cube), "third");
    fifth_ = scaled(b.mul(number(b, 0.12634595), b.mul(cube, square_)), "fifth");
    limit_ = b.mul(number(b, squares_of_small), b.elementwise(OpCode::reciprocal, {square_}));
    f_[limit_].name = "limit";
    exponent_ = named(f_, b.mul(number(b, 2.885390082), k), "exponent");
    twice_ = chain_.times ? b.mul(number(b, -2), l_) : number(b, -2);
  }

  /// The largest square of a small argument, and how many times that one of a moderate one is.
  [[nodiscard]] ValueId limit() const { return limit_; }
  static constexpr double squares_of_small = 0.09, squares_of_moderate = 0.64;

  /// Appends a nest with the chain on `x`; where a mask may have hidden scores of the tile
  /// (`hides`), the sum adds up the weights rounded to the 16-bit type in which the second product reads them.
  /// Returns the chain's values: the elements, their sum, what rounding adds to it.
  std::vector<ValueId> build_nest(Builder& outer, ValueId x, Arguments arguments,
                                  bool hides) const {
    Op nest{.code = OpCode::nest, .where = f_[f_[chain_.value].definition].where};
    if (arguments == Arguments::any) nest.fence = fence_;
    nest.body = f_.add_block();
    Builder b(f_, nest.body);
    b.at(nest.where);
    ValueId value = build_tanh(b, x, arguments);
    if (chain_.raised) value = b.elementwise(OpCode::exp2, {value});
    f_[value].name = like_.name;
    std::vector<ValueId> made{value};
    if (chain_.sum) build_sums(b, made, hides);
    for (OpId id : f_[nest.body].ops)
      for (ValueId element : f_[id].results)
        if (f_[element].type.axes == like_.type.axes) f_[element].layout = like_.layout;
    b.append({.code = OpCode::yield, .operands = made});
    return make_like(outer, std::move(nest), made);
  }

 private:
  void build_sums(Builder& b, std::vector<ValueId>& made, bool hides) const {
    const ValueId value = made[0];
    const bool rounds = chain_.rounding && hides, apart = chain_.rounding && chain_.rounding->apart;
    const auto reduce = [&](ValueId elements) {
      Op sum = f_[chain_.sum];
      sum.operands = {elements};
      made.push_back(make_like(b, std::move(sum), f_[chain_.sum].results)[0]);
    };
    const auto rounded = [&] { return b.cast(b.cast(value, chain_.rounding->to), DType::f32); };
    reduce(rounds && !apart ? rounded() : value);
    if (apart)
      reduce(rounds ? b.sub(rounded(), value) : b.constant(0, DType::f32, like_.type.axes));
  }

  ValueId build_tanh(Builder& b, ValueId x, Arguments arguments) const {
    if (arguments == Arguments::any) return build_any(b, x);
    const auto finish = [&](ValueId p, ValueId q) {
      return chain_.plus ? fma(b, p, q, chain_.plus) : b.mul(p, q);
    };
    if (arguments == Arguments::small) {
      const ValueId square = b.mul(x, x);
      return finish(x, fma(b, fma(b, fifth_, square, third_), square, first_));
    }
    const ValueId square = b.mul(b.mul(x, x), square_);
    const ValueId high = fma(b, fma(b, number(b, 0.0121001490), square, number(b, -0.0491801933)),
                             square, number(b, 0.132305769));
    return finish(b.mul(x, first_), fma(b, fma(b, high, square, number(b, -0.333254096)), square,
                                        number(b, 1.00000012)));
  }

  /// By the special function unit. Minus infinity stays that: the least positive number times any
  /// other x is too small to show.
  ValueId build_any(Builder& b, ValueId x) const {
    const ValueId power = b.elementwise(OpCode::exp2, {b.mul(x, exponent_)});
    const ValueId inverse = b.elementwise(OpCode::reciprocal, {b.add(power, number(b, 1))});
    ValueId high = l_;
    if (chain_.plus) {
      high = b.add(chain_.plus, l_);
      f_[high].layout = f_[chain_.plus].layout;
    }
    if (chain_.masked)
      high = b.elementwise(OpCode::fma, {b.min(x, number(b, 0)), number(b, 1.401298464e-45), high});
    return fma(b, twice_, inverse, high);
  }

  static ValueId number(Builder& b, double value) { return b.constant(value, DType::f32); }
  static ValueId fma(Builder& b, ValueId p, ValueId q, ValueId r) {
    return b.elementwise(OpCode::fma, {p, q, r});
  }

  Function& f_;
  const TanhChain& chain_;
  int fence_;
  Value like_;  ///< what an element is like
  ValueId square_, first_, third_, fifth_, limit_;
  ValueId exponent_, twice_, l_;  ///< for any x: l - 2 l / (exp2(exponent x) + 1), twice = -2 l
};

/// What stands around the ops of a block.
struct Surroundings {
  bool loop = false;   ///< they are the body of a loop
  int first_side = 0;  ///< the loop's first tile stands apart: above (1) or below (-1) the others
};

Surroundings surroundings(const Function& f, BlockId block, const Op& op) {
  if (op.code != OpCode::loop) return {};
  const bool apart = std::ranges::any_of(
      f[block].ops, [&](OpId id) { return f[id].code == OpCode::enter && f[id].axis == op.axis; });
  return {.loop = true, .first_side = apart ? (op.descending ? 1 : -1) : 0};
}

/// Whether a thread has as many registers as beside one other warpgroup; beside two there are
/// none to spare.
bool has_room(const Schedule& schedule) {
  constexpr int enough = 200;
  const int given = register_split(schedule).consumer;
  const int at_start = registers_at_start(schedule.threads(), schedule.blocks_per_processor);
  return (given ? given : at_start) >= enough;
}

/// Whether the mask of a chain cuts a tile or none: in tiles as wide as high one at the start of
/// the loop's tiles cuts the first iteration's and one more at most.
bool cuts_few_tiles(const Function& f, const Schedule& schedule, const TileGuards& guards,
                    const TanhChain& chain, Surroundings around) {
  const auto full = guards.range(guards.of(f[chain.mask]));
  const auto& axes = f[chain.value].type.axes;
  return full && around.first_side != 0 && !full->begin != !full->end &&
         (full->end ? 1 : -1) == around.first_side && has_room(schedule) &&
         f[axes[1]].tile >= f[axes[0]].tile;
}

bool has_guarded_mask(const Function& f, BlockId block) {
  return std::ranges::any_of(f[block].ops,
                             [&](OpId id) { return static_cast<bool>(guard_of(f, f[id])); });
}

void expand_chain(Function& f, const Schedule& schedule, const TileGuards& guards, BlockId block,
                  TanhChain chain, Surroundings around) {
  // Two copies for small ones, so that tiles no mask cuts have one without: worth it in a loop.
  if (!around.loop) chain.mask = {};
  if (around.loop && !chain.mask) chain.rounding = {};
  const bool few = chain.mask && cuts_few_tiles(f, schedule, guards, chain, around);
  const bool moderate = few || (around.loop && !has_guarded_mask(f, block) && has_room(schedule));
  const OpId last = f[chain.value].definition;
  const auto made_here = [&](ValueId value) { return value && made_in(f, block, value); };
  // The tests stand where the scores are there, the choice where the chain has stood.
  Builder tests = before(f, block,
                         made_here(chain.factor) || made_here(chain.times)
                             ? last
                             : readers_of(f, block, chain.raw).front());
  // Results of the special function unit are waited for together, but not those of all elements:
  // that would want more registers than there are.
  const TanhByRange tanh(tests, chain, /*fence=*/has_room(schedule) ? 2 : 1);
  const ValueId full = chain.mask ? guards.of(f[chain.mask]) : ValueId{};
  ValueId limit = tanh.limit();
  if (few) limit = tests.where(full, limit, tests.constant(-1, DType::f32));
  const auto within = [&](Builder& b, ValueId bound) {
    return b.make({.code = OpCode::all_within, .operands = {chain.raw, bound}}, {DType::i1, {}});
  };
  ValueId small = within(tests, limit);

  Builder b = before(f, block, last);
  const auto nest = [&](Arguments arguments, bool hides, ValueId x) -> Region {
    return [=, &tanh](Builder& in) { return tanh.build_nest(in, x, arguments, hides); };
  };
  const auto moderate_or = [&](ValueId x, bool hides, const Region& otherwise) -> Region {
    return [=, &within](Builder& in) {
      constexpr double more = TanhByRange::squares_of_moderate / TanhByRange::squares_of_small;
      const ValueId bound = in.mul(limit, in.constant(more, DType::f32));
      return build_if(in, within(in, bound), nest(Arguments::moderate, hides, x), otherwise);
    };
  };
  // The mask with all that it alone reads; its guard is still there for guard_masks.
  const std::vector<OpId> own =
      chain.mask ? ops_of_mask(f, block, chain.mask) : std::vector<OpId>{};
  const auto build_mask = [&](Builder& in) {
    OpCopier copier(f);
    for (OpId id : own) copier.copy(in, id);
    return f[copier.copy(in, chain.mask)].results[0];
  };
  Region by_polynomial = nest(Arguments::small, !chain.mask, chain.mask ? chain.raw : chain.from);
  Region otherwise = nest(Arguments::any, true, chain.from);
  if (few) {
    otherwise = moderate_or(chain.raw, false, [&](Builder& in) {
      return tanh.build_nest(in, build_mask(in), Arguments::any, true);
    });
  } else if (chain.mask) {
    otherwise = [&, small](Builder& in) {
      const ValueId x = build_mask(in);
      return build_if(in, small, nest(Arguments::small, true, x), nest(Arguments::any, true, x));
    };
    small = b.elementwise(OpCode::logical_and, {small, full});
  } else if (moderate) {
    otherwise = moderate_or(chain.from, true, otherwise);
  }
  const std::vector<ValueId> made = build_if(b, small, by_polynomial, otherwise);

  std::vector<ValueId> results{chain.value};
  const bool apart = chain.rounding && chain.rounding->apart;
  if (chain.sum && (!chain.rounding || apart)) results.push_back(f[chain.sum].results[0]);
  if (chain.rounding) results.push_back(f[chain.rounding->chosen].results[0]);
  for (std::size_t i = 0; i < results.size(); ++i) {
    std::erase(f[block].ops, f[results[i]].definition);
    take_place(f, results[i], made[i]);
  }
  remove_dead_ops(f);  // what else the chain is made of, before others look at the block
}

void expand_in(Function& f, const Schedule& schedule, const TileGuards& guards, BlockId block,
               Surroundings around) {
  for (OpId id : std::vector(f[block].ops)) {
    const Op op = f[id];
    for (const BlockId region : Regions(op))
      expand_in(f, schedule, guards, region, surroundings(f, block, op));
  }
  for (const TanhChain& chain : tanh_chains(f, block, guards))
    expand_chain(f, schedule, guards, block, chain, around);
}

}  // namespace

void expand_tanh(Function& f, const PassContext& context) {
  expand_in(f, context.schedule, TileGuards(f), f.body, {});
}

}  // namespace flashcore
