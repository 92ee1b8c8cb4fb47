// The rotation of a loop: the first half of the first round, then for every other round its first
// half beside the late half of the round before, and the late half of the last. The three are
// copies of one body.
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "codegen/passes/copy_ops.h"
#include "codegen/passes/first_round.h"
#include "codegen/passes/products_in_flight.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

class Rotation {
 public:
  Rotation(Function& f, const Schedule& schedule, BlockId block, OpId loop, const ProductCut& cut)
      : f_(f),
        schedule_(schedule),
        block_(block),
        id_(loop),
        loop_(f[loop]),
        ops_(f[loop_.body].ops),
        arguments_(f[loop_.body].arguments),
        cut_(cut) {}

  void run() {
    FirstTile tile;
    insert_before(f_, block_, position_of(f_, block_, id_), loop_.where,
                  [&](Builder& b) { tile = first_tile_of(b, loop_); });
    const std::vector<ValueId> start(loop_.operands.begin() + loop_.bounds, loop_.operands.end());
    name_sums();
    for (std::size_t i = 0; i < start.size(); ++i)
      homes_.emplace(start[i], f_[arguments_[i + 1]].home);
    Op any{.code = OpCode::if_, .operands = {tile.exists}, .results = loop_.results};
    any.where = loop_.where;
    any.body = f_.add_block();
    any.otherwise = f_.add_block();
    append(any.otherwise, Op{.code = OpCode::yield, .operands = start});
    insert_before(f_, any.body, 0, loop_.where,
                  [&](Builder& b) { enter_tile(b, loop_, tile.tile); });
    Handed first = half_round(any.body, tile.tile, start, nullptr);
    Handed last = other_rounds(any.body, tile.tile, first);

    std::vector<ValueId> sums;
    Views views;
    for (std::size_t i = 0; i < cut_.late.size(); ++i)
      sums.push_back(start_late(i, any.body, last, views));
    const OpId landing = land_products(f_, sums, 0);
    append(any.body, landing);
    std::vector<ValueId> results(start.size());
    for (std::size_t i = 0, k = 0; i < start.size(); ++i) {
      const std::size_t late = cut_.late_of(i);
      results[i] = late < cut_.late.size() ? f_[landing].results[late] : last.carried[k++];
    }
    append(any.body, Op{.code = OpCode::yield, .operands = results});
    f_[id_] = std::move(any);
  }

 private:
  /// What the next round is handed is called what this one was handed, unless it has a name.
  void name_sums() {
    const auto give = [&](ValueId value, ValueId argument) {
      if (f_[value].name.empty()) f_[value].name = f_[argument].name;
    };
    const Op& yield = f_[ops_.back()];
    for (std::size_t i = 0; i < yield.operands.size(); ++i)
      give(yield.operands[i], arguments_[i + 1]);
    for (const ProductCut::Late& late : cut_.late)
      if (late.scaling) give(f_[late.scaling].results[0], arguments_[late.carried + 1]);
  }

  /// What one round leaves for the next: the loop's carried values but the late sums, the number of
  /// its tile if a late wait asks for it, then for every late product its left operand, what it
  /// adds to, and, if that is scaled late, what scales it.
  struct Handed {
    std::vector<ValueId> carried, tile;
    struct Late {
      ValueId left, sum;
      std::vector<ValueId> scalings;  ///< what the scaling reads beside the sum
    };
    std::vector<Late> late;

    template <class Visit>
    void for_each(Visit visit) {
      for (ValueId& v : carried) visit(v);
      for (ValueId& v : tile) visit(v);
      for (Late& l : late) {
        visit(l.left);
        visit(l.sum);
        for (ValueId& v : l.scalings) visit(v);
      }
    }
    [[nodiscard]] std::vector<ValueId> all() {
      std::vector<ValueId> values;
      for_each([&](ValueId v) { values.push_back(v); });
      return values;
    }
  };
  /// What the waits and views of the late products are called in a copy.
  using Views = std::map<ValueId, ValueId>;

