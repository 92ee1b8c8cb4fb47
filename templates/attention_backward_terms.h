// What the programs of attention's backward pass have in common: their inputs, and the terms of a
// tile of scores.
#pragma once

#include "dsl/flashcore.h"
#include "templates/attention_tensors.h"

namespace flashcore {

/// The spec as the backward programs see it: the sink is in the log-sum-exp already. Throws
/// SpecError for dtype f32.
AttentionSpec without_sink(const AttentionSpec& spec);

/// The inputs of a loop.
struct BackwardInputs {
  Tensor q, k, v, dout, lse, delta;
  Tile scale;
  Axis d, d_v;
};

/// Without the gradients of scores neither values nor deltas are read.
BackwardInputs declare_inputs(ProgramBuilder& b, const AttentionSpec& spec,
                              const AttentionTensors& t, bool with_dscores = true);

/// The softmax weights of a tile of products, over the axes of `products` in their order.
Tile probs_of(ProgramBuilder& b, const AttentionSpec& spec, const AttentionTensors& t,
              const BackwardInputs& in, Axis rows, Axis cols, const Tile& products,
              const Tile& lse);

/// The gradients of scaled scores. Where a key is hidden its weight is 0, and a score expression may
/// have no derivative there.
Tile dscores_of(const AttentionSpec& spec, const AttentionTensors& t, const BackwardInputs& in,
                Axis rows, Axis cols, const Tile& products, const Tile& probs, const Tile& dprobs,
                const Tile& delta);

/// Zeros beyond a padded sequence, whose elements there may be anything.
Tile within(const Tile& own_length, Axis axis, const Tile& sum);

}  // namespace flashcore
