#include "dsl/attention_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace flashcore {

Mask full() { return {}; }

Mask causal(Align align) {
  if (align == Align::top_left)
    return {"causal(top_left)",
            [](const ScoreSite& s) { return s.query_index >= s.key_index; }};
  return {"causal(bottom_right)", [](const ScoreSite& s) {
            return s.query_index + (s.key_length - s.query_length) >= s.key_index;
          }};
}

std::string_view name_of(TensorLayout layout) {
  switch (layout) {
    case TensorLayout::bhsd: return "bhsd";
    case TensorLayout::bshd: return "bshd";
  }
  return "?";
}

std::vector<std::string> check(const AttentionSpec& spec) {
  std::vector<std::string> reasons;
  for (const auto& [name, dim] : {std::pair{"head_dim", spec.head_dim},
                                  std::pair{"head_dim_v", spec.value_dim()}})
    if (dim > 256)
      reasons.push_back(
          fmt::format("{} = {}: must be at most 256; there is no schedule for larger ones", name, dim));
    else if (dim < 8 || dim % 8 != 0)
      reasons.push_back(
          fmt::format("{} = {}: must be a multiple of 8 from 8 to 256; pad the tensors to {}", name,
                      dim, dim < 8 ? 8 : (dim + 7) / 8 * 8));
  if (!is_half(spec.dtype))
    reasons.push_back(fmt::format("dtype = {}: tensor cores take f16 or bf16; cast the tensors",
                                  name_of(spec.dtype)));
  if (spec.heads < 0 || spec.kv_heads < 0)
    reasons.push_back(fmt::format("heads = {}, kv_heads = {}: must not be negative", spec.heads,
                                  spec.kv_heads));
  else if (spec.kv_heads && !spec.heads)
    reasons.push_back(fmt::format("kv_heads = {} without heads: give both", spec.kv_heads));
  else if (spec.kv_heads && spec.heads % spec.kv_heads != 0)
    reasons.push_back(fmt::format(
        "heads = {} is not a multiple of kv_heads = {}: every key head serves the same number of "
        "query heads",
        spec.heads, spec.kv_heads));
  for (const auto& [name, length] : std::initializer_list<std::pair<const char*, std::optional<int>>>{
           {"batch", spec.batch}, {"q_len", spec.q_len}, {"kv_len", spec.kv_len}})
    if (length && *length < 1)
      reasons.push_back(fmt::format(
          "{} = {}: a compiled-in length is at least 1; leave it open for tensors that may be empty",
          name, *length));
  return reasons;
}

AttentionSpec nearest_valid(AttentionSpec spec) {
  const auto dim = [](int size) { return std::clamp((size + 7) / 8 * 8, 8, 256); };
  spec.head_dim = dim(spec.head_dim);
  if (spec.head_dim_v) spec.head_dim_v = dim(spec.head_dim_v);
  if (!is_half(spec.dtype)) spec.dtype = DType::bf16;
  if (spec.heads < 1 || spec.kv_heads < 0 || (spec.kv_heads && spec.heads % spec.kv_heads != 0))
    spec.heads = spec.kv_heads = 0;
  for (std::optional<int>* length : {&spec.batch, &spec.q_len, &spec.kv_len})
    if (*length && **length < 1) length->reset();
  return spec;
}

}  // namespace flashcore