  void append(BlockId target, OpId op) { f_[target].ops.push_back(op); }
  OpId append(BlockId target, Op op, const std::vector<TileType>& types = {}) {
    const OpId id = f_.add_op(std::move(op), types);
    append(target, id);
    return id;
  }

  ValueId copy_argument(BlockId block, ValueId like) {
    const Value value = f_[like];
    const ValueId argument = f_.add_argument(block, value.type, value.name);
    f_[argument].home = home_of(like);
    return argument;
  }

  /// A constant that the loop starts from has no home of its own; what is carried from there has.
  [[nodiscard]] Home home_of(ValueId value) const {
    const auto started = homes_.find(value);
    return started == homes_.end() ? f_[value].home : started->second;
  }

  /// The loop over all tiles but the first; returns what its last round leaves.
  Handed other_rounds(BlockId target, ValueId tile, Handed& first) {
    Op inner = loop_;
    inner.operands = bounds_behind_first(f_, target, loop_, tile);
    const std::vector<ValueId> handed = first.all();
    inner.operands.insert(inner.operands.end(), handed.begin(), handed.end());
    inner.bounds = 2;
    inner.body = f_.add_block();
    inner.results.clear();
    const ValueId inner_tile = copy_argument(inner.body, arguments_[0]);
    Handed held = first;
    held.for_each([&](ValueId& v) { v = copy_argument(inner.body, v); });
    Handed next = half_round(inner.body, inner_tile, {}, &held);
    append(inner.body, Op{.code = OpCode::yield, .operands = next.all()});
    const OpId id(f_.ops.size());
    Handed last = first;
    last.for_each([&](ValueId& v) {
      const Value like = f_[v];
      const Home home = home_of(v);
      v = f_.add_value(like.type, like.name);
      f_[v].home = home;
      f_[v].definition = id;
      inner.results.push_back(v);
    });
    f_.ops.push_back(std::move(inner));
    append(target, id);
    return last;
  }

  /// Copies the first half of a round, for the tile `tile`, to the end of `target`. Without `held`
  /// the late sums are `start`'s; with it, the late products of the round before are in flight
  /// meanwhile.
  Handed half_round(BlockId target, ValueId tile, const std::vector<ValueId>& start,
                    const Handed* held) {
    OpCopier copier(f_);
    copier.rename(arguments_[0], tile);
    for (std::size_t i = 0, k = 0; i + 1 < arguments_.size(); ++i) {
      if (cut_.late_of(i) == cut_.late.size()) {
        copier.rename(arguments_[i + 1], held ? held->carried[k++] : start[i]);
      } else if (!held) {
        copier.rename(arguments_[i + 1], start[i]);
      }
    }
    const std::vector<ValueId> sums = start_products(target, copier, held);
    copy_rest(target, copier, /*packed=*/false, held);
    if (held) {
      const OpId landing = land_products(f_, sums, 0);
      append(target, landing);
      for (std::size_t i = 0; i < cut_.late.size(); ++i)
        copier.rename(arguments_[cut_.late[i].carried + 1], f_[landing].results[i]);
    }
    copy_rest(target, copier, /*packed=*/true, held);
    return left_by(copier, tile);
  }

