// Whether the tiles of a schedule fit in registers together with the values that a mask looks up.
#pragma once

#include <vector>

#include "templates/attention.h"

namespace flashcore {

/// Leaves out the schedules that would spill because of the lookups of the mask; finding that out
/// by compiling takes seconds. The last schedule stays.
void leave_out_crowded(std::vector<Schedule>& schedules, const AttentionSpec& spec,
                       const Target& target);

}  // namespace flashcore
