// Schedules for products of f32 in three bf16 parts.
#pragma once

#include <vector>

#include "templates/attention.h"

namespace flashcore {

/// Those whose tiles fit in shared memory and registers, the one that reads the least from shared
/// memory first. Not empty: where none fits, the one with the smallest tiles.
std::vector<Schedule> split_schedules(const AttentionSpec& spec, const Target& target);

}  // namespace flashcore
