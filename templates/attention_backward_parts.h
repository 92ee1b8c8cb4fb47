// What the programs of attention's backward pass have in common: their inputs, the terms of a tile of
// scores, and the program whose blocks have tiles of keys, and a loop over query rows.
#pragma once

#include <string>
#include <vector>

#include "dsl/flashcore.h"
#include "templates/attention_tensors.h"

namespace flashcore {

/// The spec as the backward programs see it: the sink is in the log-sum-exp already. Throws
/// SpecError for dtype f32.
AttentionSpec without_sink(const AttentionSpec& spec);

/// Programs in the order of their launch, behind which come sums over the heads of groups, where the
/// spec has groups.
Module backward_module(const char* name, const AttentionSpec& spec, std::vector<Program> programs,
                       std::vector<std::string> workspaces);

/// The inputs of a loop.
struct BackwardInputs {
  Tensor q, k, v, dout, lse, delta;
  Tile scale;
  Axis d, d_v;
};

/// Without the gradients of scores neither values nor deltas are read.
BackwardInputs declare_inputs(const AttentionTensors& t, bool with_dscores = true);

/// The softmax weights of a tile of products, over the axes of `products` in their order.
Tile probs_of(const AttentionTensors& t, const BackwardInputs& in, Axis rows, Axis cols,
              const Tile& products, const Tile& lse);

/// The gradients of scaled scores. Where a key is hidden its weight is 0, and a score expression may
/// have no derivative there.
Tile dscores_of(const AttentionTensors& t, const BackwardInputs& in, Axis rows, Axis cols,
                const Tile& products, const Tile& probs, const Tile& dprobs, const Tile& delta);

/// Zeros beyond a padded sequence, whose elements there may be anything.
Tile within(const Tile& own_length, Axis axis, const Tile& sum);

/// Of tiles of keys.
class KeyProgram {
 public:
  /// Which gradients the blocks compute. dQ, of which they add their shares to dq_sums, beside both
  /// others only.
  struct Gradients {
    bool dk = true, dv = true, dq = false;
  };

  KeyProgram(const AttentionSpec& spec, const char* name);
  Program build(const Gradients& wanted);

 private:
  struct Sums {
    Tile dk, dv;
  };
  /// A tile of rows beside the block's keys.
  struct Visit {
    Tile query, dout, products, probs, dprobs;
  };

  Visit visit_rows();
  Tile dscores(const Visit& visit);
  Tensor output(const std::string& name, int dim);
  void store_sums(const Tensor& tensor, Axis columns, const Tile& sum);

  const AttentionSpec spec_;
  ProgramBuilder b_;
  AttentionTensors t_;
  const Axis cols_, rows_;
  BackwardInputs in_;
  Tile kv_head_, key_, value_;
};

}  // namespace flashcore
