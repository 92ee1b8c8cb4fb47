// The order in which a step of a pipelined loop does the stages of the iterations in flight.
#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include "codegen/analysis/shared_use.h"
#include "codegen/analysis/visit.h"
#include "codegen/analysis/warp_partition.h"
#include "codegen/passes/products_in_flight.h"

namespace flashcore {

using namespace ir;

namespace {

class StepOrder {
 public:
  StepOrder(const Function& f, const Op& loop, const ProductStages& stages, int first, int last)
      : f_(f), carried_(carried_by(f, loop)), stages_(stages), first_(first), last_(last) {
    for (OpId id : f[loop.body].ops)
      if (stage_here(id)) ops_.push_back(id);
  }

  std::vector<StepOp> run(bool turns) {
    for (std::size_t i = 0; i < ops_.size(); ++i) position_[ops_[i]] = static_cast<int>(i);
    for (OpId id : ops_) find_edges(id);
    // At a barrier of all warpgroups, none may wait for another's products.
    for (OpId id : ops_)
      if (turns && f_[id].code == OpCode::wait && !f_[id].operands.empty()) place(id);
    issue_products(turns);
    while (place_next()) {
    }
    return std::move(order_);
  }

 private:
  /// Of what is neither done here nor a part of the loop, none.
  [[nodiscard]] std::optional<int> stage_here(OpId id) const {
    const auto stage = stages_.of.find(id);
    const bool here =
        stage != stages_.of.end() && first_ <= stage->second && stage->second <= last_;
    return here ? std::optional(stage->second) : std::nullopt;
  }
  [[nodiscard]] int stage_of(OpId id) const { return stages_.of.at(id); }
  [[nodiscard]] bool is_product(OpId id) const { return is_asynchronous_product(f_[id]); }

  /// The op stands behind another, which it may have to wait for.
  void add_edge(OpId before, OpId id) {
    if (before == id || !before || !position_.count(before)) return;
    (is_product(before) ? products_ : plain_)[id].insert(before);
  }

  void find_edges(OpId id) {
    for_each_use(f_[id], [&](const ValueId& v) {
      const OpId made_by = f_[v].definition;
      if (stage_here(made_by) == stage_of(id)) add_edge(made_by, id);
      // What is read of a stage in front lies where the next iteration's is put.
      const OpId put_by = f_[operand_root(f_, v).value].definition;
      const std::optional<int> stage = stage_here(put_by);
      if (stage && *stage < stage_of(id) && f_[put_by].code != OpCode::wait &&
          !f_[f_[put_by].results[0]].type.is_scalar())
        add_edge(id, put_by);
      for (const Carried& carried : carried_) {
        const OpId next = f_[carried.next].definition;
        if (carried.argument == v && stage_here(next) == stage_of(id) + 1) add_edge(next, id);
      }
    });
    if (!keeps_place(f_[id])) return;
    for (OpId other : ops_) {
      if (other == id) break;
      if (keeps_place(f_[other]) && stage_of(other) == stage_of(id)) add_edge(other, id);
    }
  }

  [[nodiscard]] static bool keeps_place(const Op& op) {
    return (kind_of(op.code) == OpKind::memory && op.code != OpCode::wait &&
            op.code != OpCode::beside) ||
           kind_of(op.code) == OpKind::sync;
  }

  // Issue.

  /// Issues the products that need not wait for another, those of the newest iteration first. With late products
  /// those of the iteration before it come first, whose operands hold registers that the newest one needs; each
  /// is issued once there are registers for its result; and a product of an operand that warpgroups exchange is
  /// left for place_next, as another warpgroup may be half an iteration behind with its part of the operand.
  void issue_products(bool turns) {
    const bool late = stages_.late_products;
    std::vector<OpId> early;
    std::ranges::copy_if(ops_, std::back_inserter(early), [&](OpId id) {
      return is_product(id) && !waits(id) && !(late && takes_exchanged_operand(f_, f_[id]));
    });
    std::ranges::stable_sort(early, {},
                             [&](OpId id) { return late ? -stage_of(id) : stage_of(id); });
    for (OpId id : early) {
      if (late) make_room(id);
      for (const bool views : {false, true}) place_needed(id, views);
      if (turns && id == early.front())
        order_.push_back({.kind = StepOp::Kind::turn, .turn = OpCode::ping_pong_wait});
      place(id);
    }
    if (turns && !early.empty())
      order_.push_back({.kind = StepOp::Kind::turn, .turn = OpCode::ping_pong_arrive});
  }

