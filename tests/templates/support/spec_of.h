// Specs that tables of schedules tell apart.
#pragma once

#include <utility>

#include "dsl/attention_spec.h"

namespace flashcore {

inline AttentionSpec spec_of(int head_dim, Mask mask = {}, Score score = {},
                             DType dtype = DType::bf16) {
  AttentionSpec spec;
  spec.head_dim = head_dim;
  spec.mask = std::move(mask);
  spec.score = std::move(score);
  spec.dtype = dtype;
  return spec;
}

}  // namespace flashcore
