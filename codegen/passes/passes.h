// Every pass, in the order of the pipeline (codegen/pipeline.cpp), which gives the reason for its place.
// The first lines of the file of its name explain it; start_turns is explained with take_turns.
#pragma once

#include "codegen/pass.h"

namespace flashcore {

// The program, whose values are tiles of expressions.
PassFunction apply_schedule, simplify, mask_tails, bound_masks, place_probes, fix_maximum,
    round_weights, split_loops, precise_tanh, commute_tanh, lift_row_terms, fuse_exponents;

// Instructions, memory spaces and layouts.
PassFunction choose_instructions, sum_by_products, defer_reductions, separate_layouts,
    stage_operands, load_lookups, infer_layouts, share_vectors, exchange_partials;

// Copies and products in flight, and the warps and blocks that wait for them.
PassFunction pipeline_loads, assign_roles, schedule_tiles, advance_loads, start_turns,
    overlap_products, take_turns, refill_slots, clear_rows;

// Shared memory.
PassFunction stage_stores, plan_shared_memory, insert_barriers;

// Loops as the kernel has them, and the elements of their tiles.
PassFunction peel_loops, fence_products, expand_tanh, guard_masks, fuse_elementwise, check_lookups,
    split_positions, order_kernels, assign_registers, pin_sums;

}  // namespace flashcore