  /// Waits for products in flight until the registers of this one are free besides those of the sums that
  /// the loop carries.
  void make_room(OpId id) {
    // Of a thread's 240. Measured: where products in flight hold 224, ptxas issues them one by one.
    constexpr int limit = 208;
    const auto registers = [&] {
      int count = registers_of(f_[id].results[0]);
      for (const Carried& carried : carried_) count += registers_of(carried.argument);
      for (OpId other : issued_) {
        if (finished_.count(other)) continue;
        if (!is_carried(other)) count += registers_of(f_[other].results[0]);
        if (f_[f_[other].operands[0]].layout.space == Space::operand)
          count += registers_of(f_[other].operands[0]) / 2;
      }
      return is_carried(id) ? count - registers_of(f_[id].results[0]) : count;
    };
    for (std::size_t i = 0; i < issued_.size() && registers() > limit; ++i)
      if (!finished_.count(issued_[i])) wait_for(issued_[i]);
  }
  [[nodiscard]] bool is_carried(OpId product) const {
    return std::ranges::any_of(carried_,
                               [&](const Carried& c) { return f_[c.next].definition == product; });
  }
  /// What a thread holds of a tile.
  [[nodiscard]] int registers_of(ValueId value) const {
    int count = 1;
    for (const AxisLayout& layout : f_[value].layout.axes) count *= layout.fragments * layout.slots;
    return f_[value].type.axes.size() == 2 ? count : 0;
  }

  /// Whether an op, or something that it needs, waits for a product.
  [[nodiscard]] bool waits(OpId id) {
    return remembered(waits_, id, [&] {
      return !products_[id].empty() ||
             std::ranges::any_of(plain_[id], [&](OpId needed) { return waits(needed); });
    });
  }

  /// The waits for slots, and views of them, directly in front of the product.
  void place_needed(OpId id, bool views) {
    for (OpId op : ops_) {
      if (!plain_[id].count(op) || placed_.count(op)) continue;
      const bool is_view = f_[op].code == OpCode::wait || f_[op].code == OpCode::transpose;
      if (is_view && !views) continue;
      place_needed(op, true);
      place(op);
    }
  }

  void place(OpId id) {
    if (!placed_.insert(id).second) return;
    for (OpId needed : plain_[id])
      if (unpacks(needed)) place(needed);
    order_.push_back({StepOp::Kind::op, {id}});
    if (is_product(id)) issued_.push_back(id);
    // A part of an operand that other warpgroups wait for is there as soon as it is written.
    if (f_[id].code == OpCode::issue && f_[f_[id].buffer].transport == Transport::warps)
      for (OpId other : ops_)
        if (f_[other].code == OpCode::commit && f_[other].buffer == f_[id].buffer &&
            stage_of(other) == stage_of(id))
          place(other);
  }

  // Everything else, and waits.

  /// Of what need not wait any more the first comes next: products and loads, then the ops and waits
  /// of one stage after the other.
  bool place_next() {
    using Rank = std::tuple<bool, int, int>;
    Rank best{true, std::numeric_limits<int>::max(), 0};
    OpId next;
    const auto offer = [&](OpId id, const Rank& rank) {
      if (rank < best) std::tie(best, next) = std::tuple(rank, id);
    };
    for (OpId id : ops_) {
      // A load from a tensor takes as long as a product.
      const bool takes_long = is_product(id) || f_[id].code == OpCode::load;
      if (!placed_.count(id) && missing(id).empty() && comes_next(id))
        offer(id, {!takes_long, stage_of(id), 2 * position_[id]});
    }
    for (OpId id : issued_)
      if (!finished_.count(id)) offer(id, {true, stage_of(id), rank_of_wait(id)});
    if (!next) return false;
    if (placed_.count(next)) {
      wait_for(next);
    } else {
      if (is_product(next))
        for (const bool views : {false, true}) place_needed(next, views);
      place(next);
    }
    return true;
  }

