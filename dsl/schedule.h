// How a program is mapped to a GPU. Plain data, in three parts: mapping, ordering and numerics. It
// may change speed and rounding, never meaning. Code generation refuses a schedule that the program
// or the target cannot run, with the limit it breaks.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "dsl/instruction.h"

namespace flashcore {

enum class CopyInstruction {
  cp_async,  ///< 16-byte asynchronous copies (sm_80 and up)
  vector,    ///< 16-byte loads and stores; every target
  tma,       ///< whole tiles by the copy engine, issued by a producer warp (sm_90a)
};
/// Where the elementwise operations and reductions between products run.
enum class Softmax {
  registers,  ///< on the accumulators themselves, whose layout has to be known
  shared,     ///< on rows that the lanes read from shared memory: fewer shuffles, more traffic
};
/// What warps along the columns of a product divide among them where its left operand is computed.
enum class ProductSplit {
  terms,  ///< the terms of its sum: the operand stays in registers, partial sums are combined in the end
  columns,  ///< the columns of its result: the operand goes through shared memory
};
/// Which parallel axis runs fastest over neighbouring thread blocks.
enum class GridOrder {
  tiles_first,  ///< the tiles of one head are neighbours and share its keys in L2
  tiles_last,   ///< the same tile of all heads are neighbours
  grouped,      ///< the same tile of as many heads as half of L2 holds (persistent blocks only)
};

/// The tile scheduler: how a persistent block gets its next tile.
enum class PersistentScheduler {
  serpentine,  ///< static: wave after wave of tiles, every other wave backwards
  dynamic,     ///< dynamic: the next tile that no block has taken, by a counter in global memory
};
struct Schedule {
  // ---- Mapping: which warps, blocks and instructions compute what, and where it lies meanwhile.

  /// Elements of a tile, by axis name; one entry for every tiled axis of the program.
  std::map<std::string, int> tiles;

  int warps_m = 4;  ///< warps along the rows of a product
  int warps_n = 1;  ///< warps along its columns

  Instruction instruction = Instruction::mma_m16n8k16;
  CopyInstruction copy = CopyInstruction::cp_async;
  Softmax softmax = Softmax::registers;

  /// Left operands that a loop does not change stay in registers instead of being read again.
  bool keep_operands = false;
  /// The copy engine brings vectors along the axis of a loop, such as the LSE of query rows beside
  /// transposed scores, with the loop's tiles; else threads load them and give each other the elements.
  bool load_vectors = false;
  /// Outputs go through shared memory, so that they are stored in whole 16-byte chunks.
  bool staged_stores = true;
  /// The compiler may keep the addresses in shared memory at which a thread writes these outputs, from one
  /// output tile of a persistent block to the next; else they are computed anew, which leaves registers.
  bool keep_addresses = true;
  /// Block 0 gets the last tile of a parallel_tiles axis: the longest rows of a causal mask first.
  bool last_tiles_first = false;
  /// Tiles of a parallel_tiles axis end where the axis ends, so that the first of them is partial rather
  /// than the last: under a causal mask, the tile with the fewest keys rather than the most.
  bool end_aligned_tiles = false;
  GridOrder grid_order = GridOrder::tiles_first;
  /// The grid has one dimension, and each block computes its position along every axis from its
  /// number, as persistent blocks always do. For more than 65535 blocks along an axis, which CUDA's
  /// grid has in its first dimension only.
  bool flat_grid = false;
  /// Persistent blocks: as many as fit on the GPU at once, each of which computes one output tile
  /// after the other; the loads of the next tile are issued during the epilogue of the last.
  bool persistent = false;
  PersistentScheduler tile_scheduler = PersistentScheduler::serpentine;  ///< of persistent blocks
  /// A block computes so many positions of the last parallel axis (attention's heads) one after the
  /// other, and finds out once for all of them which tiles hold visible keys, and where its
  /// sequence begins.
  int positions_per_block = 1;
  /// Blocks of a cluster, with neighbouring tiles, that share what their loops load: of each tile that
  /// one of them visits every block loads its part of the rows, for all of them (multicast).
  /// Half as many bytes come from L2, which takes less power. The blocks wait for each other. 1 or 2.
  int multicast_blocks = 1;

