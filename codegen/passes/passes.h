// Every pass, in the order of the pipeline. Each is one function in the file of its name.
#pragma once

#include "codegen/pass.h"

namespace flashcore {

/// Gives every axis its tile size and every loop its direction. After it, Axis::tile is set.
void apply_schedule(ir::Function& f, const PassContext& context);

/// Folds constants, removes repeated and dead operations, and applies the algebra that makes a
/// softmax cheap: one fused multiply-add and one exponential an element.
void simplify(ir::Function& f, const PassContext& context);

/// Makes reductions and products range over the true extent of a tiled axis: inserts a `where` only
/// if the elements beyond it do not already contribute nothing.
void mask_tails(ir::Function& f, const PassContext& context);

/// Turns conditions on positions into loop bounds: tiles where nothing is visible are not visited,
/// and masks get a guard, which holds on tiles that none of them cuts.
void bound_masks(ir::Function& f, const PassContext& context);

/// Puts the stores of probes (dsl/probes.h) where the values are made, and derives what a tile that
/// is not visited is worth.
void place_probes(ir::Function& f, const PassContext& context);

/// Subtracts a constant instead of a running maximum where what it is the maximum of is bounded.
void fix_maximum(ir::Function& f, const PassContext& context);

/// Sums up weights as products take them, rounded, where no maximum makes the largest of them 1.
void round_weights(ir::Function& f, const PassContext& context);

/// Lets the blocks of a cluster share out the tiles of a loop, and puts together what they carry to
/// its end.
void share_loops(ir::Function& f, const PassContext& context);

/// Has a tanh computed in proportion to itself where what is made of it multiplies its error.
void precise_tanh(ir::Function& f, const PassContext& context);

/// Takes the maximum and the mask of a tanh from its argument, and puts the tanh where it is read.
void commute_tanh(ir::Function& f, const PassContext& context);

/// Adds what a bias gives to all scores of a row alike to the row's values, instead of to each
/// score.
void lift_row_terms(ir::Function& f, const PassContext& context);

/// Makes the exponent of a softmax one multiply-add an element, and keeps its precision where
/// scores are large.
void fuse_exponents(ir::Function& f, const PassContext& context);

/// Says which tensor-core instruction makes each product.
void choose_instructions(ir::Function& f, const PassContext& context);

/// Lets a product with a tile of ones take the sums that a product's weights are divided by.
void sum_by_products(ir::Function& f, const PassContext& context);

/// Leaves a sum that a loop only scales and adds to spread over lanes and warps; combines the
/// shares once, after.
void defer_reductions(ir::Function& f, const PassContext& context);

/// With softmax = shared, puts conversions through shared memory between products and everything
/// else.
void separate_homes(ir::Function& f, const PassContext& context);

/// Writes computed right operands of products to shared memory, from where products read them.
void stage_operands(ir::Function& f, const PassContext& context);

/// Gives every value a home (Value::home), by propagation from the products.
void infer_layouts(ir::Function& f, const PassContext& context);

/// Lets shares that lie in different warps meet through shared memory, and what blocks of a cluster
/// have through each other's.
void exchange_shares(ir::Function& f, const PassContext& context);

/// Makes loads with a home in shared memory asynchronous copies, several tiles ahead in loops.
void pipeline_loads(ir::Function& f, const PassContext& context);

/// With copies by the copy engine: parts a block's warps into one that fills rings and those that
/// compute.
void assign_roles(ir::Function& f, const PassContext& context);

/// Numbers the blocks of the grid, and puts loops over tiles around the roles of blocks that compute
/// several.
void schedule_tiles(ir::Function& f, const PassContext& context);

/// Lets a producer that goes on to the next tile ask for what is free first.
void advance_fills(ir::Function& f, const PassContext& context);

/// Starts asynchronous products as early, and waits for them as late, as data and the schedule
/// allow.
void overlap_products(ir::Function& f, const PassContext& context);

/// Says where a role that reads the rings it fills goes on filling them.
void refill_slots(ir::Function& f, const PassContext& context);

/// Sends 16-bit outputs through shared memory.
void stage_stores(ir::Function& f, const PassContext& context);

/// Gives warps of a role that meet the number of a barrier.
void number_barriers(ir::Function& f, const PassContext& context);

/// Gives every buffer its place; buffers that do not live at the same time share one.
void plan_shared_memory(ir::Function& f, const PassContext& context);

/// Puts a barrier wherever a thread could meet another's shared memory too early, and nowhere else.
void insert_barriers(ir::Function& f, const PassContext& context);

/// Splits loops with four bounds into masked, unmasked and masked parts.
void peel_loops(ir::Function& f, const PassContext& context);

}  // namespace flashcore
