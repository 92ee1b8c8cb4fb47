// Operations without operands: positions, lengths, parameters and constants.
#pragma once

#include "runtime/reference/binding.h"
#include "runtime/reference/memory.h"
#include "runtime/reference/reference.h"
#include "runtime/reference/tile_value.h"

namespace flashcore {

/// Where the program stands.
struct Place {
  AxisState axis;        ///< of the operation, if it names one
  int cluster_rank = 0;  ///< of the block that runs
};

/// Fills `value`, a tile of the type of the operation's result.
void fill_source(const ir::Function& f, const ir::Op& op, const Binding& arrays, const Place& place,
                 Precision precision, TileValue& value);

}  // namespace flashcore
