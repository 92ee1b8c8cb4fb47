#include "templates/attention_backward.h"

#include <algorithm>
#include <string>

#include "templates/attention_tensors.h"

namespace flashcore {
namespace {

void refuse(const char* what, const char* why, const char* fix) {
  throw SpecError({what, why, fix, {}});
}

/// The spec as the backward programs see it: the sink is in the log-sum-exp already.
AttentionSpec without_sink(const AttentionSpec& spec) {
  if (spec.dtype == DType::f32)
    refuse("the backward of attention with dtype f32", "its products take bf16 and f16 operands",
           "dtype bf16 or f16");
  if (spec.paged())
    refuse("the backward of attention over pages", "gradients of pages are not added up",
           "keys and values that are contiguous");
  AttentionSpec inner = spec;
  inner.sink = {};
  return inner;
}

/// Programs in the order of their launch, behind which come sums over the heads of groups, where the
/// spec has groups.
Module module_of(const char* name, const AttentionSpec& spec, std::vector<Program> programs,
                 std::vector<std::string> workspaces) {
  if (spec.group() > 1) {
    programs.push_back(attention_backward_groups(spec));
    workspaces.insert(workspaces.end(), {"dk_heads", "dv_heads"});
  }
  ModuleBuilder m(name);
  if (spec.packed()) m.number("aligned_rows", aligned_rows_text(spec));
  for (Program& program : programs) m.kernel(std::move(program));
  for (std::string& workspace : workspaces) m.workspace(std::move(workspace));
  return m.finish();
}

/// The inputs of a loop.
struct Inputs {
  Tensor q, k, v, dout, lse, delta;
  Tile scale;
  Axis d, d_v;
};

/// Without the gradients of scores neither values nor deltas are read.
Inputs declare_inputs(const AttentionTensors& t, bool with_dscores = true) {
  ProgramBuilder& b = *t.builder;
  const AttentionSpec& spec = *t.spec;
  Inputs in;
  in.q = t.input("q", t.heads, t.q_len, spec.stored_dim());
  in.k = t.input("k", t.kv_heads, t.kv_len, spec.stored_dim());
  if (with_dscores) in.v = t.input("v", t.kv_heads, t.kv_len, spec.stored_value_dim());
  in.dout = t.input("dout", t.heads, t.q_len, spec.stored_value_dim());
  in.lse = t.aligned_row_input("lse_log2");
  if (with_dscores) in.delta = t.aligned_row_input("delta");
  in.scale = b.scalar("scale", DType::f32, /*positive=*/true);
  in.d = b.whole("d", spec.stored_dim());
  in.d_v = b.whole("d_v", spec.stored_value_dim());
  return in;
}

/// The softmax weights of a tile of products, over the axes of `products` in their order.
Tile probs_of(const AttentionTensors& t, const Inputs& in, Axis rows, Axis cols,
              const Tile& products, const Tile& lse) {
  const Tile scores = t.scores(products, in.scale, rows, cols, log2e).named("scores");
  return exp2(scores - lse).named("probs");
}

/// The gradients of scaled scores. Where a key is hidden its weight is 0, and a score expression may
/// have no derivative there.
Tile dscores_of(const AttentionTensors& t, const Inputs& in, Axis rows, Axis cols,
                const Tile& products, const Tile& probs, const Tile& dprobs, const Tile& delta) {
  const Tile own = probs * (dprobs - delta);
  if (t.spec->score.text.empty()) return own.named("dscores");
  const Tile through = t.through_score(products, in.scale, rows, cols, own);
  return where(probs == 0.f, 0.f, through).named("dscores");
}

/// Zeros beyond a padded sequence, whose elements there may be anything.
Tile within(const Tile& own_length, Axis axis, const Tile& sum) {
  return own_length.owner() ? where(index(axis) < own_length, sum, 0.f) : sum;
}

/// Which gradients blocks of keys compute. dQ, of which they add their shares to dq_sums, beside both
/// others only.
struct Gradients {
  bool dk = true, dv = true, dq = false;
};

/// Blocks have tiles of keys, and a loop over query rows.
Program keys_program(const AttentionSpec& given, const char* name, const Gradients& wanted) {
  struct Sums {
    Tile dk, dv;
  };
  const AttentionSpec spec = without_sink(given);
  const bool grouped = spec.group() > 1;
  ProgramBuilder b(name);
  AttentionTensors t = declare_attention(b, spec);
  const Axis cols = b.parallel_tiles("cols", t.kv_len), rows = b.tiles("rows", t.q_len);
  const Inputs in = declare_inputs(t, wanted.dk);
  // For each query head, where a group of them shares keys.
  const auto output = [&](const std::string& gradient, int dim) {
    return t.output(grouped ? gradient + "_heads" : gradient, t.heads, t.kv_len, dim,
                    grouped ? DType::f32 : spec.dtype);
  };
  Tensor dk, dv, dq;
  if (wanted.dk) dk = output("dk", spec.stored_dim());
  if (wanted.dv) dv = output("dv", spec.stored_value_dim());
  if (wanted.dq) dq = t.output("dq_sums", t.heads, t.q_len, spec.stored_dim(), DType::f32);
  t.set_segments_of_keys(rows, cols);
  declare_captured(b, captured_tensors(spec));
  const Tile kv_head = (index(t.head) / spec.group()).named("kv_head");
  const Tile key = load(t.at(in.k, kv_head, cols, in.d)).named("key");
  Tile value;
  if (wanted.dk) value = load(t.at(in.v, kv_head, cols, in.d_v)).named("value");

  const auto add_rows = [&](const Sums& s) {
    const Tile query = load(t.at(in.q, t.head, rows, in.d)).named("query");
    const Tile dout = load(t.at(in.dout, t.head, rows, in.d_v)).named("dout");
    const Tile lse = load(t.at_aligned(in.lse, rows)).named("lse");
    const Tile products = dot(key, transpose(query));
    const Tile probs = probs_of(t, in, rows, cols, products, lse);
    Tile dprobs;
    if (wanted.dk) dprobs = dot(value, transpose(dout)).named("dprobs");
    Sums next;
    const Tile rounded = cast(probs, spec.dtype);
    if (wanted.dv) next.dv = s.dv + dot(rounded, dout);
    if (!wanted.dk) return next;
    // Behind everything else: at head_dim 128 there is no register to spare for a delta.
    const Tile delta = load(t.at_aligned(in.delta, rows)).named("delta");
    // Where dQ is computed as well, registers hold the rounded probs alone.
    const Tile held = wanted.dq ? cast(rounded, DType::f32) : probs;
    const Tile change =
        cast(dscores_of(t, in, rows, cols, products, held, dprobs, delta), spec.dtype);
    if (wanted.dq)
      accumulate(t.at(dq, t.head, rows, in.d), dot(transpose(change), key).named("dq"));
    next.dk = s.dk + dot(change, query);
    return next;
  };
  // The axis of a gradient that is not wanted has no tile.
  Sums sums{b.fill({cols, in.d}, 0).named("dk"), b.fill({cols, in.d_v}, 0).named("dv")};
  if (wanted.dk && wanted.dv)
    sums = b.loop(rows, sums, add_rows);
  else if (wanted.dk)
    sums.dk = b.loop(rows, sums.dk, [&](const Tile& sum) { return add_rows({.dk = sum}).dk; });
  else
    sums.dv = b.loop(rows, sums.dv, [&](const Tile& sum) { return add_rows({.dv = sum}).dv; });
  const auto store_sum = [&](const Tensor& tensor, Axis columns, const Tile& sum) {
    const Tile whole = within(t.own_kv_len, cols, sum);
    store(t.at(tensor, t.head, cols, columns), grouped ? whole : cast(whole, spec.dtype));
  };
  if (wanted.dk) store_sum(dk, in.d, sums.dk * in.scale);
  if (wanted.dv) store_sum(dv, in.d_v, sums.dv);
  return b.finish();
}

/// Blocks have tiles of query rows, without a loop. `with_sums`: dq_sums, too, starts there.
Program rows_program(const AttentionSpec& given, const char* name, bool with_sums) {
  const AttentionSpec spec = without_sink(given);
  ProgramBuilder b(name);
  AttentionTensors t = declare_attention(b, spec);
  const Axis d_v = b.whole("d_v", spec.stored_value_dim());
  const Axis rows = b.parallel_tiles("rows", t.q_len);
  const Tensor o = t.input("o", t.heads, t.q_len, spec.stored_value_dim());
  const Tensor dout = t.input("dout", t.heads, t.q_len, spec.stored_value_dim());
  const Tensor lse = t.row_input("lse");
  const Tensor delta = t.aligned_row_output("delta"), lse_log2 = t.aligned_row_output("lse_log2");
  Tensor sums;
  Axis d;
  if (with_sums) {
    sums = t.output("dq_sums", t.heads, t.q_len, spec.stored_dim(), DType::f32);
    d = b.whole("d", spec.stored_dim());
  }
  t.set_segments_alone(rows, Heads::queries);

  const Tile out = cast(load(t.at(o, t.head, rows, d_v)).named("out"), DType::f32);
  const Tile dout_tile = cast(load(t.at(dout, t.head, rows, d_v)).named("dout"), DType::f32);
  store(t.at_aligned(delta, rows), reduce_sum(out * dout_tile, d_v));
  const Tile natural = load(t.at(lse, rows));
  store(t.at_aligned(lse_log2, rows), where(natural == -infinity, infinity, natural * log2e));
  if (with_sums) store(t.at(sums, t.head, rows, d), b.fill({rows, d}, 0));
  return b.finish();
}

}  // namespace

Program attention_backward_rows(const AttentionSpec& spec) {
  return rows_program(spec, "attention_backward_rows", /*with_sums=*/false);
}

bool backward_apart(const AttentionSpec& spec) {
  return std::max(spec.stored_dim(), spec.stored_value_dim()) > 128;
}

Program attention_backward_keys(const AttentionSpec& spec) {
  return keys_program(spec, "attention_backward_keys", {.dv = !backward_apart(spec)});
}

Program attention_backward_values(const AttentionSpec& spec) {
  if (!backward_apart(spec))
    refuse("a program of its own for the gradient of the values",
           "attention_backward_keys computes it, up to a head_dim of 128",
           "attention_backward_keys");
  return keys_program(spec, "attention_backward_values", {.dk = false});
}

Program attention_backward_queries(const AttentionSpec& given) {
  const AttentionSpec spec = without_sink(given);
  ProgramBuilder b("attention_backward_queries");
  AttentionTensors t = declare_attention(b, spec);
  const Axis rows = b.parallel_tiles("rows", t.q_len), cols = b.tiles("cols", t.kv_len);
  const Inputs in = declare_inputs(t);
  const Tensor dq = t.output("dq", t.heads, t.q_len, spec.stored_dim());
  t.set_segments(rows, cols);
  declare_captured(b, captured_tensors(spec));
  const Tile kv_head = (index(t.head) / spec.group()).named("kv_head");

  const Tile query = load(t.at(in.q, t.head, rows, in.d)).named("query");
  const Tile dout = load(t.at(in.dout, t.head, rows, in.d_v)).named("dout");
  const Tile lse = load(t.at_aligned(in.lse, rows)).named("lse");
  const Tile delta = load(t.at_aligned(in.delta, rows)).named("delta");
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
    refuse("sums over the query heads of a group",
           "the spec has as many heads of keys as of queries",
           "attention_backward_keys alone, which stores dk and dv");
  ProgramBuilder b("attention_backward_groups");
  AttentionTensors t = declare_attention(b, spec, Heads::keys);
  const Axis cols = b.parallel_tiles("cols", t.kv_len);
  t.set_segments_alone(cols, Heads::keys);
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
  return module_of("attention_backward", spec, std::move(programs), {"delta", "lse_log2"});
}

// ---- with shares of dQ that are added up

Program attention_backward_adding_rows(const AttentionSpec& spec) {
  return rows_program(spec, "attention_backward_adding_rows", /*with_sums=*/true);
}

Program attention_backward_adding_keys(const AttentionSpec& spec) {
  if (backward_apart(spec))
    refuse("gradients of keys and values in one program, which adds to that of queries",
           "beyond a head_dim of 128 both are more than a block's registers", "attention_backward");
  return keys_program(spec, "attention_backward_adding_keys", {.dq = true});
}

Program attention_backward_adding_queries(const AttentionSpec& given) {
  const AttentionSpec spec = without_sink(given);
  ProgramBuilder b("attention_backward_adding_queries");
  AttentionTensors t = declare_attention(b, spec);
  const Axis rows = b.parallel_tiles("rows", t.q_len), d = b.whole("d", spec.stored_dim());
  const Tensor sums = t.input("dq_sums", t.heads, t.q_len, spec.stored_dim(), DType::f32);
  const Tensor dq = t.output("dq", t.heads, t.q_len, spec.stored_dim());
  const Tile scale = b.scalar("scale", DType::f32, /*positive=*/true);
  t.set_segments_alone(rows, Heads::queries);
  const Tile sum = load(t.at(sums, t.head, rows, d)).named("sum");
  store(t.at(dq, t.head, rows, d), cast(sum * scale, spec.dtype));
  return b.finish();
}

Module attention_backward_adding(const AttentionSpec& spec) {
  return module_of("attention_backward_adding", spec,
                   {attention_backward_adding_rows(spec), attention_backward_adding_keys(spec),
                    attention_backward_adding_queries(spec)},
                   {"delta", "lse_log2", "dq_sums"});
}

}  // namespace flashcore
