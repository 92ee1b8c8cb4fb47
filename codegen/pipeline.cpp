#include <array>

#include "codegen/passes/passes.h"

namespace flashcore {

std::span<const Pass> pipeline() {
  static constexpr std::array<Pass, 27> passes{{
      {"apply_schedule", apply_schedule, "everything below asks for tile sizes"},
      {"simplify", simplify, "before masks are added, so that a scale has moved past the maximum"},
      {"mask_tails", mask_tails, "before bound_masks, for which a tail is one more condition"},
      {"bound_masks", bound_masks, "while conditions are still tiles of expressions"},
      {"place_probes", place_probes, "after masks, whose `where` is what a probe shows"},
      {"fix_maximum", fix_maximum,
       "behind bound_masks, which looks for what a maximum makes of hidden scores"},
      {"round_weights", round_weights, "behind fix_maximum, which leaves such weights"},
      {"share_loops", share_loops, "behind bound_masks, whose bounds it shares out"},
      {"precise_tanh", precise_tanh,
       "behind simplify, which brings the factors of a cap together; commute_tanh leaves such "
       "alone"},
      {"commute_tanh", commute_tanh,
       "behind bound_masks, for which its `where` would be one more mask"},
      {"lift_row_terms", lift_row_terms,
       "behind bound_masks, and behind simplify, which makes one multiply-add of a score"},
      {"fuse_exponents", fuse_exponents,
       "behind lift_row_terms, which changes what is subtracted; before anything is dealt out"},
      {"sum_by_products", sum_by_products, "before the sums it takes are dealt out to lanes"},
      {"defer_reductions", defer_reductions, "before layouts, which need to know who holds a sum"},
      {"separate_homes", separate_homes, "before layouts, which then meet at conversions only"},
      {"stage_operands", stage_operands, "before layouts: a conversion's sides are laid out apart"},
      {"infer_layouts", infer_layouts, "decides which loads go through shared memory"},
      {"exchange_shares", exchange_shares,
       "knows from the layouts which shares lie in other warps"},
      {"pipeline_loads", pipeline_loads,
       "needs the homes, and one loop rather than its peeled parts"},
      {"assign_roles", assign_roles, "the other way to copy: instead of pipeline_loads"},
      {"advance_fills", advance_fills, "what the producer fills, and in which rings, is known"},
      {"overlap_products", overlap_products, "waits for slots stand where products read them"},
      {"order_columns", order_columns,
       "behind overlap_products, whose landings say what is there together"},
      {"stage_stores", stage_stores, "its buffer joins the plan"},
      {"plan_shared_memory", plan_shared_memory, "all buffers and their uses are known"},
      {"insert_barriers", insert_barriers, "buffers that share space are hazards of each other"},
      {"peel_loops", peel_loops, "last: the parts of a loop are copies of a finished body"},
  }};
  return passes;
}

}  // namespace flashcore
