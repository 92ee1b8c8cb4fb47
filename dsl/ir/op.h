// One operation of a program: a code, operands, results and a few attributes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "dsl/error.h"
#include "dsl/ir/ids.h"

namespace flashcore::ir {

enum class OpCode : std::uint8_t {
#define FC_OP(code, kind, meaning) code,
#include "dsl/ir/ops.def"
#undef FC_OP
};

enum class OpKind : std::uint8_t { source, elementwise, reduction, tile, memory, sync, control };

std::string_view name_of(OpCode code);
OpKind kind_of(OpCode code);

/// One index of a load or a store: the current tile of an axis, or one scalar position.
struct Coordinate {
  AxisId axis;
  ValueId value;
  bool operator==(const Coordinate&) const = default;
};

/// How much of a reduction the op itself does. A sum that only feeds sums can stay spread over the
/// lanes of a warp until `combine_lanes`.
enum class ReductionScope : std::uint8_t { block, lane };

struct Op {
  OpCode code{};
  std::vector<ValueId> operands;
  std::vector<ValueId> results;
  Location where;

  AxisId axis;  ///< loop, survey, reductions, index, extent, tile_begin, tile_count
  TensorId tensor;                      ///< load, store, copy_async, gather
  ParameterId parameter;                ///< parameter
  BufferId buffer;  ///< copy_async, read_slot, convert to shared memory; survey and who reads it
  std::vector<Coordinate> coordinates;  ///< load, store, copy_async: one a tensor dimension
  double number = 0;                    ///< constant
  int count = 0;                        ///< wait_copies
  ReductionScope scope = ReductionScope::block;  ///< reductions
  OpCode reduction{};                            ///< combine_lanes: which reduction it finishes

  /// where: the condition holds for every element of a full tile (set by bound_masks).
  bool masking = false;

  // loop. Operands are the bounds, then the initial values. As built there are no bounds and the loop
  // covers every tile of the axis; [begin, end) limits it; [begin, full_begin, full_end, end) also says
  // between which tiles every masking `where` holds. The region's arguments are the tile's number and
  // the carried values. With a buffer the loop visits those tiles of [begin, end) that a survey found,
  // and the masking `where`s hold on those that the survey found to be visible everywhere.
  //
  // survey. Operands are the bounds. The region yields two conditions on the positions of a tile: whether
  // one may be visible to the block, and whether it surely is visible to all of it.
  BlockId body;
  int bounds = 0;
  bool descending = false;  ///< loop, next_tile
};

}  // namespace flashcore::ir
