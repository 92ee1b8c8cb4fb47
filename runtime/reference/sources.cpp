#include "runtime/reference/sources.h"

#include <limits>

#include "runtime/reference/formats.h"

namespace flashcore {

using namespace ir;

void fill_source(const Function& f, const Op& op, const Binding& arrays, const Place& place,
                 Precision precision, TileValue& value) {
  double number = 0;
  switch (op.code) {
    case OpCode::parameter:
      number = arrays[op.parameter];
      break;
    case OpCode::extent:
      number = static_cast<double>(f[op.axis].ragged ? place.axis.length
                                                     : arrays.length(f[op.axis].extent));
      break;
    case OpCode::index:
    case OpCode::tile_begin:
    case OpCode::thread_begin:
      number = static_cast<double>(place.axis.begin());
      break;
    case OpCode::tile_count:
      number = static_cast<double>(place.axis.count);
      break;
    case OpCode::cluster_rank:
      number = place.cluster_rank;
      break;
    case OpCode::has_counter:
      break;
    case OpCode::first_thread:  // what one thread or one warp does, the block does
    case OpCode::owns_rows:
      number = 1;
      break;
    case OpCode::undefined:
      number = std::numeric_limits<double>::quiet_NaN();
      break;
    case OpCode::dimension:
      number = static_cast<double>(
          arrays.length(f[op.tensor].dims[static_cast<std::size_t>(op.number)]));
      break;
    default:
      number = op.number;
      if (precision == Precision::storage) number = round_to(f[op.results[0]].type.dtype, number);
  }
  const bool split = op.code == OpCode::thread_begin || op.code == OpCode::thread_offset;
  for (std::size_t i = 0; i < value.data.size(); ++i) {
    const int offset = split ? f[op.results[0]].layout.axes[0].offset(static_cast<int>(i)) : 0;
    value.data[i] = op.code == OpCode::index ? number + static_cast<double>(i) : number;
    if (op.code == OpCode::thread_offset) value.data[i] = offset;
    if (op.code == OpCode::thread_begin) value.data[i] += static_cast<double>(i) - offset;
  }
}

}  // namespace flashcore
