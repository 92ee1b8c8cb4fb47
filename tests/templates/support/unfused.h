// The unfused baseline: attention as three programs that store the scores. It shows what the
// language does outside attention's fused form and is what a fused kernel is checked and timed
// against.
#pragma once

#include "dsl/flashcore.h"

namespace flashcore {

/// scores[batch, heads, q_len, kv_len] = scale q k^T, masked, in f32.
Program unfused_scores(const AttentionSpec& spec);
/// probs = softmax of every row of scores; rows without a visible key become zeros.
Program unfused_softmax(const AttentionSpec& spec);
/// o = probs v.
Program unfused_values(const AttentionSpec& spec);

/// The schedules of the three.
Schedule unfused_scores_schedule(const AttentionSpec& spec, const Target& target);
Schedule unfused_softmax_schedule(const AttentionSpec& spec, const Target& target);
Schedule unfused_values_schedule(const AttentionSpec& spec, const Target& target);

}  // namespace flashcore
