// Which shared buffers an op reads and writes.
#pragma once

#include <vector>

#include "dsl/ir/function.h"

namespace flashcore {

/// The buffer of a value in shared memory, seen through transposes.
ir::BufferId buffer_of(const ir::Function& f, ir::ValueId value);

struct SharedUse {
  std::vector<ir::BufferId> reads;
  std::vector<ir::BufferId> writes;        ///< by this thread, at once
  std::vector<ir::BufferId> async_writes;  ///< by the copy engine, until a wait
};

/// What the op itself touches; a loop's region is not looked into.
SharedUse shared_use(const ir::Function& f, const ir::Op& op);

}  // namespace flashcore
