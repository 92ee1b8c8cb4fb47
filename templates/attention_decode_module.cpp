// The programs of decoding as one module.
#include <fmt/format.h>

#include "templates/choice/decode_splits.h"

namespace flashcore {

Module attention_decode(const DecodeSpec& spec, int row_tile, const CostModel& model) {
  ModuleBuilder m("attention_decode");
  m.number("splits", decode_splits_text(spec, row_tile, model));
  for (const char* workspace : {"partial", "partial_max", "partial_sum"}) m.workspace(workspace);
  if (spec.attention.packed() && spec.packs_heads())
    m.number("most_packed_rows", fmt::format("max_q_len * {}", spec.attention.group()));
  m.kernel(attention_decode_split(spec));
  m.kernel(attention_decode_combine(spec));
  return m.finish();
}

bool can_decode(const AttentionSpec& spec, const Target& target) {
  return target.mma_m16n8k16 && target.async_copy && spec.dtype != DType::f32 &&
         spec.head_dim <= 256 && spec.value_dim() <= 256 && spec.group() <= most_decode_rows;
}

}  // namespace flashcore
