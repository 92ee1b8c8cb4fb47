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
/// if the elements beyond it would change the result.
void mask_tails(ir::Function& f, const PassContext& context);

/// Turns conditions on positions into loop bounds: tiles where nothing is visible are not visited,
/// and masks get a guard, which holds on tiles that none of them cuts.
void bound_masks(ir::Function& f, const PassContext& context);

/// Moves the stores of probes (dsl/probes.h) to where their values are computed, and derives the
/// value of tiles that a loop does not visit.
void place_probes(ir::Function& f, const PassContext& context);

/// Subtracts a constant instead of a running maximum where the scores are bounded.
void fix_maximum(ir::Function& f, const PassContext& context);

/// Sums up weights as products take them, rounded, where no maximum makes the largest of them 1.
void round_weights(ir::Function& f, const PassContext& context);

/// Splits a loop over the blocks of a cluster, and combines what they carry to its end.
void split_loops(ir::Function& f, const PassContext& context);

/// Has a tanh computed with a small relative error where later operations multiply its error.
void precise_tanh(ir::Function& f, const PassContext& context);

/// Takes the maximum and the mask of a tanh from its argument, and moves the tanh to its reader.
void commute_tanh(ir::Function& f, const PassContext& context);

/// Moves a bias that all scores of a row have in common to the row's maximum.
void lift_row_terms(ir::Function& f, const PassContext& context);

/// Makes the exponent of a softmax one multiply-add an element, and keeps its precision where
/// scores are large.
void fuse_exponents(ir::Function& f, const PassContext& context);

/// Says which tensor-core instruction makes each product.
void choose_instructions(ir::Function& f, const PassContext& context);

/// Sums up the weights of a product by a product with a tile of ones.
void sum_by_products(ir::Function& f, const PassContext& context);

/// Keeps the partials of a sum that a loop only scales and adds to in lanes and warps, and combines
/// them once, behind the loop.
void defer_reductions(ir::Function& f, const PassContext& context);

/// Has the copy engine bring the tiles of a tensor with an element for each row and key.
void load_lookups(ir::Function& f, const PassContext& context);

/// With softmax = shared, adds conversions through shared memory between products and all other
/// operations.
void separate_layouts(ir::Function& f, const PassContext& context);

/// Writes computed right operands of products to shared memory.
void stage_operands(ir::Function& f, const PassContext& context);

/// Gives every value its memory space and layout (Value::layout), by propagation from the products.
void infer_layouts(ir::Function& f, const PassContext& context);
void share_vectors(ir::Function& f, const PassContext& context);

/// Combines the partials of several warps through shared memory, and those of the blocks of a
/// cluster through each other's.
void exchange_partials(ir::Function& f, const PassContext& context);

/// Turns loads into shared memory into asynchronous copies, issued several tiles ahead in loops.
void pipeline_loads(ir::Function& f, const PassContext& context);

/// With copies by TMA: gives the warps of a block the roles of producer and consumers.
void assign_roles(ir::Function& f, const PassContext& context);

/// Numbers the blocks of the grid, and puts loops over tiles around the roles of blocks that
/// compute several.
void schedule_tiles(ir::Function& f, const PassContext& context);

/// Has the producer of a block with several tiles issue first the loads whose slots are free first.
void advance_loads(ir::Function& f, const PassContext& context);

/// Issues asynchronous products as early, and waits for them as late, as data and the schedule
/// allow.
void overlap_products(ir::Function& f, const PassContext& context);

/// Says where a role that reads the rings it fills goes on filling them.
void refill_slots(ir::Function& f, const PassContext& context);

/// Has rows of a tile in a slot of a channel cleared that lie beyond their axis.
void clear_rows(ir::Function& f, const PassContext& context);

/// Sends 16-bit outputs through shared memory.
void stage_stores(ir::Function& f, const PassContext& context);

/// Gives warps of a role that synchronise the number of a named barrier.
void number_barriers(ir::Function& f, const PassContext& context);

/// Gives every buffer an address; buffers that are not live at the same time may overlap.
void plan_shared_memory(ir::Function& f, const PassContext& context);

/// Puts barriers, meetings and fences wherever a thread could meet another's shared memory too
/// early, and nowhere else.
void insert_barriers(ir::Function& f, const PassContext& context);

/// Splits a loop with four bounds into loops over its masked, unmasked and masked tiles.
void peel_loops(ir::Function& f, const PassContext& context);

/// Keeps the operands of products that add to each other from being loaded all at once.
void fence_products(ir::Function& f, const PassContext& context);

/// Puts polynomials in the place of a tanh where its arguments are small.
void expand_tanh(ir::Function& f, const PassContext& context);

/// Makes an `if` of every mask that few tiles need.
void guard_masks(ir::Function& f, const PassContext& context);

/// Makes nests of elementwise operations: one loop over a thread's elements for several.
void fuse_elementwise(ir::Function& f, const PassContext& context);

/// Looks up sums of positions without a check of each, where a test of the tile answers for all.
void check_lookups(ir::Function& f, const PassContext& context);

/// Tells what all elements of a thread's row have in common of a position from the rest.
void split_positions(ir::Function& f, const PassContext& context);

/// Blocks that add in order note how far they have come, where their loops visit no tile.
void start_turns(ir::Function& f, const PassContext& context);

/// Has blocks that add in order wait for their turn at each tile, and pass it on.
void take_turns(ir::Function& f, const PassContext& context);

/// Has a kernel of a module wait for those in front of it, and lets those behind it start early.
void order_kernels(ir::Function& f, const PassContext& context);

/// Says which register tiles share an array.
void assign_registers(ir::Function& f, const PassContext& context);

/// Pins sums where they are scaled in front of a product.
void pin_sums(ir::Function& f, const PassContext& context);

}  // namespace flashcore
