// The program of attention's backward pass whose blocks have tiles of keys, and a loop over query
// rows.
#pragma once

#include <optional>

#include "dsl/flashcore.h"
#include "templates/attention_backward_terms.h"
#include "templates/attention_tensors.h"

namespace flashcore {

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
