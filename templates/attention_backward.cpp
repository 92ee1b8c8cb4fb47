#include "templates/attention_backward.h"

#include <algorithm>
#include <string>

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

/// The inputs of a loop.
struct Inputs {
  Tensor q, k, v, dout, lse, delta;
  Tile scale;
  Axis d, d_v;
};

/// Without the gradients of scores neither values nor deltas are read.
Inputs declare_inputs(ProgramBuilder& b, const AttentionSpec& spec, const AttentionTensors& t,
                      bool with_dscores = true) {
  Inputs in;
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

namespace {

/// A program with blocks of keys and a loop over query rows, and what its blocks compute in it.
class KeyProgram {
 public:
  KeyProgram(const AttentionSpec& given, const char* name)
      : spec_(without_sink(given)),
        b_(name),
        t_(declare_attention(b_, spec_)),
        cols_(b_.parallel_tiles("cols", t_.kv_len)),
        rows_(b_.tiles("rows", t_.q_len)) {}

  /// dK and dV, or one of them, whose axis the other has no tile of.
  Program build(bool with_dk, bool with_dv) {
    in_ = declare_inputs(b_, spec_, t_, with_dk);
    const Tensor dk = with_dk ? output("dk", spec_.stored_dim()) : Tensor();
    const Tensor dv = with_dv ? output("dv", spec_.stored_value_dim()) : Tensor();
    t_.set_segments_of_keys(spec_, rows_, cols_);
    declare_captured(b_, captured_tensors(spec_));
    kv_head_ = (index(t_.head) / spec_.group()).named("kv_head");
    key_ = load(t_.at(in_.k, kv_head_, cols_, in_.d)).named("key");
    if (with_dk) value_ = load(t_.at(in_.v, kv_head_, cols_, in_.d_v)).named("value");
    const Tile no_dk = b_.fill({cols_, in_.d}, 0).named("dk");
    const Tile no_dv = b_.fill({cols_, in_.d_v}, 0).named("dv");
    Sums last;
    if (with_dk && with_dv)
      last = b_.loop(rows_, Sums{no_dk, no_dv}, [&](const Sums& s) {
        const Visit visit = visit_rows();
        const Tile dv_sum = s.dv + dot(cast(visit.probs, spec_.dtype), visit.dout);
        return Sums{s.dk + dot(cast(dscores(visit), spec_.dtype), visit.query), dv_sum};
      });
    else if (with_dk)
      last.dk = b_.loop(rows_, no_dk, [&](const Tile& sum) {
        const Visit visit = visit_rows();
        return sum + dot(cast(dscores(visit), spec_.dtype), visit.query);
      });
    else
      last.dv = b_.loop(rows_, no_dv, [&](const Tile& sum) {
        const Visit visit = visit_rows();
        return sum + dot(cast(visit.probs, spec_.dtype), visit.dout);
      });
    if (with_dk) store_sums(dk, in_.d, last.dk * in_.scale);
    if (with_dv) store_sums(dv, in_.d_v, last.dv);
    return b_.finish();
  }

 private:
  struct Sums {
    Tile dk, dv;
  };
  /// A tile of rows beside the block's keys.
  struct Visit {
    Tile query, dout, products, probs, dprobs;
  };

  Visit visit_rows() {
    Visit visit;
    visit.query = load(t_.at(in_.q, t_.head, rows_, in_.d)).named("query");
    visit.dout = load(t_.at(in_.dout, t_.head, rows_, in_.d_v)).named("dout");
    const Tile lse = load(t_.at(in_.lse, rows_)).named("lse");
    visit.products = dot(key_, transpose(visit.query));
    visit.probs = probs_of(b_, spec_, t_, in_, rows_, cols_, visit.products, lse);
    if (value_.owner()) visit.dprobs = dot(value_, transpose(visit.dout)).named("dprobs");
    return visit;
  }

  /// Behind everything else: at head_dim 128 there is no register to spare for a delta.
  Tile dscores(const Visit& visit) {
    const Tile delta = load(t_.at(in_.delta, rows_)).named("delta");
    return dscores_of(spec_, t_, in_, rows_, cols_, visit.products, visit.probs, visit.dprobs,
                      delta);
  }

  /// For each query head, where a group of them shares keys.
  Tensor output(const std::string& name, int dim) {
    const bool grouped = spec_.group() > 1;
    return t_.output(grouped ? name + "_heads" : name, t_.heads, t_.kv_len, dim,
                     grouped ? DType::f32 : spec_.dtype);
  }

  void store_sums(const Tensor& tensor, Axis columns, const Tile& sum) {
    const Tile whole = within(t_.own_kv_len, cols_, sum);
    store(t_.at(tensor, t_.head, cols_, columns),
          spec_.group() > 1 ? whole : cast(whole, spec_.dtype));
  }

  const AttentionSpec spec_;
  ProgramBuilder b_;
  AttentionTensors t_;
  const Axis cols_, rows_;
  Inputs in_;
  Tile kv_head_, key_, value_;
};

}  // namespace

bool backward_apart(const AttentionSpec& spec) {
  return std::max(spec.stored_dim(), spec.stored_value_dim()) > 128;
}

Program attention_backward_keys(const AttentionSpec& spec) {
  return KeyProgram(spec, "attention_backward_keys").build(true, !backward_apart(spec));
}

Program attention_backward_values(const AttentionSpec& spec) {
  if (!backward_apart(spec))
    throw SpecError({"a program of its own for the gradient of the values",
                     "attention_backward_keys computes it, up to a head_dim of 128",
                     "attention_backward_keys",
                     {}});
  return KeyProgram(spec, "attention_backward_values").build(false, true);
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
