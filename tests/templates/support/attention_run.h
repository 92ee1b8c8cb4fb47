// One launch of an attention kernel on the emulator.
#pragma once

#include <cmath>

#include "dsl/attention_spec.h"
#include "templates/attention.h"
#include "tests/support/kernel_run.h"

namespace flashcore {

/// The lengths of one launch and what fills its inputs.
struct AttentionInputs {
  int batch = 1, heads = 1, kv_heads = 1, q_len = 1, kv_len = 1;
  int row_gap = 0;    ///< elements that lie unused behind every row, a multiple of 8
  double spread = 1;  ///< standard deviation of the elements of q
  unsigned seed = 1;
};

inline KernelRun attention_run(const AttentionSpec& spec, const AttentionInputs& in) {
  return {attention_forward(spec),
          {.extents = {{"B", in.batch}, {"H", in.heads}, {"Sq", in.q_len}, {"Sk", in.kv_len}},
           .scalars = {1 / std::sqrt(static_cast<double>(spec.head_dim))},
           .spread = {{"q", in.spread}},
           .row_gap = in.row_gap,
           .seed = in.seed}};
}

}  // namespace flashcore
