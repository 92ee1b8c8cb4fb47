#include "tests/templates/support/unfused.h"

#include <algorithm>

#include "templates/attention_tensors.h"
#include "templates/schedules/schedule_parts.h"

namespace flashcore {
namespace {

/// Axes over [query rows, key columns] and the tensors that hold a number for each score.
struct ScoreTensors {
  AttentionTensors t;
  Axis rows, cols;

  /// [batch, heads, q_len, kv_len], whatever the spec's layout of q, k and v.
  [[nodiscard]] std::vector<Extent> dims() const {
    return {t.batch_size, t.heads, t.q_len, t.kv_len};
  }
  [[nodiscard]] Access at(const Tensor& tensor) const {
    return tensor(t.batch, t.head, rows, cols);
  }
};

/// The scores of a batch are one tensor, so all its sequences have the same length.
ScoreTensors declare_scores(ProgramBuilder& b, const AttentionSpec& spec) {
  if (spec.packed() || spec.q_lens || spec.kv_lens)
    throw SpecError({"unfused attention of sequences of different lengths",
                     "it stores the scores of all sequences in one tensor",
                     "attention_forward, or sequences of one length",
                     {}});
  return {declare_attention(b, spec), {}, {}};
}

Schedule product_schedule(const Target& target) {
  Schedule s;
  s.tiles = {{"rows", 128}, {"cols", 64}};
  s.warps_m = 4;
  s.stages = target.shared_per_block >= 160 * 1024 ? 2 : 1;
  choose_family(s, target);
  if (s.softmax == Softmax::shared) s.tiles["rows"] = 64;
  return s;
}

}  // namespace

Program unfused_scores(const AttentionSpec& spec) {
  ProgramBuilder b("unfused_scores");
  ScoreTensors s = declare_scores(b, spec);
  const AttentionTensors& t = s.t;
  const Axis d = b.whole("d", spec.stored_dim());
  s.rows = b.parallel_tiles("rows", t.q_len);
  s.cols = b.parallel_tiles("cols", t.kv_len);
  const Tensor q = t.input("q", t.heads, t.q_len, spec.stored_dim());
  const Tensor k = t.input("k", t.kv_heads, t.kv_len, spec.stored_dim());
  const Tensor scores = b.output("scores", DType::f32, s.dims());
  const Tile scale = b.scalar("scale", DType::f32, /*positive=*/true);

  const Tile query = load(t.at(q, t.head, s.rows, d)).named("query");
  const Tile key = load(t.at(k, index(t.head) / spec.group(), s.cols, d)).named("key");
  const Tile products = dot(query, transpose(key)).named("product");
  store(s.at(scores), t.scores(products, scale, s.rows, s.cols, 1));
  return b.finish();
}

Program unfused_softmax(const AttentionSpec& spec) {
  struct State {
    Tile row_max, row_sum;
  };
  ProgramBuilder b("unfused_softmax");
  ScoreTensors s = declare_scores(b, spec);
  s.rows = b.parallel_tiles("rows", s.t.q_len);
  s.cols = b.tiles("cols", s.t.kv_len);
  const Tensor scores = b.input("scores", DType::f32, s.dims());
  const Tensor probs = b.output("probs", spec.dtype, s.dims());

  const SoftmaxStart softmax = s.t.start_softmax(s.rows, s.cols, 1);
  const State start{softmax.row_max.named("row_max"), softmax.row_sum.named("row_sum")};
  const State last = b.loop(s.cols, start, [&](const State& state) {
    const Tile x = load(s.at(scores)).named("x");
    const Tile row_max = maximum(state.row_max, reduce_max(x, s.cols)).named("new_max");
    return State{row_max, state.row_sum * exp(state.row_max - row_max) +
                              reduce_sum(exp(x - row_max), s.cols)};
  });
  const Tile inverse = where(last.row_sum == 0.f, 0.f, 1.f / last.row_sum).named("inverse");
  b.loop(s.cols, [&] {
    const Tile x = load(s.at(scores)).named("x");
    store(s.at(probs), cast(exp(x - last.row_max) * inverse, spec.dtype));
  });
  return b.finish();
}

Program unfused_values(const AttentionSpec& spec) {
  ProgramBuilder b("unfused_values");
  ScoreTensors s = declare_scores(b, spec);
  const AttentionTensors& t = s.t;
  const Axis dv = b.whole("dv", spec.stored_value_dim());
  s.rows = b.parallel_tiles("rows", t.q_len);
  s.cols = b.tiles("cols", t.kv_len);
  const Tensor probs = b.input("probs", spec.dtype, s.dims());
  const Tensor v = t.input("v", t.kv_heads, t.kv_len, spec.stored_value_dim());
  const Tensor o = t.output("o", t.heads, t.q_len, spec.stored_value_dim());

  const Tile kv_head = index(t.head) / spec.group();
  const Tile out = b.loop(s.cols, b.fill({s.rows, dv}, 0).named("out"), [&](const Tile& sum) {
    const Tile p = load(s.at(probs)).named("p");
    return sum + dot(p, load(t.at(v, kv_head, s.cols, dv)).named("value"));
  });
  store(t.at(o, t.head, s.rows, dv), cast(out, spec.dtype));
  return b.finish();
}

Schedule unfused_scores_schedule(const AttentionSpec&, const Target& target) {
  return product_schedule(target);
}

Schedule unfused_softmax_schedule(const AttentionSpec&, const Target&) {
  Schedule s;
  s.tiles = {{"rows", 16}, {"cols", 256}};
  s.warps_m = 4;
  return s;
}

Schedule unfused_values_schedule(const AttentionSpec& spec, const Target& target) {
  Schedule s = product_schedule(target);
  if (spec.value_dim() > 128) s.tiles["rows"] = 64;
  return s;
}

}  // namespace flashcore
