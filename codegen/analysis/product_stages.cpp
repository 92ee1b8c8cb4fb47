#include "codegen/analysis/product_stages.h"

#include <algorithm>
#include <ranges>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "codegen/analysis/shared_use.h"
#include "codegen/analysis/visit.h"
#include "codegen/analysis/warp_partition.h"
#include "codegen/instructions/instruction.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

namespace {

class StageSearch {
 public:
  StageSearch(const Function& f, const Op& loop, StageRules rules)
      : f_(f),
        loop_(loop),
        rules_(rules),
        tile_(f[loop.body].arguments[0]),
        carried_(carried_by(f, loop)) {
    stages_.late_products = rules.late_products;
    // What is the same in all iterations is in no stage.
    for (OpId id : f[loop.body].ops)
      if (f[id].code != OpCode::yield &&
          (kind_of(f[id].code) != OpKind::source || needs_position(f, f[id], loop.axis)))
        ops_.push_back(id);
  }

  ProductStages run() {
    if (holds_only_plain_ops() && find_earliest()) {
      move_to_readers();
      note_values();
      check_products();
      check_positions();
      check_lifetimes();
    }
    return std::move(stages_);
  }

  ProductStages run_as_one() {
    if (holds_only_plain_ops()) {
      for (OpId id : ops_) stages_.of[id] = 0;
      note_values();
      check_independence();
    }
    return std::move(stages_);
  }

 private:
  bool refuse(std::string why) {
    if (stages_.refusal.empty()) stages_.refusal = std::move(why);
    return false;
  }

  bool holds_only_plain_ops() {
    for (OpId id : ops_)
      if (f_[id].body || f_[id].code == OpCode::barrier)
        return refuse(fmt::format("a {} stands in the loop", ir::name_of(f_[id].code)));
    return true;
  }

  /// An op is in the stage of what it reads, or in the next if it is a product, and that depends on
  /// a product of that stage. What it reads of the iteration before may be one stage ahead of it.
  bool find_earliest() {
    std::map<ValueId, int> for_products;  // the first stage whose products may read a value
    const auto products =
        std::ranges::count_if(ops_, [&](OpId id) { return is_asynchronous_product(f_[id]); });
    for (bool changed = true; changed;) {
      changed = false;
      for (OpId id : ops_) {
        const bool product = is_asynchronous_product(f_[id]);
        int stage = 0, behind = 0;
        for_each_need(f_[id], [&](const ValueId& v) {
          stage = std::max(stage, made_by(before(v)) - 1);
          stage = std::max(stage, made_by(v));
          if (const auto at = for_products.find(v); at != for_products.end())
            behind = std::max(behind, at->second);
        });
        if (product && !(rules_.late_products && computes_beside(id)))
          stage = std::max(stage, behind);
        for (ValueId result : f_[id].results)
          for_products[result] = product ? stage + 1 : std::max(stage, behind);
        int& known = stages_.of[id];
        changed = changed || known != stage;
        known = stage;
        if (stage > products)
          return refuse(
              fmt::format("{} of the iteration before is more than one stage behind what "
                          "reads it",
                          name_of_result(id)));
        stages_.count = std::max(stages_.count, stage + 1);
      }
    }
    return true;
  }

  /// Whether the iteration computes something from products that neither needs this one nor is needed by it.
  [[nodiscard]] bool computes_beside(OpId product) {
    return remembered(beside_, product, [&] {
      const std::set<OpId> needed = ops_needed_by({product});
      return std::ranges::any_of(ops_, [&](OpId id) {
        const Op& op = f_[id];
        if (kind_of(op.code) != OpKind::elementwise || op.code == OpCode::cast ||
            f_[op.results[0]].type.axes.size() < 2 || needed.count(id))
          return false;
        const std::set<OpId> own = ops_needed_by({id});
        return !own.count(product) && std::ranges::any_of(own, [&](OpId other) {
          return is_asynchronous_product(f_[other]);
        });
      });
    });
  }
  /// Every value that an op uses; of a wait for an operand that warpgroups exchange, what the iteration issues
  /// into its channel.
  template <class Visit>
  void for_each_need(const Op& op, Visit visit) const {
    for_each_use(op, visit);
    if (op.code != OpCode::wait || !op.buffer || f_[op.buffer].transport != Transport::warps)
      return;
    for (OpId id : ops_)
      if (f_[id].code == OpCode::issue && f_[id].buffer == op.buffer) visit(f_[id].operands[0]);
  }
  /// All ops of the iteration that these ops need, these included.
  [[nodiscard]] std::set<OpId> ops_needed_by(std::vector<OpId> ops) const {
    std::set<OpId> needed;
    while (!ops.empty()) {
      const OpId id = ops.back();
      ops.pop_back();
      if (!needed.insert(id).second) continue;
      for_each_need(f_[id], [&](const ValueId& v) {
        if (const OpId made_by = f_[v].definition; std::ranges::count(ops_, made_by))
          ops.push_back(made_by);
      });
    }
    return needed;
  }

