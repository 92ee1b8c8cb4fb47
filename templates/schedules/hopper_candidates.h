// The schedules for Hopper among which the cost model chooses.
#pragma once

#include <vector>

#include "templates/attention.h"
#include "templates/choice/expression_traits.h"

namespace flashcore {

/// For products of warpgroups: tiles of 64, 128 and 192 query rows, with as many key columns as
/// registers and shared memory hold; small blocks alone or in a cluster; each tile scheduler; with
/// ping-pong and without. What of it is best depends on the problem.
std::vector<Schedule> hopper_candidates(const AttentionSpec& spec, const MaskTraits& mask,
                                        const ScoreTraits& score);

}  // namespace flashcore