  /// The products of this round, behind them the late ones of the round before, and the wait for
  /// the former. Returns the sums of the latter, which are in flight then.
  std::vector<ValueId> start_products(BlockId target, OpCopier& copier, const Handed* held) {
    const bool in_turns = held && schedule_.alternate;
    // Where all warpgroups meet, none has the turn.
    Views views;
    std::set<OpId> early;
    for (OpId id : ops_) {
      if (!in_turns || !clears(id)) continue;
      if (cut_.late_ops.count(id)) {
        look(id, target, *held, views);
      } else {
        append(target, copier.copy(id));
        early.insert(id);
      }
    }
    std::vector<OpId> dots;
    std::vector<ValueId> started;
    for (OpId id : ops_) {
      if (!cut_.first.count(id) || early.count(id)) continue;
      const OpId copied = copier.copy(id);
      if (f_[copied].code == OpCode::dot) {
        if (in_turns && started.empty()) append(target, Op{.code = OpCode::await_turn});
        f_[copied].started = true;
        dots.push_back(id);
        started.push_back(f_[copied].results[0]);
      }
      append(target, copied);
    }
    std::vector<ValueId> sums;
    for (std::size_t i = 0; held && i < cut_.late.size(); ++i)
      sums.push_back(start_late(i, target, *held, views));
    if (in_turns) append(target, Op{.code = OpCode::pass_turn});
    const OpId landing = land_products(f_, started, static_cast<int>(sums.size()));
    append(target, landing);
    for (std::size_t i = 0; i < dots.size(); ++i)  // the copies to come read what has landed
      copier.rename(f_[dots[i]].results[0], f_[landing].results[i]);
    return sums;
  }

  /// What a round computes between its products. What is packed for the late ones, and the sum that
  /// they add to, wait for those of the round before to land: the registers are theirs until then.
  void copy_rest(BlockId target, OpCopier& copier, bool packed, bool in_flight) {
    for (OpId id : ops_) {
      const bool packs = cut_.is_scaling(id) ||
                         std::any_of(cut_.late.begin(), cut_.late.end(), [&](const auto& late) {
                           return f_[f_[late.dot].operands[0]].definition == id;
                         });
      if (cut_.first.count(id) || cut_.late_ops.count(id) || packs != packed ||
          f_[id].code == OpCode::yield || (cut_.is_scaling(id) && schedule_.scale_late))
        continue;
      const OpId copied = copier.copy(id);
      if (in_flight && cut_.is_scaling(id))
        copier.rename(f_[id].results[0], append_scaling(target, copied));
      else
        append(target, copied);
    }
  }

  [[nodiscard]] Handed left_by(const OpCopier& copier, ValueId tile) const {
    Handed handed;
    if (std::any_of(cut_.late_ops.begin(), cut_.late_ops.end(),
                    [&](OpId id) { return clears(id); }))
      handed.tile = {tile};
    const Op& yield = f_[ops_.back()];
    for (std::size_t i = 0; i < yield.operands.size(); ++i)
      if (cut_.late_of(i) == cut_.late.size())
        handed.carried.push_back(copier.renamed(yield.operands[i]));
    for (const ProductCut::Late& late : cut_.late) {
      Handed::Late l;
      l.left = copier.renamed(f_[late.dot].operands[0]);
      const ValueId argument = arguments_[late.carried + 1];
      if (scales_late(late)) {
        l.sum = copier.renamed(argument);
        for (ValueId operand : f_[late.scaling].operands)
          if (operand != argument) l.scalings.push_back(copier.renamed(operand));
      } else {
        l.sum = copier.renamed(f_[late.dot].operands[2]);
      }
      handed.late.push_back(std::move(l));
    }
    return handed;
  }

  /// Appends the scaling of a sum, and returns what it makes. With lazy_scaling a warp leaves it out
  /// where all its rows have the factor one, as those of a softmax whose maximum has not grown.
  ValueId append_scaling(BlockId target, OpId scaling) {
    const Op op = f_[scaling];
    const std::size_t k = f_[op.operands[0]].type.axes.size() == 1 ? 0 : 1;
    const ValueId factor = op.operands[k], sum = op.operands[1 - k], scaled = op.results[0];
    if (!schedule_.lazy_scaling || op.code != OpCode::mul || f_[factor].type.axes.size() != 1) {
      append(target, scaling);
      return scaled;
    }
    Op choice{.code = OpCode::if_, .where = op.where};
    choice.body = f_.add_block();
    choice.otherwise = f_.add_block();
    append(choice.body, Op{.code = OpCode::yield, .operands = {sum}});
    append(choice.otherwise, scaling);
    append(choice.otherwise, Op{.code = OpCode::yield, .operands = {scaled}});
    insert_before(f_, target, f_[target].ops.size(), op.where, [&](Builder& b) {
      const ValueId one = b.elementwise(OpCode::eq, {factor, b.constant(1, DType::f32)});
      f_[one].home = f_[factor].home;
      const ValueId all =
          f_[b.append({.code = OpCode::all_lanes, .operands = {one}}, {{DType::i1, {}}})]
              .results[0];
      f_[all].home.space = Space::uniform;
      choice.operands = {all};
    });
    const OpId id = append(target, std::move(choice), {f_[scaled].type});
    const ValueId result = f_[id].results[0];
    f_[result].name = f_[scaled].name;
    f_[result].home = f_[scaled].home;
    return result;
  }

