#include "templates/attention_backward.h"

#include <utility>

#include <fmt/format.h>

#include "templates/attention_tensors.h"

namespace flashcore {

namespace {

/// The spec as the backward programs see it: the sink is in the log-sum-exp already.
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

/// The inputs of both loops.
struct Inputs {
  Tensor q, k, v, dout, lse, delta;
  Tile scale;
  Axis d, d_v;
};

Inputs declare_inputs(ProgramBuilder& b, const AttentionSpec& spec, const AttentionTensors& t) {
  return {.q = t.input("q", t.heads, t.q_len, spec.stored_dim()),
          .k = t.input("k", t.kv_heads, t.kv_len, spec.stored_dim()),
          .v = t.input("v", t.kv_heads, t.kv_len, spec.stored_value_dim()),
          .dout = t.input("dout", t.heads, t.q_len, spec.stored_value_dim()),
          .lse = t.row_input("lse_log2"),
          .delta = t.row_input("delta"),
          .scale = b.scalar("scale", DType::f32, /*positive=*/true),
          .d = b.whole("d", spec.stored_dim()),
          .d_v = b.whole("d_v", spec.stored_value_dim())};
}

/// The softmax weights of a tile of products, over the axes of `products` in their order.
Tile probs_of(ProgramBuilder& b, const AttentionSpec& spec, const AttentionTensors& t,
              const Inputs& in, Axis rows, Axis cols, const Tile& products, const Tile& lse) {
  const Tile scores = scores_of(b, spec, t, products, in.scale, rows, cols, log2e).named("scores");
  return exp2(scores - lse).named("probs");
}

/// The gradients of scaled scores. Where a key is hidden its weight is 0, and a score expression may
/// have no derivative there.
Tile dscores_of(const AttentionSpec& spec, const AttentionTensors& t, const Inputs& in, Axis rows,
                Axis cols, const Tile& products, const Tile& probs, const Tile& dprobs,
                const Tile& delta) {
  const Tile own = probs * (dprobs - delta);
  if (spec.score.text.empty()) return own.named("dscores");
  const Tile through = through_score(spec, t, products, in.scale, rows, cols, own);
  return where(probs == 0.f, 0.f, through).named("dscores");
}

/// Zeros beyond a padded sequence, whose elements there may be anything.
Tile within(const Tile& own_length, Axis axis, const Tile& sum) {
  return own_length.owner() ? where(index(axis) < own_length, sum, 0.f) : sum;
}

}  // namespace

Program attention_backward_rows(const AttentionSpec& given) {
  const AttentionSpec spec = without_sink(given);
  ProgramBuilder b("attention_backward_rows");
  AttentionTensors t = declare_attention(b, spec);
  const Axis d_v = b.whole("d_v", spec.stored_value_dim());
  const Axis rows = b.parallel_tiles("rows", t.q_len);
  const Tensor o = t.input("o", t.heads, t.q_len, spec.stored_value_dim());
  const Tensor dout = t.input("dout", t.heads, t.q_len, spec.stored_value_dim());
  const Tensor lse = t.row_input("lse");
  const Tensor delta = t.row_output("delta"), lse_log2 = t.row_output("lse_log2");
  t.set_segments_of_rows_alone(rows);

  const Tile out = cast(load(t.at(o, t.head, rows, d_v)).named("out"), DType::f32);
  const Tile dout_tile = cast(load(t.at(dout, t.head, rows, d_v)).named("dout"), DType::f32);
  store(t.at(delta, rows), reduce_sum(out * dout_tile, d_v));
  const Tile natural = load(t.at(lse, rows));
  store(t.at(lse_log2, rows), where(natural == -infinity, infinity, natural * log2e));
  return b.finish();
}

Program attention_backward_keys(const AttentionSpec& given) {
  const AttentionSpec spec = without_sink(given);
  ProgramBuilder b("attention_backward_keys");
  AttentionTensors t = declare_attention(b, spec);
  const Axis cols = b.parallel_tiles("cols", t.kv_len), rows = b.tiles("rows", t.q_len);
  const Inputs in = declare_inputs(b, spec, t);
  const bool grouped = spec.group() > 1;
  const DType stored = grouped ? DType::f32 : spec.dtype;
  const Tensor dk =
      t.output(grouped ? "dk_heads" : "dk", t.heads, t.kv_len, spec.stored_dim(), stored);
  const Tensor dv =
      t.output(grouped ? "dv_heads" : "dv", t.heads, t.kv_len, spec.stored_value_dim(), stored);
  t.set_segments_of_keys(spec, rows, cols);
  declare_captured(b, captured_tensors(spec));
  const Tile kv_head = (index(t.head) / spec.group()).named("kv_head");

  struct Sums {
    Tile dk, dv;
  };
  const Tile key = load(t.at(in.k, kv_head, cols, in.d)).named("key");
  const Tile value = load(t.at(in.v, kv_head, cols, in.d_v)).named("value");
  const Sums start{b.fill({cols, in.d}, 0).named("dk"), b.fill({cols, in.d_v}, 0).named("dv")};
  const Sums last = b.loop(rows, start, [&](const Sums& s) {
    const Tile query = load(t.at(in.q, t.head, rows, in.d)).named("query");
    const Tile dout = load(t.at(in.dout, t.head, rows, in.d_v)).named("dout");
    const Tile lse = load(t.at(in.lse, rows)).named("lse");
    const Tile products = dot(key, transpose(query));
    const Tile probs = probs_of(b, spec, t, in, rows, cols, products, lse);
    const Tile dprobs = dot(value, transpose(dout)).named("dprobs");
    const Tile dv_sum = s.dv + dot(cast(probs, spec.dtype), dout);
    // As late as its first reader: head_dim 128 has no register to spare.
    const Tile delta = load(t.at(in.delta, rows)).named("delta");
    const Tile dscores = dscores_of(spec, t, in, rows, cols, products, probs, dprobs, delta);
    return Sums{s.dk + dot(cast(dscores, spec.dtype), query), dv_sum};
  });
  const auto as_stored = [&](const Tile& sum) {
    const Tile whole = within(t.own_kv_len, cols, sum);
    return grouped ? whole : cast(whole, stored);
  };
  store(t.at(dk, t.head, cols, in.d), as_stored(last.dk * in.scale));
  store(t.at(dv, t.head, cols, in.d_v), as_stored(last.dv));
  return b.finish();
}

Program attention_backward_queries(const AttentionSpec& given) {
  const AttentionSpec spec = without_sink(given);
  ProgramBuilder b("attention_backward_queries");
  AttentionTensors t = declare_attention(b, spec);
  const Axis rows = b.parallel_tiles("rows", t.q_len), cols = b.tiles("cols", t.kv_len);
  const Inputs in = declare_inputs(b, spec, t);
  const Tensor dq = t.output("dq", t.heads, t.q_len, spec.stored_dim());
  t.set_segments(spec, rows, cols);
  declare_captured(b, captured_tensors(spec));
  const Tile kv_head = (index(t.head) / spec.group()).named("kv_head");

  const Tile query = load(t.at(in.q, t.head, rows, in.d)).named("query");
  const Tile dout = load(t.at(in.dout, t.head, rows, in.d_v)).named("dout");
  const Tile lse = load(t.at(in.lse, rows)).named("lse");
  const Tile delta = load(t.at(in.delta, rows)).named("delta");
  const Tile last = b.loop(cols, b.fill({rows, in.d}, 0).named("dq"), [&](const Tile& sum) {
    const Tile key = load(t.at(in.k, kv_head, cols, in.d)).named("key");
    const Tile value = load(t.at(in.v, kv_head, cols, in.d_v)).named("value");
    const Tile products = dot(query, transpose(key));
    const Tile probs = probs_of(b, spec, t, in, rows, cols, products, lse);
    const Tile dprobs = dot(dout, transpose(value)).named("dprobs");
    const Tile dscores = dscores_of(spec, t, in, rows, cols, products, probs, dprobs, delta);
    return sum + dot(cast(dscores, spec.dtype), key);
  });
  store(t.at(dq, t.head, rows, in.d), cast(within(t.own_q_len, rows, last * in.scale), spec.dtype));
  return b.finish();
}

Program attention_backward_groups(const AttentionSpec& given) {
  const AttentionSpec spec = without_sink(given);
  const int group = spec.group();
  if (group == 1)
    throw SpecError({"sums over the query heads of a group",
                     "the spec has as many heads of keys as of queries",
                     "attention_backward_keys alone, which stores dk and dv",
                     {}});
  ProgramBuilder b("attention_backward_groups");
  AttentionTensors t = declare_attention(b, spec, Heads::keys);
  const Axis cols = b.parallel_tiles("cols", t.kv_len);
  t.set_segments_of_keys_alone(cols);
  const auto sum_up = [&](const std::string& name, int dim) {
    const Tensor heads = t.input(name + "_heads", t.heads, t.kv_len, dim, DType::f32);
    const Tensor sums = t.output(name, t.kv_heads, t.kv_len, dim);
    const Axis d = b.whole(name + "_d", dim);
    const Tile first = (index(t.head) * group).named("first_head");
    Tile sum = load(t.at(heads, first, cols, d));
    for (int i = 1; i < group; ++i) sum = sum + load(t.at(heads, first + i, cols, d));
    store(t.at(sums, t.head, cols, d), cast(sum, spec.dtype));
  };
  sum_up("dk", spec.stored_dim());
  sum_up("dv", spec.stored_value_dim());
  return b.finish();
}

}  // namespace flashcore
