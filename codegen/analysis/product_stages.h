// In which stage of a software pipeline each op of a loop's body runs, so that asynchronous
// products of several iterations are in flight at once.
#pragma once

#include <map>
#include <string>

#include "dsl/ir/function.h"

namespace flashcore {

/// Stage s of an iteration runs beside stage 0 of the s-th iteration behind it. A product that
/// takes what is computed from another product of its iteration is one stage behind that one; with late
/// products, only if its iteration computes nothing more that does not need it. What
/// only products of a later stage read, such as a wait for a slot, runs in their stage, and
/// everything else as early as it can.
struct ProductStages {
  int count = 1;
  std::map<ir::OpId, int> of;       ///< by op of the body, all but the yield
  std::map<ir::ValueId, int> made;  ///< from which stage on an iteration has a value of the body;
                                    ///< -1: from before its first stage on
  std::map<ir::ValueId, int> read;  ///< by value of the body: the last stage that reads it
  bool late_products = false;       ///< whether the stages were found under that rule
  std::string refusal;              ///< why the loop is left as it is; empty where it need not be
};

struct StageRules {
  bool rescale_before_product =
      false;               ///< sums are scaled in the stage of the product that adds to them
  bool hold_slots = true;  ///< a slot may be held from one iteration to the next
  bool late_products =
      false;  ///< a product stays in a stage whose iteration computes something beside it
};

ProductStages find_product_stages(const ir::Function& f, const ir::Op& loop, StageRules rules);

/// All ops in one stage: nothing is handed to the next iteration but what the loop carries, and the
/// products of one iteration run beside each other as far as they can. Refused where every product
/// needs the one in front.
ProductStages single_product_stage(const ir::Function& f, const ir::Op& loop);

/// Whether an op asks at which tile of an axis it is.
bool needs_position(const ir::Function& f, const ir::Op& op, ir::AxisId axis);

bool is_asynchronous_product(const ir::Op& op);

/// Whether all warpgroups write an operand of a product, for each other, into a channel.
bool takes_exchanged_operand(const ir::Function& f, const ir::Op& dot);

/// Whether an op of a loop's body does nothing but scale a carried sum for the product that adds to
/// it.
bool scales_sum(const ir::Function& f, const ir::Op& loop, ir::OpId op);

}  // namespace flashcore
