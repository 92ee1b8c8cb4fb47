#include "templates/attention_backward.h"

#include <algorithm>
#include <string>

#include "templates/attention_backward_parts.h"

namespace flashcore {

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

bool backward_apart(const AttentionSpec& spec) {
  return std::max(spec.stored_dim(), spec.stored_value_dim()) > 128;
}

Program attention_backward_keys(const AttentionSpec& spec) {
  return KeyProgram(spec, "attention_backward_keys").build({.dv = !backward_apart(spec)});
}

Program attention_backward_values(const AttentionSpec& spec) {
  if (!backward_apart(spec))
    throw SpecError({"a program of its own for the gradient of the values",
                     "attention_backward_keys computes it, up to a head_dim of 128",
                     "attention_backward_keys",
                     {}});
  return KeyProgram(spec, "attention_backward_values").build({.dk = false});
}

Program attention_backward_queries(const AttentionSpec& given) {
  const AttentionSpec spec = without_sink(given);
  ProgramBuilder b("attention_backward_queries");
  AttentionTensors t = declare_attention(b, spec);
  const Axis rows = b.parallel_tiles("rows", t.q_len), cols = b.tiles("cols", t.kv_len);
  const BackwardInputs in = declare_inputs(t);
  const Tensor dq = t.output("dq", t.heads, t.q_len, spec.stored_dim());
  t.set_segments(rows, cols);
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
    const Tile probs = probs_of(t, in, rows, cols, products, lse);
    const Tile dprobs = dot(dout, transpose(value)).named("dprobs");
    const Tile dscores = dscores_of(t, in, rows, cols, products, probs, dprobs, delta);
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

Module attention_backward(const AttentionSpec& spec) {
  std::vector<Program> programs{attention_backward_rows(spec), attention_backward_keys(spec)};
  if (backward_apart(spec)) programs.push_back(attention_backward_values(spec));
  programs.push_back(attention_backward_queries(spec));
  return backward_module("attention_backward", spec, std::move(programs), {"delta", "lse_log2"});
}

}  // namespace flashcore
