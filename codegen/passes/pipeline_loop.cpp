// The software pipeline of a loop: its first iterations one by one, each beside the later stages of
// those in front of it, until every stage has an iteration; a loop over the other tiles, whose body
// does one stage of each iteration in flight; and the stages that are left then. All are copies of
// one body.
#include <algorithm>
#include <vector>

#include "codegen/passes/copy_ops.h"
#include "codegen/passes/loop_tiles.h"
#include "codegen/passes/products_in_flight.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// The scaling of a carried sum that a warp leaves out where all its rows have the factor one, as
/// those of a softmax whose maximum has not grown:
///
///   %none = all_lanes (eq %factor, 1)
///   %scaled = if %none { yield %sum } else { yield mul %sum, %factor }
ValueId append_lazy_scaling(Function& f, BlockId target, OpId scaling) {
  const Op op = f[scaling];
  const std::size_t k = f[op.operands[0]].type.axes.size() == 1 ? 0 : 1;
  const ValueId factor = op.operands[k], scaled = op.results[0];
  if (op.code != OpCode::mul || f[factor].type.axes.size() != 1) {
    f[target].ops.push_back(scaling);
    return scaled;
  }
  Builder b(f, target);
  b.at(op.where);
  const ValueId one = b.elementwise(OpCode::eq, {factor, b.constant(1, DType::f32)});
  f[one].layout = f[factor].layout;
  const ValueId none = b.make({.code = OpCode::all_lanes, .operands = {one}}, {DType::i1, {}});
  const Region keep = region_of({}, {op.operands[1 - k]}), scale = region_of({scaling}, {scaled});
  return build_if(b, none, keep, scale, {scaled})[0];
}

/// What the values of the body are called in one iteration.
using Iteration = OpCopier;

class Pipeline {
 public:
  Pipeline(Function& f, const Schedule& schedule, OpId loop, const ProductStages& stages)
      : f_(f),
        schedule_(schedule),
        loop_(f[loop]),
        ops_(f[loop_.body].ops),
        tile_(f[loop_.body].arguments[0]),
        carried_(carried_by(f, loop_)),
        stages_(stages) {
    for (const Carried& c : carried_) name_after(c.next, c.argument);
    list_crossing();
  }

  /// Appends all of it to a block; returns what the loop's results are.
  std::vector<ValueId> run(BlockId target) {
    for (OpId id : ops_)
      if (f_[id].code != OpCode::yield && !stages_.of.count(id)) f_[target].ops.push_back(id);
    return fill(target, loop_, {});
  }

 private:
  /// Iterations in flight, the last one first, which does stage 1 next.
  using Flight = std::vector<Iteration>;

  /// A value that a step hands to the next one, for the iteration that does `stage` there. For
  /// stage 0 it is an argument of the body.
  struct Crossing {
    int stage;
    ValueId value;
  };

  void name_after(ValueId value, ValueId argument) {
    if (f_[value].name.empty()) f_[value].name = f_[argument].name;
    const Op* dot = definition_as(f_, value, OpCode::dot);
    if (!dot || dot->operands.size() < 3) return;
    const OpId scaling = f_[dot->operands[2]].definition;
    if (scaling && stages_.of.count(scaling) && scales_sum(f_, loop_, scaling) &&
        f_[dot->operands[2]].name.empty())
      f_[dot->operands[2]].name = f_[argument].name;
  }

  /// In the order of the arguments; then by who reads them.
  void list_crossing() {
    for (const Carried& c : carried_)
      if (stages_.made.at(c.argument) < 0) crossing_.push_back({0, c.argument});
    for (int stage = 1; stage < stages_.count; ++stage) {
      const auto add = [&](ValueId v) {
        const bool listed = std::ranges::any_of(
            crossing_, [&](const Crossing& c) { return c.stage == stage && c.value == v; });
        // It is handed from the stages in front of this one to it or to those behind it.
        const auto made = stages_.made.find(v), read = stages_.read.find(v);
        if (!listed && made != stages_.made.end() && made->second < stage &&
            read != stages_.read.end() && stage <= read->second)
          crossing_.push_back({stage, v});
      };
      const auto add_needed = [&](const auto& self, OpId id) -> void {
        for_each_use(f_[id], [&](const ValueId& v) {
          add(v);
          const OpId made_by = f_[v].definition;
          if (made_by && stages_.of.count(made_by) && stages_.of.at(made_by) == stage)
            self(self, made_by);
        });
      };
      add(tile_);
      for (OpId id : ops_)
        if (is_asynchronous_product(f_[id]) && stages_.of.at(id) == stage)
          add_needed(add_needed, id);
      for (OpId id : ops_)
        if (stages_.of.count(id) && stages_.of.at(id) >= stage)
          for_each_use(f_[id], [&](const ValueId& v) { add(v); });
    }
  }