  /// From the last to the first: waits for slots, views, and, where that is wanted late, the
  /// scaling of sums, run where they are read.
  void move_to_readers() {
    for (OpId id : ops_ | std::views::reverse) {
      const Op& op = f_[id];
      const bool moves = op.code == OpCode::wait || op.code == OpCode::transpose ||
                         (rules_.rescale_before_product && scales_sum(f_, loop_, id));
      if (!moves) continue;
      const std::vector<OpId> readers = readers_of(f_, loop_.body, op.results[0]);
      int stage = readers.empty() ? 0 : stages_.count;
      for (OpId reader : readers) stage = std::min(stage, stage_of(reader));
      stages_.of[id] = std::max(stages_.of[id], stage);
    }
  }

  void note_values() {
    stages_.made[tile_] = 0;
    for (OpId id : ops_)
      for (ValueId result : f_[id].results) stages_.made[result] = stages_.of[id];
    for (const Carried& c : carried_) stages_.made[c.argument] = std::max(0, made_by(c.next)) - 1;
    for (OpId id : ops_) {
      const auto note = [&](const ValueId& v) {
        if (!stages_.made.count(v)) return;
        int& last = stages_.read.try_emplace(v, -1).first->second;
        last = std::max(last, stages_.of[id]);
      };
      for_each_use(f_[id], note);
      if (needs_position(f_, f_[id], loop_.axis)) note(tile_);
    }
  }

  /// A product that waits for one of a later stage of the iteration before has nothing to overlap
  /// with.
  void check_products() {
    std::set<ValueId> waits;
    for (OpId id : ops_) {
      const Op& op = f_[id];
      ValueId cause;
      for_each_use(op, [&](const ValueId& v) {
        const OpId made_by = definition_in_body(before(v));
        const bool late = made_by && stages_.of.at(made_by) > stages_.of.at(id);
        if (late || (waits.count(v) && stages_.made[v] == stages_.of.at(id))) cause = v;
      });
      if (!cause) continue;
      if (is_asynchronous_product(op))
        refuse(fmt::format("{} needs {}, which the iteration before makes in a later stage",
                           name_of_result(id), name_of(cause)));
      waits.insert(op.results.begin(), op.results.end());
    }
    for (const Carried& c : carried_)
      if (before(c.next) && stages_.made[c.next] > 0)
        refuse(fmt::format("{} comes from two iterations before", name_of(c.argument)));
  }

  /// Products that all need the one in front have nothing to run beside.
  void check_independence() {
    std::map<ValueId, std::set<OpId>> behind;  // the products that a value needs
    std::vector<OpId> in_front;
    for (OpId id : ops_) {
      std::set<OpId> needed;
      for_each_use(f_[id],
                   [&](const ValueId& v) { needed.insert(behind[v].begin(), behind[v].end()); });
      if (is_asynchronous_product(f_[id])) {
        if (needed.size() < in_front.size()) return;
        in_front.push_back(id);
        needed.insert(id);
      }
      for (ValueId result : f_[id].results) behind[result] = needed;
    }
    refuse("every product needs the one in front of it");
  }

  /// Positions are those of the first stage.
  void check_positions() {
    for (OpId id : ops_) {
      const Op& op = f_[id];
      if (kind_of(op.code) == OpKind::source && stages_.read[op.results[0]] > 0)
        refuse(fmt::format("{} of {} is read in a later stage", ir::name_of(op.code),
                           f_[op.axis].name));
    }
  }

