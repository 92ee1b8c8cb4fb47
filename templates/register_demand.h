// Whether the tiles of a schedule fit in registers together with what a mask looks up for them.
#pragma once

#include <vector>

#include "templates/attention.h"

namespace flashcore {

/// Leaves out the schedules that the compiler would refuse for their registers, as far as the
/// lookups of the mask tell: to find out by compiling takes seconds. The last one stays.
void leave_out_crowded(std::vector<Schedule>& schedules, const AttentionSpec& spec,
                       const Target& target);

}  // namespace flashcore
