// One operation of a program: a code, operands, results and a few attributes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/error.h"
#include "dsl/instruction.h"
#include "dsl/ir/ids.h"
#include "dsl/ir/layout.h"

namespace flashcore::ir {

enum class OpCode : std::uint8_t {
#define FC_OP(code, kind, meaning) code,
#include "dsl/ir/ops.def"
#undef FC_OP
};

enum class OpKind : std::uint8_t { source, elementwise, reduction, tile, memory, sync, control };

std::string_view name_of(OpCode code);
OpKind kind_of(OpCode code);
/// A source that is about the thread or its block, rather than about an axis or a parameter.
inline bool asks_who_runs(OpCode code) {
  return code == OpCode::cluster_rank || code == OpCode::has_counter ||
         code == OpCode::first_thread || code == OpCode::owns_rows;
}
/// Regions that take no arguments, as those of an if.
inline bool is_plain(OpCode code) { return code == OpCode::if_ || code == OpCode::nest; }

/// One index of a load or a store: the current tile of an axis, one scalar position, or a position
/// for each element of an axis of the tile. Such positions are a tile of i32 over that axis; of an
/// issue, whose tile is not the current one, the region computes them.
struct Coordinate {
  AxisId axis;
  ValueId value;
  bool computed = false;  ///< issue: what the region yields, over the axis
  bool operator==(const Coordinate&) const = default;
};

/// Which tile a block computes after another.
enum class TileScheduler : std::uint8_t {
  consecutive,  ///< the one behind it
  serpentine,   ///< as many further on as there are blocks; every other wave of blocks backwards
  dynamic,      ///< the next that no block has taken, by a counter in global memory
};

std::string_view name_of(TileScheduler scheduler);

/// Where the copy engine brings a tile in several boxes, the rows of a box are a multiple of this: each
/// box begins with a period of the swizzle in shared memory, which is that many lines.
inline constexpr int box_row_step = 8;

/// How what is issued gets into a slot of a channel.
enum class Transport : std::uint8_t {
  none,      ///< a buffer that is no channel
  vector,    ///< loads and stores of 16 bytes
  cp_async,  ///< copies by all threads, which land a group at a time
  tma,  ///< copies of whole tiles by the copy engine, which say themselves that they have completed
  store,  ///< a scalar from one thread
  warps,  ///< a tile of registers from all warps of a role, each of which writes its part
};

std::string_view name_of(Transport transport);

/// Whether a store adds to the elements that the tensor holds, and what of the order in which blocks
/// do is the same in every launch.
enum class Accumulation : std::uint8_t {
  none,       ///< it replaces them
  any_order,  ///< atomically: sums of floats may be rounded otherwise in another launch
  in_order,   ///< one block after the other, each at its turn
};

/// How much of a reduction, or of a product's sum, the op itself does: all of it, or the partial of
/// each warp or of each lane. `combine_partials` combines the partials.
enum class ReductionScope : std::uint8_t { block, warp, lane };

struct Op {
  OpCode code{};
  std::vector<ValueId> operands;
  std::vector<ValueId> results;
  Location where;

  AxisId
      axis;  ///< loop, enter, scan_tiles, reductions, index, extent, tile_begin, tile_count, segment, find_segment
  TensorId
      tensor;  ///< load, store, issue, gather, find_segment, searchsorted, wait_turn, release_turn
  std::uint8_t wraps =
      0;                  ///< gather: a bit a dimension, where a negative index counts from the end
  bool inside = false;    ///< gather: no index is outside the tensor, or needs to wrap
  ParameterId parameter;  ///< parameter
  BufferId buffer;        ///< channels, convert to shared memory; scan and who reads it
  std::vector<Coordinate> coordinates;  ///< load, store, issue: one a tensor dimension
  double number = 0;                    ///< constant; dimension: which
  /// wait, wait_products: groups that may stay in flight, or slots of the ring that are held already. acquire,
  /// issue, commit in a channel that the role itself reads: slots that are filled already.
  int pending = 0;
  /// cluster_rank, owns_rows, convert: blocks of the cluster that split a loop, or get rows of a
  /// tile
  int blocks = 0;
  bool acquires = false;  ///< issue: waits for its slot behind its region, which computes positions
  int box_rows = 0;       ///< issue by tma: of each box, where a tile comes in several; else 0
  int rank = 0;           ///< cluster_read: of the block whose value it is
  ReductionScope scope = ReductionScope::block;  ///< reductions, dot
  OpCode reduction{};                            ///< combine_partials: which reduction it finishes
  AxisLayout
      partials;  ///< combine_partials, convert of partials: the lanes and warps that hold them

  // loop. Operands are the bounds, then the initial values. As built there are no bounds and the
  // loop covers every tile of the axis; [begin, end) limits it. The region's arguments are the
  // tile's number and the carried values. With a buffer the loop visits those tiles of [begin, end)
  // that a scan found. A loop without an axis counts from begin to end.
  //
  // if. The operand is the condition. Both regions end with a yield of what the results are.
  //
  // issue. The region, if there is one, yields the positions of each computed coordinate in the
  // tile that is issued, in the order of dimensions; with `box_rows` those of a box, and its argument
  // is the number of the box's first row within the tile.
  //
  // scan. Operands are the bounds. The region yields two conditions on the positions of a tile:
  // whether one may be visible to the block, and whether it surely is visible to all of it.
  BlockId body;
  BlockId otherwise;  ///< if: the region behind `else`, if there is one
  int bounds = 0;
  bool descending = false;  ///< loop, next_tile
  bool unordered = false;   ///< loop: the program says that its tiles may be visited in any order

  // tile_loop. The operand is the number of tiles of all blocks; `consecutive` has two, the first
  // tile of this block and the number behind its last. The region's argument is a tile's number.
  // With the dynamic scheduler the region yields the next number, and else nothing.
  TileScheduler scheduler{};

  Accumulation accumulation{};  ///< store
  TensorId turns;               ///< store in order: where every block notes how far it has come

  // role: what it is called, its warps, and the register budget of their threads, if there is one,
  // instead of the registers that they start with. Roles are listed from the last warps of the
  // block down to the first.
  std::string name;
  int first_warp = 0, warps = 0, registers = 0, registers_at_start = 0;

  /// nest: the compiler moves no instruction past the first element of every so manieth fragment
  /// along the last axis; 0: it may move all.
  /// dot: 1 where the compiler moves nothing past where it begins.
  int fence = 0;

  bool precise = false;  ///< tanh: with a small relative error, however small its value
  bool issued = false;   ///< dot: its sum may be read behind `wait_products` only
  OperandRounding rounding = OperandRounding::none;  ///< dot
  /// dot, convert to an operand: the instruction that makes the product (set by
  /// choose_instructions).
  std::optional<Instruction> instruction;
};

}  // namespace flashcore::ir
