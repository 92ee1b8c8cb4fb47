#include "templates/attention_backward_terms.h"

namespace flashcore {

AttentionSpec without_sink(const AttentionSpec& spec) {
  if (spec.dtype == DType::f32)
    throw SpecError({"the backward of attention with dtype f32",
                     "its products take bf16 and f16 operands",
                     "dtype bf16 or f16",
                     {}});
  AttentionSpec inner = spec;
  inner.sink = {};
  return inner;
}

BackwardInputs declare_inputs(ProgramBuilder& b, const AttentionSpec& spec,
                              const AttentionTensors& t, bool with_dscores) {
  BackwardInputs in;
  in.q = t.input("q", t.heads, t.q_len, spec.stored_dim());
  in.k = t.input("k", t.kv_heads, t.kv_len, spec.stored_dim());
  if (with_dscores) in.v = t.input("v", t.kv_heads, t.kv_len, spec.stored_value_dim());
  in.dout = t.input("dout", t.heads, t.q_len, spec.stored_value_dim());
  in.lse = t.row_input("lse_log2");
  if (with_dscores) in.delta = t.row_input("delta");
  in.scale = b.scalar("scale", DType::f32, /*positive=*/true);
  in.d = b.whole("d", spec.stored_dim());
  in.d_v = b.whole("d_v", spec.stored_value_dim());
  return in;
}

Tile probs_of(ProgramBuilder& b, const AttentionSpec& spec, const AttentionTensors& t,
              const BackwardInputs& in, Axis rows, Axis cols, const Tile& products,
              const Tile& lse) {
  const Tile scores = scores_of(b, spec, t, products, in.scale, rows, cols, log2e).named("scores");
  return exp2(scores - lse).named("probs");
}

Tile dscores_of(const AttentionSpec& spec, const AttentionTensors& t, const BackwardInputs& in,
                Axis rows, Axis cols, const Tile& products, const Tile& probs, const Tile& dprobs,
                const Tile& delta) {
  const Tile own = probs * (dprobs - delta);
  if (spec.score.text.empty()) return own.named("dscores");
  const Tile through = through_score(spec, t, products, in.scale, rows, cols, own);
  return where(probs == 0.f, 0.f, through).named("dscores");
}

Tile within(const Tile& own_length, Axis axis, const Tile& sum) {
  return own_length.owner() ? where(index(axis) < own_length, sum, 0.f) : sum;
}

}  // namespace flashcore
