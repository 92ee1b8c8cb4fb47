#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "codegen/passes/passes.h"

namespace flashcore {
namespace {

void add(PassNotes* notes, std::string line) {
  if (notes && std::ranges::count(*notes, line) == 0) notes->push_back(std::move(line));
}

}  // namespace

void PassContext::note_numerics(const std::string& how) const { add(notes, "numerics: " + how); }

void PassContext::note_refusal(const std::string& asked, const std::string& why) const {
  add(notes, fmt::format("not taken: {}: {}", asked, why));
}

std::span<const Pass> pipeline() {
  static constexpr auto passes = std::to_array<Pass>({
      {"apply_schedule", apply_schedule, "all later passes need tile sizes"},
      {"simplify", simplify, "before masks are added, so that a scale has moved past the maximum"},
      {"mask_tails", mask_tails, "before bound_masks, for which a tail is one more condition"},
      {"bound_masks", bound_masks, "while conditions are still tiles of expressions"},
      {"place_probes", place_probes, "after masks, whose `where` is what a probe shows"},
      {"fix_maximum", fix_maximum,
       "behind bound_masks, which needs the maximum to know what hidden scores come to"},
      {"round_weights", round_weights, "behind fix_maximum, which leaves such weights"},
      {"split_loops", split_loops, "behind bound_masks, whose bounds it splits"},
      {"precise_tanh", precise_tanh,
       "behind simplify, which brings the factors of a softcap together; commute_tanh leaves such "
       "a tanh alone"},
      {"commute_tanh", commute_tanh,
       "behind bound_masks, for which its `where` would be one more mask"},
      {"lift_row_terms", lift_row_terms,
       "behind bound_masks, and behind simplify, which makes one multiply-add of a score"},
      {"fuse_exponents", fuse_exponents,
       "behind lift_row_terms, which changes what is subtracted; before values get layouts"},
      {"choose_instructions", choose_instructions,
       "before memory spaces and layouts, which follow from the instructions"},
      {"sum_by_products", sum_by_products, "before those sums are spread over lanes"},
      {"defer_reductions", defer_reductions,
       "before layouts, which need to know who holds a partial"},
      {"separate_layouts", separate_layouts,
       "before layouts, which then change at conversions only"},
      {"stage_operands", stage_operands,
       "before layouts: the two sides of a conversion have layouts of their own"},
      {"load_lookups", load_lookups,
       "before layouts, and behind all that looks through a score for what it is made of"},
      {"infer_layouts", infer_layouts, "decides which loads go through shared memory"},
      {"share_vectors", share_vectors, "sees in the layouts which lanes would load the same"},
      {"exchange_partials", exchange_partials,
       "knows from the layouts which partials other warps hold"},
      {"pipeline_loads", pipeline_loads,
       "needs the memory spaces, and one loop rather than its peeled ranges"},
      {"assign_roles", assign_roles, "instead of pipeline_loads, for copies by TMA"},
      {"schedule_tiles", schedule_tiles, "its loops stand around all that a role does"},
      {"advance_loads", advance_loads, "knows what the producer loads, and into which rings"},
      {"start_turns", start_turns, "in front of overlap_products, which takes loops apart"},
      {"overlap_products", overlap_products,
       "the waits for slots stand in front of the products that read them"},
      {"take_turns", take_turns, "where overlap_products has moved the stores to"},
      {"refill_slots", refill_slots, "a slot is filled where overlap_products releases it"},
      {"clear_rows", clear_rows, "behind overlap_products, which moves a wait as one"},
      {"stage_stores", stage_stores, "its buffer has to be in the plan of shared memory"},
      {"plan_shared_memory", plan_shared_memory, "all buffers and their uses are known"},
      {"insert_barriers", insert_barriers, "buffers that overlap are hazards of each other"},
      {"peel_loops", peel_loops, "the peeled loops are copies of a finished body"},
      {"fence_products", fence_products, "behind the passes that copy and move products"},
      {"expand_tanh", expand_tanh,
       "behind peel_loops: which polynomials serve depends on the masks of a loop"},
      {"guard_masks", guard_masks, "behind expand_tanh, which moves masks into its branches"},
      {"fuse_elementwise", fuse_elementwise, "no op changes its place any more"},
      {"check_lookups", check_lookups, "behind fuse_elementwise: the test is one a nest"},
      {"split_positions", split_positions,
       "behind check_lookups, whose nests look up more cheaply"},
      {"order_kernels", order_kernels, "no op that touches a tensor is placed in front any more"},
      {"assign_registers", assign_registers, "behind all that makes another tile"},
      {"pin_sums", pin_sums, "knows which sum has the array of the product that adds to it"},
  });
  return passes;
}

}  // namespace flashcore
