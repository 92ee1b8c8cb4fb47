// Schedules for a head_dim above 256, where the output of a query row no longer fits in the
// registers of one warp.
#pragma once

#include <vector>

#include "templates/attention.h"

namespace flashcore {

/// Whether the output or the scores of a spec are that wide.
bool is_wide(const AttentionSpec& spec);

/// Every schedule of products of one warp each whose tiles fit in shared memory and registers, the
/// largest tiles first. Not empty: where none fits, the one with the smallest tiles.
std::vector<Schedule> wide_schedules(const AttentionSpec& spec, const Target& target);

}  // namespace flashcore
