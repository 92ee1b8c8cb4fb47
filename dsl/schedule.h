// How a program is mapped to a GPU. Plain data: it may change speed, never meaning. Code generation
// refuses a schedule that the program or the target cannot run, with the limit it breaks.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "dsl/instruction.h"

namespace flashcore {

enum class CopyInstruction {
  cp_async,  ///< 16-byte asynchronous copies (sm_80 and up)
  vector,    ///< 16-byte loads and stores; every target
  tma,       ///< whole tiles by the copy engine, asked for by a producer warp (sm_90a)
};
/// Where the elementwise operations and reductions between products run.
enum class Softmax {
  registers,  ///< on the accumulators themselves, which need a known order of elements
  shared,     ///< on rows that shared memory deals out to the lanes: fewer shuffles, more traffic
};
/// What warps along the columns of a product share out where its left operand is computed.
enum class ProductSplit {
  terms,    ///< the terms of its sum: the operand stays in registers, partial sums meet in the end
  columns,  ///< the columns of its result: the operand goes through shared memory
};
/// Which parallel axis runs fastest over neighbouring thread blocks.
enum class GridOrder {
  tiles_first,  ///< the tiles of one head are neighbours and share its keys in L2
  tiles_last,   ///< the same tile of all heads are neighbours
  sections,     ///< the same tile of as many heads as have room in L2 (persistent blocks only)
};

/// How a persistent block gets from one tile to the next.
enum class TileOrder {
  rounds,   ///< as many further on as there are blocks; every other round backwards
  counter,  ///< the next that no block has yet, by a counter that all draw from
};
struct Schedule {
  /// Elements of a tile, by axis name; one entry for every tiled axis of the program.
  std::map<std::string, int> tiles;

  int warps_m = 4;  ///< warps along the rows of a product
  int warps_n = 1;  ///< warps along its columns
  /// What those share out in a product whose left operand is computed. With columns, each warp
  /// holds a part of a wide result, such as the output of a large head_dim.
  ProductSplit product_split = ProductSplit::terms;
  int stages = 2;  ///< tiles of a loop in flight or in use; 1 waits for each

  Instruction instruction = Instruction::mma_m16n8k16;
  CopyInstruction copy = CopyInstruction::cp_async;
  Softmax softmax = Softmax::registers;

  /// Left operands that a loop does not change stay in registers instead of being read again.
  bool keep_operands = false;
  /// Outputs go through shared memory, so that they leave in whole 16-byte chunks.
  bool staged_stores = true;
  /// Tiles that a mask cuts get a copy of the loop of their own. Otherwise one loop masks them
  /// behind a test of the tile's number: half the code, and fewer registers kept over it.
  bool peel_masks = false;
  /// Loops run from the last tile to the first.
  bool descending = true;
  /// Block 0 gets the last tile of a parallel_tiles axis: the longest rows of a causal mask first.
  bool last_tiles_first = false;
  GridOrder grid_order = GridOrder::tiles_first;
  /// Blocks are numbered in one row, which each takes apart by itself, as persistent ones always
  /// do. For more than 65535 blocks along an axis: CUDA's grid has more in its first dimension
  /// only.
  bool flat_grid = false;

  /// Where the values that a loop takes the maximum of are bounded, as capped scores are, softmax
  /// subtracts a constant instead of the largest of a row, and no sum is scaled from round to
  /// round.
  bool fixed_maximum = true;
  // Of wgmma and tma. Four warps are a warpgroup; `warps_m` counts those that compute, and one
  // warpgroup more produces.

  /// The next product of a loop runs beside the one that takes the last round's result, while what
  /// lies between them is computed.
  bool overlap_products = true;
  /// Where products overlap: a carried sum is scaled before the product that adds to it starts,
  /// rather than behind the one before.
  bool scale_late = false;
  /// A carried sum is scaled only in warps where some factor is not one.
  bool lazy_scaling = false;
  /// Partial results side by side in a maximum along a tile's columns, each of which waits for no
  /// other.
  int reduction_chains = 1;
  /// The tensor core adds up what a product weighs its rows by, where that is all a carried sum is
  /// for.
  bool sums_by_products = false;
  /// Warpgroups take turns at starting products, so that one computes while another multiplies.
  bool alternate = false;
  /// As many blocks as fit on the GPU work through all tiles; the next one's loads start during a
  /// store.
  bool persistent = false;
  TileOrder tile_order = TileOrder::rounds;  ///< of persistent blocks
  /// A block goes through so many positions of the last parallel axis (attention's heads) one after
  /// the other, with what it has found out in front of them: which tiles hold something visible,
  /// and where its sequence lies.
  int positions_per_block = 1;
  /// Slots for a tile that is loaded outside loops. With two, a block of several tiles loads it for
  /// its next one while this one's is in use, and a warpgroup that is done goes on before the
  /// others are.
  int outer_stages = 1;
  /// Blocks of a cluster that share out the tiles of a loop: 1, 2, 4 or 8. What each has carried to
  /// its end they put together through each other's shared memory. For problems of fewer rows than
  /// fill the GPU.
  int loop_blocks = 1;
  /// A warpgroup of its own asks for copies. Without it a thread of the one warpgroup that computes
  /// does, so that more blocks fit on a multiprocessor.
  bool producer = true;
  int producer_registers = 0;  ///< a thread; 0: what the consumers leave
  int consumer_registers = 0;  ///< a thread; 0: the most that fit

  // Budgets. A kernel that exceeds one fails to compile rather than run slowly.
  int blocks_per_processor = 1;  ///< resident blocks that registers must allow
  int register_limit = 255;      ///< registers a thread; spills are never accepted
  int shared_limit = 0;          ///< bytes of shared memory a block; 0: what the target has

  [[nodiscard]] int consumer_threads() const { return 32 * warps_m * warps_n; }
  [[nodiscard]] int threads() const {
    return consumer_threads() + (copy == CopyInstruction::tma && producer ? 128 : 0);
  }
  /// Whether a block computes one tile after the other.
  [[nodiscard]] bool has_next_tiles() const { return persistent || positions_per_block > 1; }
  bool operator==(const Schedule&) const = default;
};

std::string_view name_of(CopyInstruction copy);
std::string_view name_of(Softmax softmax);
std::string_view name_of(ProductSplit split);
std::string_view name_of(GridOrder order);
std::string_view name_of(TileOrder order);

}  // namespace flashcore