  // The parts of the pipeline.

  std::vector<ValueId> fill(BlockId target, const Op& rest, Flight flight) {
    if (static_cast<int>(flight.size()) + 1 == stages_.count) {
      flight = repeat(target, rest, flight);
      return drain(target, std::move(flight));
    }
    Builder b(f_, target);
    const FirstTile tile = first_tile_of(b, rest);
    return build_if(
        b, tile.exists,
        [&](Builder& in) {
          enter_tile(in, rest, tile.tile);
          Flight filled{Iteration(f_)};
          filled[0].rename(tile_, tile.tile);
          for (const Carried& c : carried_) filled[0].rename(c.argument, behind(flight, c));
          for (const Iteration& iteration : flight) filled.push_back(iteration);
          take_step(in.block(), 0, filled, false);
          const Op others = loop_behind_first(in, rest, tile.tile);
          return fill(in.block(), others, std::move(filled));
        },
        [&](Builder& in) { return drain(in.block(), flight); }, loop_.results);
  }

  /// The loop whose every iteration is a step of all stages.
  Flight repeat(BlockId target, const Op& rest, Flight& flight) {
    Op loop = rest;
    loop.operands.resize(static_cast<std::size_t>(rest.bounds));
    for (const Crossing& c : crossing_) loop.operands.push_back(handed(c, flight));
    loop.body = f_.add_block();
    const ValueId tile = add_argument(loop.body, tile_);
    Flight inside(static_cast<std::size_t>(stages_.count), Iteration(f_));
    inside[0].rename(tile_, tile);
    std::vector<ValueId> values;
    for (const Crossing& c : crossing_) {
      inside[static_cast<std::size_t>(c.stage)].rename(c.value, add_argument(loop.body, c.value));
      values.push_back(c.value);
    }
    take_step(loop.body, 0, inside, true);
    Op yield{.code = OpCode::yield};
    for (const Crossing& c : crossing_) yield.operands.push_back(handed(c, inside));
    Builder(f_, loop.body).append(std::move(yield));
    Builder b(f_, target);
    const std::vector<ValueId> results = make_like(b, std::move(loop), values);
    Flight left(static_cast<std::size_t>(std::max(1, stages_.count - 1)), Iteration(f_));
    for (std::size_t k = 0; k < crossing_.size(); ++k) {
      const auto [stage, value] = crossing_[k];
      if (stage > 0)
        left[static_cast<std::size_t>(stage) - 1].rename(value, results[k]);
      else
        left[0].rename(carried_in(value).next, results[k]);
    }
    return left;
  }

  /// What is left to do for the iterations in flight.
  std::vector<ValueId> drain(BlockId target, Flight flight) {
    for (int stage = 1; !flight.empty() && stage < stages_.count; ++stage) {
      take_step(target, stage, flight, true);
      if (flight.size() > 1 && static_cast<int>(flight.size()) + stage == stages_.count)
        flight.pop_back();
    }
    std::vector<ValueId> values;
    for (const Carried& c : carried_) values.push_back(behind(flight, c));
    return values;
  }

  // One step.

  /// What a carried value is behind the iterations in flight.
  static ValueId behind(const Flight& flight, const Carried& c) {
    return flight.empty() ? c.start : flight[0].renamed(c.next);
  }

  /// What a step leaves for the next one.
  [[nodiscard]] ValueId handed(const Crossing& c, const Flight& done) const {
    if (c.stage > 0) return done[static_cast<std::size_t>(c.stage) - 1].renamed(c.value);
    return behind(done, carried_in(c.value));
  }

