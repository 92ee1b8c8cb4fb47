#include "templates/attention_backward_adding.h"

#include "templates/attention_backward.h"
#include "templates/attention_backward_parts.h"

namespace flashcore {

Program attention_backward_adding_zeros(const AttentionSpec& given) {
  const AttentionSpec spec = without_sink(given);
  ProgramBuilder b("attention_backward_adding_zeros");
  AttentionTensors t = declare_attention(b, spec);
  const Axis rows = b.parallel_tiles("rows", t.q_len), d = b.whole("d", spec.stored_dim());
  const Tensor sums = t.output("dq_sums", t.heads, t.q_len, spec.stored_dim(), DType::f32);
  t.set_segments_of_rows_alone(rows);
  store(t.at(sums, t.head, rows, d), b.fill({rows, d}, 0));
  return b.finish();
}

Program attention_backward_adding_keys(const AttentionSpec& spec) {
  if (backward_apart(spec))
    throw SpecError({"gradients of keys and values in one program, which adds to that of queries",
                     "beyond a head_dim of 128 both are more than a block's registers",
                     "attention_backward",
                     {}});
  return KeyProgram(spec, "attention_backward_adding_keys").build({.dq = true});
}

Program attention_backward_adding_queries(const AttentionSpec& given) {
  const AttentionSpec spec = without_sink(given);
  ProgramBuilder b("attention_backward_adding_queries");
  AttentionTensors t = declare_attention(b, spec);
  const Axis rows = b.parallel_tiles("rows", t.q_len), d = b.whole("d", spec.stored_dim());
  const Tensor sums = t.input("dq_sums", t.heads, t.q_len, spec.stored_dim(), DType::f32);
  const Tensor dq = t.output("dq", t.heads, t.q_len, spec.stored_dim());
  const Tile scale = b.scalar("scale", DType::f32, /*positive=*/true);
  t.set_segments_of_rows_alone(rows);
  const Tile sum = load(t.at(sums, t.head, rows, d)).named("sum");
  store(t.at(dq, t.head, rows, d), cast(sum * scale, spec.dtype));
  return b.finish();
}

Module attention_backward_adding(const AttentionSpec& spec) {
  return backward_module(
      "attention_backward_adding", spec,
      {attention_backward_rows(spec), attention_backward_adding_zeros(spec),
       attention_backward_adding_keys(spec), attention_backward_adding_queries(spec)},
      {"delta", "lse_log2", "dq_sums"});
}

}  // namespace flashcore