  [[nodiscard]] bool comes_next(OpId id) {
    if (stages_.late_products && is_of_exchange(id)) return is_product(id) && others_are_issued();
    return !unpacks(id) && std::ranges::all_of(plain_[id], [&](OpId needed) {
      return placed_.count(needed) > 0 ||
             (unpacks(needed) && placed_.count(operand_of(needed)) > 0);
    });
  }
  /// Whether an op widens a packed operand to f32. Such ops stand directly in front of their readers, since packed
  /// elements take half the registers.
  [[nodiscard]] bool unpacks(OpId id) const {
    return f_[id].code == OpCode::cast && f_[f_[id].operands[0]].layout.space == Space::operand &&
           stage_here(id);
  }
  [[nodiscard]] OpId operand_of(OpId cast) const { return f_[f_[cast].operands[0]].definition; }
  /// Whether an op is a product of an operand that warpgroups exchange, or the wait for that operand, which
  /// stands directly in front of the product.
  [[nodiscard]] bool is_of_exchange(OpId id) const {
    const Op& op = f_[id];
    if (op.code == OpCode::wait || op.code == OpCode::transpose) {
      const BufferId buffer = op.code == OpCode::wait ? op.buffer : buffer_of(f_, op.results[0]);
      return buffer && f_[buffer].transport == Transport::warps;
    }
    return takes_exchanged_operand(f_, op);
  }
  [[nodiscard]] bool others_are_issued() const {
    return std::ranges::all_of(ops_, [&](OpId id) {
      return !is_product(id) || placed_.count(id) > 0 || takes_exchanged_operand(f_, f_[id]);
    });
  }
  /// The products that an op has to wait for.
  [[nodiscard]] std::set<OpId> missing(OpId id) {
    std::set<OpId> products;
    std::ranges::set_difference(products_[id], finished_, std::inserter(products, products.end()));
    return products;
  }

  /// The first op that is ready but for a product.
  [[nodiscard]] OpId first_held_up(OpId product) {
    OpId first;
    for (OpId id : ops_)
      if (!placed_.count(id) && comes_next(id) && missing(id).count(product) &&
          (!first || stage_of(id) < stage_of(first)))
        first = id;
    return first;
  }

  /// Products of a later stage are waited for in the order of what they hold up in a stage in
  /// front, and otherwise as late as their own stage lets them.
  [[nodiscard]] int rank_of_wait(OpId product) {
    const OpId held_up = first_held_up(product);
    if (held_up && stage_of(held_up) < stage_of(product))
      return position_[held_up] - static_cast<int>(ops_.size());
    return 2 * work_in_front(product) + 1;
  }

  /// Where a wait has most to hide it: behind the last op in front of the product's first reader
  /// that computes with another product.
  [[nodiscard]] int work_in_front(OpId product) {
    std::set<ValueId> computed;
    int last = -1;
    for (OpId id : ops_) {
      if (stage_of(id) != stage_of(product)) continue;
      if (reads(f_[id], f_[product].results[0])) break;
      const auto is_computed = [&](ValueId v) { return computed.count(v) > 0; };
      if (!is_product(id) && !any_use(f_[id], is_computed)) continue;
      computed.insert(f_[id].results.begin(), f_[id].results.end());
      if (!is_product(id)) last = position_[id];
    }
    return last;
  }

  /// Waits for a product, and for the others of its stage that the first op which waits for it
  /// needs. Products finish in the order in which they were issued.
  void wait_for(OpId product) {
    std::set<OpId> wanted{product};
    if (const OpId held_up = first_held_up(product))
      std::ranges::copy_if(missing(held_up), std::inserter(wanted, wanted.end()),
                           [&](OpId id) { return stage_of(id) == stage_of(product); });
    else if (placed_.size() == ops_.size())  // the end of the step
      wanted.insert(issued_.begin(), issued_.end());
    const auto last =
        std::find_if(issued_.rbegin(), issued_.rend(), [&](OpId id) { return wanted.count(id); });
    StepOp wait{StepOp::Kind::wait, {}, static_cast<int>(last - issued_.rbegin())};
    for (OpId id : issued_) {
      if (finished_.insert(id).second) wait.ops.push_back(id);
      if (id == *last) break;
    }
    order_.push_back(std::move(wait));
  }

  const Function& f_;
  const std::vector<Carried> carried_;
  const ProductStages& stages_;
  const int first_, last_;
  std::vector<OpId> ops_;
  std::map<OpId, int> position_;
  std::map<OpId, std::set<OpId>> plain_, products_;  // what an op stands behind
  std::map<OpId, bool> waits_;
  std::set<OpId> placed_, finished_;
  std::vector<OpId> issued_;
  std::vector<StepOp> order_;
};

}  // namespace

std::vector<StepOp> order_step(const Function& f, const Op& loop, const ProductStages& stages,
                               int first, int last, bool turns) {
  return StepOrder(f, loop, stages, first, last).run(turns);
}

}  // namespace flashcore
