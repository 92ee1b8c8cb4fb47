#include "codegen/analysis/register_interference.h"

#include <algorithm>
#include <ranges>

#include "codegen/analysis/visit.h"

namespace flashcore {

using namespace ir;

bool is_held(const Function& f, ValueId value) {
  const Space space = f[value].layout.space;
  const Op* made_by = f.definition(value);
  if (made_by && kind_of(made_by->code) == OpKind::source) return false;
  return !f[value].type.is_scalar() &&
         (space == Space::registers || space == Space::operand || space == Space::opaque);
}

bool is_condition_tile(const Function& f, ValueId value) {
  const Op* made_by = f.definition(value);
  return made_by && made_by->code == OpCode::convert && f[value].type.dtype == DType::i1;
}

namespace {

/// Walks the program backwards, with the set of values that are still to be read.
class Liveness {
 public:
  explicit Liveness(const Function& f) : f_(f), apart_(f.values.size()) {}

  std::vector<std::set<ValueId>> run() {
    walk(f_.body, {});
    return std::move(apart_);
  }

 private:
  using Live = std::set<ValueId>;

  /// What is to be read in front of a block, of what is behind it.
  Live walk(BlockId block, Live live) {
    for (OpId id : f_[block].ops | std::views::reverse) {
      const Op& op = f_[id];
      define(op.results, live);
      if (op.code == OpCode::nest)
        nest(op, live);
      else if (op.code == OpCode::if_)
        branches(op, live);
      else if (op.body)
        iterations(op, live);
      else
        plain(op, live);
      for_each_use(op, [&](const ValueId& value) { use(value, live); });
    }
    return live;
  }

  void plain(const Op& op, Live& live) {
    // A product reads its left operand until it has completed.
    if (op.code == OpCode::wait_products)
      for (ValueId sum : op.operands)
        if (const Op* dot = f_.definition(sum); dot && dot->code == OpCode::dot)
          for (std::size_t i : {0, 1}) use(dot->operands[i], live);
    for (ValueId result : op.results)
      for (std::size_t i = 0; i < op.operands.size(); ++i) {
        const bool in_place = (op.code == OpCode::dot && i == 2) ||
                              op.code == OpCode::wait_products ||
                              op.code == OpCode::combine_partials;
        if (!in_place) separate(result, op.operands[i]);
      }
  }

  /// An element of a result may take the place of an operand's that no later op of the nest reads.
  void nest(const Op& op, Live& live) {
    const auto& ops = f_[op.body].ops;
    const auto& yielded = f_[ops.back()].operands;
    std::set<ValueId> made;
    for (OpId id : ops) made.insert(f_[id].results.begin(), f_[id].results.end());
    for (std::size_t at = 0; at + 1 < ops.size(); ++at)
      for_each_use(f_[ops[at]], [&](const ValueId& value) {
        if (made.count(value)) return;
        use(value, live);
        for (std::size_t i = 0; i < yielded.size(); ++i) {
          const auto from = static_cast<std::size_t>(
              std::ranges::find(ops, f_[yielded[i]].definition) - ops.begin());
          const bool in_place = at <= from && kind_of(f_[ops[from]].code) == OpKind::elementwise &&
                                f_[value].type.axes == f_[yielded[i]].type.axes;
          if (!in_place) separate(op.results[i], value);
        }
      });
  }

  void branches(const Op& op, Live& live) {
    Live before;
    for (const BlockId region : {op.body, op.otherwise}) {
      if (!region) {
        before.insert(live.begin(), live.end());
        continue;
      }
      hand_over(last_of(f_, region).operands, 0, op.results);
      before.merge(walk(region, live));
    }
    live = std::move(before);
  }

  /// What an iteration needs of the values in front of the loop all iterations need.
  void iterations(const Op& op, Live& live) {
    const auto& arguments = f_[op.body].arguments;
    const std::vector<ValueId> carried(arguments.begin() + (arguments.empty() ? 0 : 1),
                                       arguments.end());
    if (op.code == OpCode::loop) {
      hand_over(op.operands, static_cast<std::size_t>(op.bounds), carried);
      hand_over(last_of(f_, op.body).operands, 0, carried);
    }
    for (int time = 0; time < 2; ++time) {
      Live start = walk(op.body, live);
      define(carried, start);
      live.merge(start);
    }
  }

  /// Values become others one after the other: none may be overwritten before it is read.
  void hand_over(const std::vector<ValueId>& from, std::size_t first,
                 const std::vector<ValueId>& to) {
    for (std::size_t i = 0; i < to.size(); ++i)
      for (std::size_t k = 0; k < to.size(); ++k)
        if (i != k && from[first + k] != from[first + i]) separate(to[i], from[first + k]);
  }

  void use(ValueId value, Live& live) const {
    if (is_held(f_, value)) live.insert(value);
  }
  /// Values that are made at once, in front of what is live behind that.
  void define(const std::vector<ValueId>& values, Live& live) {
    for (ValueId value : values) use(value, live);
    for (ValueId value : values)
      for (ValueId other : live) separate(value, other);
    for (ValueId value : values) live.erase(value);
  }
  void separate(ValueId a, ValueId b) {
    if (a == b || !is_held(f_, a) || !is_held(f_, b)) return;
    apart_[a.index].insert(b);
    apart_[b.index].insert(a);
  }

  const Function& f_;
  std::vector<Live> apart_;
};

}  // namespace

std::vector<std::set<ValueId>> find_interference(const Function& f) { return Liveness(f).run(); }

}  // namespace flashcore
