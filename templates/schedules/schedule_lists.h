// The schedules of a spec among which its problems choose, and the lists that they are made of.
#pragma once

#include <vector>

#include "templates/attention.h"
#include "templates/choice/expression_traits.h"

namespace flashcore {

/// One list for each schedule that may be the best for some problem: that schedule, followed by
/// safer ones (attention_schedules says what for). One list alone where nothing depends on the
/// problem.
std::vector<std::vector<Schedule>> schedule_lists(const SpecTraits& traits, const Target& target);

/// Candidates of the cost model for products of warpgroups: tiles of 64, 128 and 192 query rows, with
/// as many key columns as registers and shared memory hold; small blocks alone or in a cluster; each
/// tile scheduler; with ping-pong and without. What of it is best depends on the problem. Wide specs
/// have large tiles alone, and none at all where no tile fits.
std::vector<Schedule> hopper_candidates(const SpecTraits& traits);

/// For f32 products rounded to tf32, the one with the largest tiles that fit first. Empty where the
/// target's tensor cores do not take them.
std::vector<Schedule> float_schedules(const AttentionSpec& spec, const Target& target);

/// For f32 products in three bf16 parts: those whose tiles fit in shared memory and registers, the one
/// that reads the least from shared memory first. Not empty: where none fits, the one with the
/// smallest tiles.
std::vector<Schedule> split_schedules(const AttentionSpec& spec, const Target& target);

/// Whether the output or the scores of a spec are above 256 columns wide, where the output of a query
/// row no longer fits in the registers of one warp.
bool is_wide(const AttentionSpec& spec);

/// Every schedule for such a spec, of products of one warp each, whose tiles fit in shared memory and
/// registers, the largest tiles first. Not empty: where none fits, the one with the smallest tiles.
std::vector<Schedule> wide_schedules(const AttentionSpec& spec, const Target& target);

/// Leaves out the schedules that would spill because of the lookups of the mask; finding that out
/// by compiling takes seconds. The last schedule of each list stays.
void leave_out_crowded(std::vector<std::vector<Schedule>>& lists, const AttentionSpec& spec,
                       const Target& target);

}  // namespace flashcore