  /// Registers and slots are held from the stage that makes a value to the last that reads it.
  void check_lifetimes() {
    for (const auto& [value, last] : stages_.read) {
      const ValueId tile = operand_root(f_, value).value;
      const OpId made_by = definition_in_body(tile);
      const int stages = last - (made_by ? stages_.of.at(made_by) : stages_.made[value]);
      if (stages <= 0 || f_[value].type.axes.size() < 2) continue;
      if (made_by && f_[made_by].code == OpCode::wait) {
        const Buffer& ring = f_[f_[made_by].buffer];
        if (!rules_.hold_slots)
          refuse(fmt::format("{} iterations hold a slot of {}, which the role fills itself",
                             stages + 1, ring.name));
        // Late products give the slot back before the iteration in front waits for the next.
        if (ring.stages < stages + (rules_.late_products ? 1 : 2))
          refuse(
              fmt::format("{} iterations hold a slot of {}, which needs another to be filled and "
                          "has {}",
                          stages + 1, ring.name, ring.stages));
      } else if (made_by && is_asynchronous_product(f_[made_by])) {
        refuse(fmt::format("{} is read when the next iteration's product needs its registers",
                           name_of(value)));
      } else if (stages > 1) {
        refuse(fmt::format("{} iterations hold {} in registers", stages + 1, name_of(value)));
      }
    }
  }

  /// What a carried value is in the iteration before; none for others.
  [[nodiscard]] ValueId before(ValueId value) const {
    const auto at = std::ranges::find(carried_, value, &Carried::argument);
    return at == carried_.end() ? ValueId{} : at->next;
  }
  [[nodiscard]] OpId definition_in_body(ValueId value) const {
    const OpId id = value ? f_[value].definition : OpId{};
    return id && stages_.of.count(id) ? id : OpId{};
  }
  [[nodiscard]] int made_by(ValueId value) const {
    return value ? stage_of(f_[value].definition) : 0;
  }
  [[nodiscard]] int stage_of(OpId id) const {
    const auto at = stages_.of.find(id);
    return at == stages_.of.end() ? 0 : at->second;  // what is not in the body, and its yield
  }
  [[nodiscard]] std::string name_of(ValueId value) const {
    return f_[value].name.empty() ? "a value" : "%" + f_[value].name;
  }
  [[nodiscard]] std::string name_of_result(OpId id) const {
    return f_[id].results.empty() ? std::string(ir::name_of(f_[id].code))
                                  : name_of(f_[id].results[0]);
  }

  const Function& f_;
  const Op& loop_;
  const StageRules rules_;
  std::vector<OpId> ops_;
  const ValueId tile_;
  const std::vector<Carried> carried_;
  ProductStages stages_;
  std::map<OpId, bool> beside_;
};

}  // namespace

ProductStages find_product_stages(const Function& f, const Op& loop, StageRules rules) {
  return StageSearch(f, loop, rules).run();
}

ProductStages single_product_stage(const Function& f, const Op& loop) {
  return StageSearch(f, loop, {}).run_as_one();
}

bool needs_position(const Function& f, const Op& op, AxisId axis) {
  const auto follows = [&](AxisId other) {
    return other && axis && f.origin(other) == f.origin(axis);
  };
  const bool source = op.code == OpCode::index || op.code == OpCode::tile_begin;
  return (source && follows(op.axis)) ||
         std::ranges::any_of(op.coordinates, [&](const Coordinate& c) { return follows(c.axis); });
}

bool is_asynchronous_product(const Op& op) {
  return op.code == OpCode::dot && instruction_of(op).asynchronous;
}

bool takes_exchanged_operand(const Function& f, const Op& dot) {
  const auto is_exchanged = [&](ValueId operand) {
    const BufferId buffer = buffer_of(f, operand);
    return buffer && f[buffer].transport == Transport::warps;
  };
  return dot.code == OpCode::dot &&
         (is_exchanged(dot.operands[0]) || is_exchanged(dot.operands[1]));
}

bool scales_sum(const Function& f, const Op& loop, OpId id) {
  const Op& op = f[id];
  if (kind_of(op.code) != OpKind::elementwise) return false;
  const std::vector<OpId> readers = readers_of(f, loop.body, op.results[0]);
  if (readers.size() != 1) return false;
  const Op& dot = f[readers[0]];
  if (dot.code != OpCode::dot || dot.operands.size() != 3 || dot.operands[2] != op.results[0])
    return false;
  const std::vector<Carried> carried = carried_by(f, loop);
  const auto sum = std::ranges::find(carried, dot.results[0], &Carried::next);
  return sum != carried.end() && std::ranges::count(op.operands, sum->argument) == 1;
}

}  // namespace flashcore
