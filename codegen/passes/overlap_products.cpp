// Asynchronous products run beside the warps that issue them. Each is issued where it stands, and
// waited for right behind; a loop with several of them becomes a software pipeline, in which the
// products of several iterations are in flight while one computes:
//
//   loop { s = dot q, k ; p = f(s) ; acc = dot p, v, acc * d(s) }      becomes
//
//   if any { s = dot q, k ; wait ; p, d = f(s) ; acc = acc * d         the first tile's stage 0
//            loop { issue s' = dot q, k                                stage 0 of this tile
//                   issue acc = dot p, v, acc                          stage 1 of the one before
//                   wait s' ; p', d' = f(s')
//                   wait acc ; acc = acc * d' }
//            issue acc = dot p, v, acc ; wait }                        the last tile's stage 1
//
// Which stage an op is in follows from what it depends on (codegen/analysis/product_stages.h), and
// the order within a step from that, from the registers and slots of products in flight, and from
// the order in which products finish (order_step.cpp). A slot that a later stage reads is handed on
// to the next iteration; a wait for a slot says how many others of its ring are held. Where no
// iteration can run beside another, for want of a slot or of registers, the products of one iteration
// that do not need each other are in flight together.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "codegen/passes/passes.h"
#include "codegen/passes/products_in_flight.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// Says what of the schedule is not taken where there is no use for turns, or for how sums are scaled.
void refuse(const PassContext& context, const std::string& no_turns,
            const std::string& no_scaling) {
  const Schedule& schedule = context.schedule;
  const auto note = [&](bool asked, const char* what, const std::string& why) {
    if (asked && !why.empty()) context.note_refusal(fmt::format("{} = true", what), why);
  };
  note(schedule.ping_pong, "ping_pong", no_turns);
  note(schedule.rescale_before_product, "rescale_before_product", no_scaling);
  note(schedule.rescale_before_wait, "rescale_before_wait",
       no_scaling.empty() && !schedule.rescale_before_product ? "rescale_before_product = false"
                                                              : no_scaling);
  note(schedule.lazy_scaling, "lazy_scaling", no_scaling);
}

class Overlap {
 public:
  Overlap(Function& f, const PassContext& context)
      : f_(f), context_(context), schedule_(context.schedule) {}

  void run() {
    for (OpId role : roles_of(f_)) {
      fills_itself_ = any_op(f_, f_[role].body, [&](const Op& op) {
        return op.code == OpCode::issue && f_[op.buffer].transport != Transport::warps;
      });
      block(f_[role].body);
      release_slots(f_, f_[role].body);
      std::map<BufferId, int> held, filled;
      count_held_slots(f_[role].body, held, filled);
      open_and_close_ping_pong(f_[role].body);
    }
    remove_dead_ops(f_);
    note_refusals();
  }

 private:
  void block(BlockId id) {
    for (OpId op : std::vector(f_[id].ops)) {
      if (f_[op].code == OpCode::tile_loop) block(f_[op].body);
      if (f_[op].code != OpCode::loop) continue;
      const auto products = std::ranges::count_if(
          f_[f_[op].body].ops, [&](OpId inner) { return is_asynchronous_product(f_[inner]); });
      if (!schedule_.overlap_products || products < 2) {
        block(f_[op].body);
        continue;
      }
      const Op loop = f_[op];
      ProductStages stages =
          find_product_stages(f_, loop,
                              {.rescale_before_product = schedule_.rescale_before_product,
                               .hold_slots = !fills_itself_,
                               .late_products = schedule_.late_products});
      const std::string across_iterations = stages.refusal;
      if (!across_iterations.empty()) stages = single_product_stage(f_, loop);
      note_overlap(loop, across_iterations, stages);
      if (stages.refusal.empty())
        pipeline_loop(f_, schedule_, id, op, stages);
      else
        block(loop.body);
    }
    rewrite_ops(f_, id, [&](Builder& b, OpId op) {
      if (!is_asynchronous_product(f_[op]) || std::exchange(f_[op].issued, true)) return;
      if (next_adds_to_sum(id, op)) return;
      const ValueId sum = f_[op].results[0];
      const OpId wait = wait_products(f_, {sum}, 0);
      replace_uses(f_, sum, f_[wait].results[0]);
      b.go_behind(op);
      b.place(wait);
    });
  }

