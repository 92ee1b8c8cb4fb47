// The rotation of a loop: the first half of the first iteration; then for every other iteration its
// first half together with the second half of the previous iteration; and the second half of the
// last. The three are copies of one body.
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "codegen/passes/copy_ops.h"
#include "codegen/passes/first_iteration.h"
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
      homes_.emplace(start[i], f_[arguments_[i + 1]].layout);
    Op any{.code = OpCode::if_, .operands = {tile.exists}, .results = loop_.results};
    any.where = loop_.where;
    any.body = f_.add_block();
    any.otherwise = f_.add_block();
    append(any.otherwise, Op{.code = OpCode::yield, .operands = start});
    insert_before(f_, any.body, 0, loop_.where,
                  [&](Builder& b) { enter_tile(b, loop_, tile.tile); });
    Handed first = half_iteration(any.body, tile.tile, start, nullptr);
    Handed last = other_iterations(any.body, tile.tile, first);

    std::vector<ValueId> sums;
    Views views;
    for (std::size_t i = 0; i < cut_.second.size(); ++i)
      sums.push_back(issue_second(i, any.body, last, views));
    const OpId wait = wait_products(f_, sums, 0);
    append(any.body, wait);
    std::vector<ValueId> results(start.size());
    for (std::size_t i = 0, k = 0; i < start.size(); ++i) {
      const std::size_t second = cut_.second_of(i);
      results[i] = second < cut_.second.size() ? f_[wait].results[second] : last.carried[k++];
    }
    append(any.body, Op{.code = OpCode::yield, .operands = results});
    f_[id_] = std::move(any);
  }

 private:
  /// What the next iteration is handed is called what this one was handed, unless it has a name.
  void name_sums() {
    const auto give = [&](ValueId value, ValueId argument) {
      if (f_[value].name.empty()) f_[value].name = f_[argument].name;
    };
    const Op& yield = f_[ops_.back()];
    for (std::size_t i = 0; i < yield.operands.size(); ++i)
      give(yield.operands[i], arguments_[i + 1]);
    for (const ProductCut::Second& second : cut_.second)
      if (second.scaling) give(f_[second.scaling].results[0], arguments_[second.carried + 1]);
  }

  /// What one iteration hands to the next: the loop's carried values except the sums of second
  /// products, the number of its tile if a wait of the second half needs it, then for every second
  /// product its left operand, the accumulator, and the factors, if that is rescaled right before
  /// the product.
  struct Handed {
    std::vector<ValueId> carried, tile;
    struct Second {
      ValueId left, sum;
      std::vector<ValueId> scalings;  ///< what the scaling reads beside the sum
    };
    std::vector<Second> second;

    template <class Visit>
    void for_each(Visit visit) {
      for (ValueId& v : carried) visit(v);
      for (ValueId& v : tile) visit(v);
      for (Second& l : second) {
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
  /// The copies of the waits and views of the second products.
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
    f_[argument].layout = home_of(like);
    return argument;
  }

  /// A constant that the loop starts from has no layout of its own; the carried value has one.
  [[nodiscard]] Layout home_of(ValueId value) const {
    const auto issued = homes_.find(value);
    return issued == homes_.end() ? f_[value].layout : issued->second;
  }

  /// The loop over all tiles but the first; returns what its last iteration hands on.
  Handed other_iterations(BlockId target, ValueId tile, Handed& first) {
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
    Handed next = half_iteration(inner.body, inner_tile, {}, &held);
    append(inner.body, Op{.code = OpCode::yield, .operands = next.all()});
    const OpId id(f_.ops.size());
    Handed last = first;
    last.for_each([&](ValueId& v) {
      const Value like = f_[v];
      const Layout layout = home_of(v);
      v = f_.add_value(like.type, like.name);
      f_[v].layout = layout;
      f_[v].definition = id;
      inner.results.push_back(v);
    });
    f_.ops.push_back(std::move(inner));
    append(target, id);
    return last;
  }

  /// Copies the first half of an iteration, for the tile `tile`, to the end of `target`. Without
  /// `held` the accumulators are those of `start`; with it, the second products of the previous
  /// iteration are in flight meanwhile.
  Handed half_iteration(BlockId target, ValueId tile, const std::vector<ValueId>& start,
                        const Handed* held) {
    OpCopier copier(f_);
    copier.rename(arguments_[0], tile);
    for (std::size_t i = 0, k = 0; i + 1 < arguments_.size(); ++i) {
      if (cut_.second_of(i) == cut_.second.size()) {
        copier.rename(arguments_[i + 1], held ? held->carried[k++] : start[i]);
      } else if (!held) {
        copier.rename(arguments_[i + 1], start[i]);
      }
    }
    const std::vector<ValueId> sums = issue_products(target, copier, held);
    copy_rest(target, copier, /*packed=*/false, held);
    if (held) {
      const OpId wait = wait_products(f_, sums, 0);
      append(target, wait);
      for (std::size_t i = 0; i < cut_.second.size(); ++i)
        copier.rename(arguments_[cut_.second[i].carried + 1], f_[wait].results[i]);
    }
    copy_rest(target, copier, /*packed=*/true, held);
    return left_by(copier, tile);
  }

  /// Issues the first products of this iteration and the second products of the previous one, and
  /// waits for the former. Returns the sums of the latter, which are still in flight.
  std::vector<ValueId> issue_products(BlockId target, OpCopier& copier, const Handed* held) {
    const bool in_ping_pong = held && schedule_.ping_pong;
    // At a barrier of all warpgroups, none may wait for another's products.
    Views views;
    std::set<OpId> early;
    for (OpId id : ops_) {
      if (!in_ping_pong || !clears(id)) continue;
      if (cut_.second_ops.count(id)) {
        copy_view(id, target, *held, views);
      } else {
        append(target, copier.copy(id));
        early.insert(id);
      }
    }
    std::vector<OpId> dots;
    std::vector<ValueId> issued;
    for (OpId id : ops_) {
      if (!cut_.first.count(id) || early.count(id)) continue;
      const OpId copied = copier.copy(id);
      if (f_[copied].code == OpCode::dot) {
        if (in_ping_pong && issued.empty()) append(target, Op{.code = OpCode::ping_pong_wait});
        f_[copied].issued = true;
        dots.push_back(id);
        issued.push_back(f_[copied].results[0]);
      }
      append(target, copied);
    }
    std::vector<ValueId> sums;
    for (std::size_t i = 0; held && i < cut_.second.size(); ++i)
      sums.push_back(issue_second(i, target, *held, views));
    if (in_ping_pong) append(target, Op{.code = OpCode::ping_pong_arrive});
    const OpId wait = wait_products(f_, issued, static_cast<int>(sums.size()));
    append(target, wait);
    for (std::size_t i = 0; i < dots.size(); ++i)  // later copies read the results of the wait
      copier.rename(f_[dots[i]].results[0], f_[wait].results[i]);
    return sums;
  }

  /// Copies what an iteration computes between its products. The packed operands of the second
  /// products, and their accumulators, come behind the wait for those of the previous iteration,
  /// which occupy the registers until then.
  void copy_rest(BlockId target, OpCopier& copier, bool packed, bool in_flight) {
    for (OpId id : ops_) {
      const bool packs =
          cut_.is_scaling(id) ||
          std::any_of(cut_.second.begin(), cut_.second.end(), [&](const auto& second) {
            return f_[f_[second.dot].operands[0]].definition == id;
          });
      if (cut_.first.count(id) || cut_.second_ops.count(id) || packs != packed ||
          f_[id].code == OpCode::yield || (cut_.is_scaling(id) && schedule_.rescale_before_product))
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
    if (std::any_of(cut_.second_ops.begin(), cut_.second_ops.end(),
                    [&](OpId id) { return clears(id); }))
      handed.tile = {tile};
    const Op& yield = f_[ops_.back()];
    for (std::size_t i = 0; i < yield.operands.size(); ++i)
      if (cut_.second_of(i) == cut_.second.size())
        handed.carried.push_back(copier.renamed(yield.operands[i]));
    for (const ProductCut::Second& second : cut_.second) {
      Handed::Second l;
      l.left = copier.renamed(f_[second.dot].operands[0]);
      const ValueId argument = arguments_[second.carried + 1];
      if (rescales_before_product(second)) {
        l.sum = copier.renamed(argument);
        for (ValueId operand : f_[second.scaling].operands)
          if (operand != argument) l.scalings.push_back(copier.renamed(operand));
      } else {
        l.sum = copier.renamed(f_[second.dot].operands[2]);
      }
      handed.second.push_back(std::move(l));
    }
    return handed;
  }

  /// Appends the scaling of a sum, and returns what it makes. With lazy_scaling a warp leaves it
  /// out where all its rows have the factor one, as those of a softmax whose maximum has not grown.
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
      f_[one].layout = f_[factor].layout;
      const ValueId all =
          f_[b.append({.code = OpCode::all_lanes, .operands = {one}}, {{DType::i1, {}}})]
              .results[0];
      f_[all].layout.space = Space::uniform;
      choice.operands = {all};
    });
    const OpId id = append(target, std::move(choice), {f_[scaled].type});
    const ValueId result = f_[id].results[0];
    f_[result].name = f_[scaled].name;
    f_[result].layout = f_[scaled].layout;
    return result;
  }

  [[nodiscard]] bool rescales_before_product(const ProductCut::Second& second) const {
    return schedule_.rescale_before_product && second.scaling;
  }

  /// A wait that clears rows beyond its axis: it has a barrier of all warpgroups.
  [[nodiscard]] bool clears(OpId id) const {
    return f_[id].code == OpCode::wait && !f_[id].operands.empty();
  }

  /// Copies a wait or a view for second products, once for all of them.
  void copy_view(OpId id, BlockId target, const Handed& from, Views& views) {
    if (views.count(f_[id].results[0])) return;
    OpCopier copier(f_);
    for (const auto& [old, now] : views) copier.rename(old, now);
    if (!from.tile.empty()) copier.rename(arguments_[0], from.tile[0]);
    const OpId copied = copier.copy(id);
    append(target, copied);
    views[f_[id].results[0]] = f_[copied].results[0];
  }

  /// Issues a second product on what the previous iteration has handed on; returns its sum.
  ValueId issue_second(std::size_t which, BlockId target, const Handed& from, Views& views) {
    const ProductCut::Second& second = cut_.second[which];
    const Handed::Second& held = from.second[which];
    const ValueId argument = arguments_[second.carried + 1];
    OpCopier copier(f_);
    copier.rename(f_[second.dot].operands[0], held.left);
    if (rescales_before_product(second)) {
      copier.rename(argument, held.sum);
      std::size_t k = 0;
      for (ValueId operand : std::vector(f_[second.scaling].operands))
        if (operand != argument) copier.rename(operand, held.scalings[k++]);
      const ValueId scaled = append_scaling(target, copier.copy(second.scaling));
      copier.rename(f_[second.scaling].results[0], scaled);
    } else {
      copier.rename(f_[second.dot].operands[2], held.sum);
    }
    // The waits and views of this product, in front of the first second product that needs them.
    std::set<ValueId> needed{f_[second.dot].operands[1]};
    std::vector<OpId> chain;
    for (auto id = ops_.rbegin(); id != ops_.rend(); ++id) {
      const Op& op = f_[*id];
      if (!cut_.second_ops.count(*id) || op.code == OpCode::dot || !needed.count(op.results[0]))
        continue;
      chain.insert(chain.begin(), *id);
      for_each_use(op, [&](const ValueId& v) { needed.insert(v); });
    }
    for (OpId id : chain) {
      copy_view(id, target, from, views);
      copier.rename(f_[id].results[0], views[f_[id].results[0]]);
    }
    const OpId dot = copier.copy(second.dot);
    f_[dot].issued = true;
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
  std::map<ValueId, Layout> homes_;  // of what the loop starts from
};

}  // namespace

void rotate_loop(Function& f, const Schedule& schedule, BlockId block, OpId loop,
                 const ProductCut& cut) {
  Rotation(f, schedule, block, loop, cut).run();
}

}  // namespace flashcore