  [[nodiscard]] bool scales_late(const ProductCut::Late& late) const {
    return schedule_.scale_late && late.scaling;
  }

  /// A wait that clears rows beyond its axis: all warpgroups meet in it.
  [[nodiscard]] bool clears(OpId id) const {
    return f_[id].code == OpCode::await_slot && !f_[id].operands.empty();
  }

  /// Copies a wait or a view for late products, once for all of them.
  void look(OpId id, BlockId target, const Handed& from, Views& views) {
    if (views.count(f_[id].results[0])) return;
    OpCopier copier(f_);
    for (const auto& [old, now] : views) copier.rename(old, now);
    if (!from.tile.empty()) copier.rename(arguments_[0], from.tile[0]);
    const OpId copied = copier.copy(id);
    append(target, copied);
    views[f_[id].results[0]] = f_[copied].results[0];
  }

  /// Starts a late product on what the round before has left; returns its sum.
  ValueId start_late(std::size_t which, BlockId target, const Handed& from, Views& views) {
    const ProductCut::Late& late = cut_.late[which];
    const Handed::Late& held = from.late[which];
    const ValueId argument = arguments_[late.carried + 1];
    OpCopier copier(f_);
    copier.rename(f_[late.dot].operands[0], held.left);
    if (scales_late(late)) {
      copier.rename(argument, held.sum);
      std::size_t k = 0;
      for (ValueId operand : std::vector(f_[late.scaling].operands))
        if (operand != argument) copier.rename(operand, held.scalings[k++]);
      const ValueId scaled = append_scaling(target, copier.copy(late.scaling));
      copier.rename(f_[late.scaling].results[0], scaled);
    } else {
      copier.rename(f_[late.dot].operands[2], held.sum);
    }
    // The waits and views of this product, before the first late product that needs them.
    std::set<ValueId> needed{f_[late.dot].operands[1]};
    std::vector<OpId> chain;
    for (auto id = ops_.rbegin(); id != ops_.rend(); ++id) {
      const Op& op = f_[*id];
      if (!cut_.late_ops.count(*id) || op.code == OpCode::dot || !needed.count(op.results[0]))
        continue;
      chain.insert(chain.begin(), *id);
      for_each_use(op, [&](const ValueId& v) { needed.insert(v); });
    }
    for (OpId id : chain) {
      look(id, target, from, views);
      copier.rename(f_[id].results[0], views[f_[id].results[0]]);
    }
    const OpId dot = copier.copy(late.dot);
    f_[dot].started = true;
    append(target, dot);
    return f_[dot].results[0];
  }

  Function& f_;
  const Schedule& schedule_;
  const BlockId block_;
  const OpId id_;
  const Op loop_;
  const std::vector<OpId> ops_;
  const std::vector<ValueId> arguments_;
  const ProductCut& cut_;
  std::map<ValueId, Home> homes_;  // of what the loop starts from
};

}  // namespace

void rotate_loop(Function& f, const Schedule& schedule, BlockId block, OpId loop,
                 const ProductCut& cut) {
  Rotation(f, schedule, block, loop, cut).run();
}

}  // namespace flashcore