  // Four warps are a warpgroup; with wgmma and tma, `warps_m` counts those of the consumers.

  /// A warpgroup of its own issues the loads. Without it a thread of the only consumer warpgroup
  /// does, so that more blocks fit on a multiprocessor.
  bool producer = true;
  /// Warps of the producer that issue loads: with 2 the tiles that a loop loads, such as keys and values, are
  /// divided among them. For tiles that come in many boxes, as from small pages: one thread issues a box after
  /// the other. 1 or 2.
  int producer_warps = 1;
  /// Blocks that a multiprocessor must hold, as far as registers go: a kernel that would spill then is
  /// refused rather than run slowly.
  int blocks_per_processor = 1;

  // ---- Ordering: what is issued when, and what is in flight beside what. Results stay the same.

  int stages = 2;  ///< slots of the ring of each tile that a loop loads
  /// Slots for a tile that is loaded outside loops, such as the query. With two, a block that
  /// computes several tiles loads the next query while the last one is in use, and a warpgroup that
  /// has finished its tile goes on before the others have.
  int outer_stages = 1;
  /// Tiles that a mask cuts get a copy of the loop of their own. Otherwise one loop masks them
  /// behind a test of the tile's number: half the code, and fewer registers live across it.
  bool peel_masks = false;
  /// The first product of an iteration is in flight together with the second product of the
  /// previous iteration, while the operations between them are computed (wgmma).
  bool overlap_products = true;
  /// Where products overlap: a product runs beside what its own iteration still computes, and only one behind
  /// which that computes nothing runs beside the next iteration; else every product that needs another of its
  /// iteration does. Operands that all warpgroups compute for each other's products have two slots.
  bool late_products = false;
  /// Where products overlap: a carried sum is rescaled right before the product that adds to it is
  /// issued, rather than behind the wait for the previous one.
  bool rescale_before_product = false;
  /// And in front of the wait for the tile that this product reads, beside the product in front of
  /// it. Otherwise the compiler chooses, which moves it behind the wait in most kernels.
  bool rescale_before_wait = false;
  /// A warp whose factors are all one skips the rescaling of a carried sum.
  bool lazy_scaling = false;
  /// Independent partial maxima of a row in each thread, so that comparisons do not wait for each
  /// other.
  int reduction_chains = 1;
  /// Ping-pong: one warpgroup issues its products while the others compute their softmax.
  bool ping_pong = false;

  // ---- Numerics: what sums are made of and in which order, and so how results are rounded, within
  // twice the error of a plain evaluation. explain() names what of it takes effect.

  /// Loops run from the last tile to the first.
  bool descending = true;
  /// What warps along the columns divide among them in a product whose left operand is computed.
  /// With columns, each holds some columns of a wide result, such as the output of a large head_dim;
  /// with terms, their partial sums are combined.
  ProductSplit product_split = ProductSplit::terms;
  /// Blocks of a cluster over which a loop is split, each with a range of its tiles: 1, 2, 4 or 8.
  /// They combine what they carry at the end through each other's shared memory. For problems with
  /// too few rows to fill the GPU.
  int cluster_splits = 1;
  /// A product with columns of ones sums up the softmax weights, where the sum is only needed to
  /// divide the output.
  bool sums_by_products = false;

  [[nodiscard]] int consumer_threads() const { return 32 * warps_m * warps_n; }
  [[nodiscard]] int threads() const {
    return consumer_threads() + (copy == CopyInstruction::tma && producer ? 128 : 0);
  }
  /// Blocks of a cluster.
  [[nodiscard]] int cluster() const { return cluster_splits * multicast_blocks; }
  /// Whether a block computes several output tiles one after the other.
  [[nodiscard]] bool has_next_tiles() const { return persistent || positions_per_block > 1; }
  bool operator==(const Schedule&) const = default;
};

std::string_view name_of(CopyInstruction copy);
std::string_view name_of(Softmax softmax);
std::string_view name_of(ProductSplit split);
std::string_view name_of(GridOrder order);
std::string_view name_of(PersistentScheduler order);

}  // namespace flashcore
