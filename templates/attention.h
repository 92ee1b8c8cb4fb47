// Attention forward, written in the public language: the program of FlashAttention-2 and the schedules
// it ships with.
#pragma once

#include <vector>

#include "dsl/flashcore.h"

namespace flashcore {

/// Tensors q, k, v, o, lse if the spec asks, and what its expressions capture; scalar `scale` (f32, > 0).
/// Axes batch, head, rows (query rows), cols (key columns), d and dv. Throws SpecError with every reason of
/// check(spec).
Program attention_forward(const AttentionSpec& spec);

/// The schedule that ships for a spec and a target: tile sizes chosen by measurement for head_dim 64,
/// 128 and 256, by the same rules for the others.
Schedule attention_schedule(const AttentionSpec& spec, const Target& target);

/// That schedule and then safer ones, which leave the compiler more registers. The large tiles use all
/// there are, and another version of the compiler may find one too few: build_first_fitting takes the
/// first of these whose code keeps its promises.
std::vector<Schedule> attention_schedules(const AttentionSpec& spec, const Target& target);

}  // namespace flashcore
