#include "templates/attention.h"

#include "templates/attention_tensors.h"

namespace flashcore {

namespace {

/// What the loop over key columns carries for every query row.
struct State {
  Tile row_max, row_sum, out;
};

}  // namespace

Program attention_forward(const AttentionSpec& spec) {
  ProgramBuilder b("attention_forward");
  AttentionTensors t = declare_attention(b, spec);
  const Axis d = b.whole("d", spec.stored_dim()), dv = b.whole("dv", spec.stored_value_dim());
  const Axis rows = b.parallel_tiles("rows", t.q_len), cols = b.tiles("cols", t.kv_len);
  const Tensor q = t.input("q", t.heads, t.q_len, spec.stored_dim());
  const Tensor k = t.input("k", t.kv_heads, t.kv_len, spec.stored_dim());
  const Tensor v = t.input("v", t.kv_heads, t.kv_len, spec.stored_value_dim());
  const Tensor o = t.output("o", t.heads, t.q_len, spec.stored_value_dim());
  const Tensor lse = spec.lse ? t.row_output("lse") : Tensor();

  const Tile scale = b.scalar("scale", DType::f32, /*positive=*/true);
  t.set_segments(spec, rows, cols);
  declare_captured(b, captured_tensors(spec));
  const Tile kv_head = (index(t.head) / spec.group()).named("kv_head");

  const Factor query = factor_of(spec, load(t.at(q, t.head, rows, d)).named("query"));
  const SoftmaxUnits units = softmax_units(b, spec, scale);

  const SoftmaxStart softmax =
      start_softmax(b, spec, t, rows, cols, units.unit, units.products_alone ? scale : Tile());
  const State start{softmax.row_max.named("row_max"), softmax.row_sum.named("row_sum"),
                    b.fill({rows, dv}, 0).named("out")};
  const State last = b.loop(cols, start, [&](const State& s) {
    const Tile key = load(t.at(k, kv_head, cols, d)).named("key");
    const Tile value = load(t.at(v, kv_head, cols, dv)).named("value");
    const Tile scores =
        scores_of(b, spec, t, product_of(spec, query, transpose(factor_of(spec, key))), units.scale,
                  rows, cols, units.unit)
            .named("scores");
    const Tile row_max = maximum(s.row_max, reduce_max(scores, cols)).named("new_max");
    const Tile decay = units.exp2_of(s.row_max, row_max).named("decay");
    const Tile probs = units.exp2_of(scores, row_max).named("probs");
    return State{row_max, s.row_sum * decay + reduce_sum(probs, cols),
                 s.out * decay + product_of(spec, factor_of(spec, probs), factor_of(spec, value))};
  });

  // A row that saw no key has row_sum 0 and becomes zeros, as does one beyond its sequence; a NaN
  // in its scores stays a NaN.
  const Tile empty = t.or_beyond(last.row_sum == 0.f, rows).named("empty");
  const Tile inverse = where(empty, 0.f, 1.f / last.row_sum).named("inverse");
  store(t.at(o, t.head, rows, dv), cast(last.out * inverse, spec.dtype));
  if (spec.lse) {
    // An infinite score makes its row's weights NaN, and not what they sum up to.
    const Tile finite = (units.in_base2(last.row_max) + log2(last.row_sum)) * ln2;
    store(t.at(lse, rows),
          where(empty, -infinity, where(last.row_max == infinity, infinity, finite)));
  }
  return b.finish();
}

}  // namespace flashcore