  /// Whether all that reads a product's sum is another product of the block, which adds to it: the
  /// tensor core makes products of one sum in the order of their issue.
  [[nodiscard]] bool next_adds_to_sum(BlockId id, OpId dot) const {
    const ValueId sum = f_[dot].results[0];
    const std::vector<OpId> readers = readers_of(f_, id, sum);
    if (readers.size() != 1 || !is_asynchronous_product(f_[readers[0]])) return false;
    const std::vector<ValueId>& operands = f_[readers[0]].operands;
    return operands.size() == 3 && operands[2] == sum && operands[0] != sum && operands[1] != sum;
  }

  // What explain() tells.

  void note_overlap(const Op& loop, const std::string& across_iterations,
                    const ProductStages& stages) {
    overlaps_ = overlaps_ || stages.refusal.empty();
    rescales_ = rescales_ ||
                (stages.refusal.empty() && std::ranges::any_of(f_[loop.body].ops, [&](OpId id) {
                   return scales_sum(f_, loop, id);
                 }));
    if (across_iterations.empty()) return;
    const std::string what =
        fmt::format("overlap_products = true in the loop over {}", f_[loop.axis].name);
    if (stages.refusal.empty())
      context_.note_refusal(what + ", from iteration to iteration", across_iterations);
    else
      context_.note_refusal(what, across_iterations == stages.refusal
                                      ? stages.refusal
                                      : across_iterations + ", and " + stages.refusal);
  }

  void note_refusals() const {
    const std::string in_flight = schedule_.overlap_products
                                      ? "no loop has products in flight together"
                                      : "overlap_products = false";
    refuse(context_, overlaps_ ? "" : in_flight,
           rescales_   ? ""
           : overlaps_ ? "no loop with products in flight rescales a sum"
                       : in_flight);
  }

  void open_and_close_ping_pong(BlockId region) {
    if (!holds(f_, region, OpCode::ping_pong_wait)) return;
    std::vector<OpId>& ops = f_[region].ops;
    ops.insert(ops.begin(), f_.add_op({.code = OpCode::ping_pong_open}, {}));
    ops.push_back(f_.add_op({.code = OpCode::ping_pong_close}, {}));
  }

  /// A wait says how many slots of its ring are held already; what fills a slot in the role that reads it, how
  /// many have been filled and not released.
  void count_held_slots(BlockId id, std::map<BufferId, int>& held,
                        std::map<BufferId, int>& filled) {
    for (OpId op : f_[id].ops) {
      const BufferId buffer = f_[op].buffer;
      if (f_[op].code == OpCode::wait) f_[op].pending = held[buffer]++;
      if (buffer && f_[buffer].transport == Transport::warps && f_[op].code != OpCode::wait &&
          f_[op].code != OpCode::release)
        f_[op].pending = f_[op].code == OpCode::commit ? filled[buffer]++ : filled[buffer];
      if (f_[op].code == OpCode::release) {
        --held[buffer];
        --filled[buffer];
      }
      std::map<BufferId, int> held_otherwise = held, filled_otherwise = filled;
      if (f_[op].body) count_held_slots(f_[op].body, held, filled);
      if (f_[op].otherwise) count_held_slots(f_[op].otherwise, held_otherwise, filled_otherwise);
    }
  }

  Function& f_;
  const PassContext& context_;
  const Schedule& schedule_;
  bool fills_itself_ = false;  // a role refills a slot where it releases one
  bool overlaps_ = false;      // some loop has products in flight together,
  bool rescales_ = false;      // and one of these a sum that is rescaled
};

}  // namespace

OpId wait_products(Function& f, const std::vector<ValueId>& sums, int pending) {
  return add_op_like(f, {.code = OpCode::wait_products, .operands = sums, .pending = pending},
                     sums);
}

void overlap_products(Function& f, const PassContext& context) {
  if (any_op(f, f.body, is_asynchronous_product)) return Overlap(f, context).run();
  const std::string why = fmt::format("warps wait for each product of {} where they issue it",
                                      name_of(context.schedule.instruction));
  refuse(context, why, why);
}

}  // namespace flashcore