  /// Does the stages from `first` on, one of each iteration. Until the pipeline is full no scaling
  /// is left out, and warpgroups take no turns.
  void take_step(BlockId target, int first, Flight& flight, bool steady) {
    const int last = first + static_cast<int>(flight.size()) - 1;
    const bool turns = steady && first == 0 && schedule_.ping_pong;
    ValueId position = first == 0 ? flight[0].renamed(tile_) : ValueId{};
    for (const StepOp& step : order_step(f_, loop_, stages_, first, last, turns)) {
      switch (step.kind) {
        case StepOp::Kind::turn:
          Builder(f_, target).append({.code = step.turn});
          break;
        case StepOp::Kind::op:
          move_to(target, step.ops[0],
                  flight[stage_of(step.ops[0]) - static_cast<std::size_t>(first)], position);
          copy(target, step.ops[0], first, flight, steady);
          break;
        case StepOp::Kind::wait:
          wait(target, step, first, flight);
      }
    }
  }

  /// Has the axis be at the tile of the iteration that an op is of.
  void move_to(BlockId target, OpId id, const Iteration& iteration, ValueId& position) {
    const ValueId tile = iteration.renamed(tile_);
    if (tile == position || !needs_position(f_, f_[id], loop_.axis)) return;
    Builder b(f_, target);
    enter_tile(b, loop_, tile);
    position = tile;
  }

  void copy(BlockId target, OpId id, int first, Flight& flight, bool steady) {
    const std::size_t at = stage_of(id) - static_cast<std::size_t>(first);
    const OpId copied = flight[at].copy(id);
    if (is_asynchronous_product(f_[id])) f_[copied].issued = true;
    if (steady && schedule_.lazy_scaling && scales_sum(f_, loop_, id))
      flight[at].rename(f_[id].results[0], append_lazy_scaling(f_, target, copied));
    else
      f_[target].ops.push_back(copied);
    for (ValueId result : f_[id].results) hand_on(result, at, flight);
  }

  void wait(BlockId target, const StepOp& step, int first, Flight& flight) {
    std::vector<ValueId> sums;
    const auto at = [&](OpId dot) { return stage_of(dot) - static_cast<std::size_t>(first); };
    for (OpId dot : step.ops) sums.push_back(flight[at(dot)].renamed(f_[dot].results[0]));
    const OpId wait = wait_products(f_, sums, step.pending);
    f_[target].ops.push_back(wait);
    for (std::size_t i = 0; i < step.ops.size(); ++i) {
      const ValueId sum = f_[step.ops[i]].results[0];
      flight[at(step.ops[i])].rename(sum, f_[wait].results[i]);
      hand_on(sum, at(step.ops[i]), flight);
    }
  }

  /// The iteration behind has what this one yields.
  void hand_on(ValueId value, std::size_t at, Flight& flight) {
    for (const Carried& c : carried_)
      if (at > 0 && c.next == value) flight[at - 1].rename(c.argument, flight[at].renamed(value));
  }

  // Building.

  [[nodiscard]] std::size_t stage_of(OpId id) const {
    return static_cast<std::size_t>(stages_.of.at(id));
  }
  [[nodiscard]] const Carried& carried_in(ValueId argument) const {
    return *std::ranges::find(carried_, argument, &Carried::argument);
  }

  ValueId add_argument(BlockId block, ValueId value) {
    f_[block].arguments.push_back(add_value_like(f_, value));
    return f_[block].arguments.back();
  }

  Function& f_;
  const Schedule& schedule_;
  const Op loop_;
  const std::vector<OpId> ops_;
  const ValueId tile_;
  const std::vector<Carried> carried_;
  const ProductStages& stages_;
  std::vector<Crossing> crossing_;
};

}  // namespace

void pipeline_loop(Function& f, const Schedule& schedule, BlockId block, OpId loop,
                   const ProductStages& stages) {
  const std::vector<ValueId> results = f[loop].results;
  const BlockId scratch = f.add_block();
  const std::vector<ValueId> values = Pipeline(f, schedule, loop, stages).run(scratch);
  for (std::size_t i = 0; i < results.size(); ++i) replace_uses(f, results[i], values[i]);
  Builder b = before(f, block, loop);
  b.remove(loop);
  for (OpId id : f[scratch].ops) b.place(id);
}

}  // namespace flashcore
