// Which shared buffers an op reads and writes.
#pragma once

#include <set>
#include <vector>

#include "dsl/ir/function.h"

namespace flashcore {

/// The first value that a tile in shared memory was, seen through transposes and through loops that
/// carry it.
ir::ValueId tile_in_shared(const ir::Function& f, ir::ValueId value);

/// The buffer a value with its layout in shared memory lies in.
ir::BufferId buffer_of(const ir::Function& f, ir::ValueId value);

struct SharedUse {
  std::vector<ir::BufferId> reads;
  std::vector<ir::BufferId> writes;        ///< by this thread, at once
  std::vector<ir::BufferId> async_writes;  ///< by the copy engine, until a wait
};

/// What the op itself touches; a loop's region is not looked into.
SharedUse shared_use(const ir::Function& f, const ir::Op& op);

/// Buffers that the copy engine or products in flight read: what threads write there they fence.
std::set<ir::BufferId> read_asynchronously(const ir::Function& f);

/// Whether two buffers, which have addresses, have some byte in common.
bool overlap(const ir::Buffer& a, const ir::Buffer& b);

/// Whether the rows of two 16-bit tiles are cut into panels alike, as far as both go.
bool same_panels(const ir::Buffer& a, const ir::Buffer& b);

}  // namespace flashcore
