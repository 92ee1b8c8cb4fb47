#include "templates/attention_backward_parts.h"

#include "templates/attention_backward.h"

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

Module backward_module(const char* name, const AttentionSpec& spec, std::vector<Program> programs,
                       std::vector<std::string> workspaces) {
  if (spec.group() > 1) {
    programs.push_back(attention_backward_groups(spec));
    workspaces.insert(workspaces.end(), {"dk_heads", "dv_heads"});
  }
  ModuleBuilder m(name);
  for (Program& program : programs) m.kernel(std::move(program));
  for (std::string& workspace : workspaces) m.workspace(std::move(workspace));
  return m.finish();
}

BackwardInputs declare_inputs(const AttentionTensors& t, bool with_dscores) {
  ProgramBuilder& b = *t.builder;
  const AttentionSpec& spec = *t.spec;
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

Tile probs_of(const AttentionTensors& t, const BackwardInputs& in, Axis rows, Axis cols,
              const Tile& products, const Tile& lse) {
  const Tile scores = t.scores(products, in.scale, rows, cols, log2e).named("scores");
  return exp2(scores - lse).named("probs");
}

Tile dscores_of(const AttentionTensors& t, const BackwardInputs& in, Axis rows, Axis cols,
                const Tile& products, const Tile& probs, const Tile& dprobs, const Tile& delta) {
  const Tile own = probs * (dprobs - delta);
  if (t.spec->score.text.empty()) return own.named("dscores");
  const Tile through = t.through_score(products, in.scale, rows, cols, own);
  return where(probs == 0.f, 0.f, through).named("dscores");
}

Tile within(const Tile& own_length, Axis axis, const Tile& sum) {
  return own_length.owner() ? where(index(axis) < own_length, sum, 0.f) : sum;
}

// ---- tiles of keys

KeyProgram::KeyProgram(const AttentionSpec& given, const char* name)
    : spec_(without_sink(given)),
      b_(name),
      t_(declare_attention(b_, spec_)),
      cols_(b_.parallel_tiles("cols", t_.kv_len)),
      rows_(b_.tiles("rows", t_.q_len)) {}

/// The axis of a gradient that is not wanted has no tile.
Program KeyProgram::build(const Gradients& wanted) {
  in_ = declare_inputs(t_, wanted.dk);
  const Tensor dk = wanted.dk ? output("dk", spec_.stored_dim()) : Tensor();
  const Tensor dv = wanted.dv ? output("dv", spec_.stored_value_dim()) : Tensor();
  const Tensor dq = wanted.dq
                        ? t_.output("dq_sums", t_.heads, t_.q_len, spec_.stored_dim(), DType::f32)
                        : Tensor();
  t_.set_segments_of_keys(rows_, cols_);
  declare_captured(b_, captured_tensors(spec_));
  kv_head_ = (index(t_.head) / spec_.group()).named("kv_head");
  key_ = load(t_.at(in_.k, kv_head_, cols_, in_.d)).named("key");
  if (wanted.dk) value_ = load(t_.at(in_.v, kv_head_, cols_, in_.d_v)).named("value");
  const Tile no_dk = b_.fill({cols_, in_.d}, 0).named("dk");
  const Tile no_dv = b_.fill({cols_, in_.d_v}, 0).named("dv");
  Sums last;
  if (wanted.dk && wanted.dv)
    last = b_.loop(rows_, Sums{no_dk, no_dv}, [&](const Sums& s) {
      const Visit visit = visit_rows();
      const Tile dv_sum = s.dv + dot(cast(visit.probs, spec_.dtype), visit.dout);
      const Tile change = cast(dscores(visit), spec_.dtype);
      if (wanted.dq)
        accumulate(t_.at(dq, t_.head, rows_, in_.d), dot(transpose(change), key_).named("dq"));
      return Sums{s.dk + dot(change, visit.query), dv_sum};
    });
  else if (wanted.dk)
    last.dk = b_.loop(rows_, no_dk, [&](const Tile& sum) {
      const Visit visit = visit_rows();
      return sum + dot(cast(dscores(visit), spec_.dtype), visit.query);
    });
  else
    last.dv = b_.loop(rows_, no_dv, [&](const Tile& sum) {
      const Visit visit = visit_rows();
      return sum + dot(cast(visit.probs, spec_.dtype), visit.dout);
    });
  if (wanted.dk) store_sums(dk, in_.d, last.dk * in_.scale);
  if (wanted.dv) store_sums(dv, in_.d_v, last.dv);
  return b_.finish();
}

KeyProgram::Visit KeyProgram::visit_rows() {
  Visit visit;
  visit.query = load(t_.at(in_.q, t_.head, rows_, in_.d)).named("query");
  visit.dout = load(t_.at(in_.dout, t_.head, rows_, in_.d_v)).named("dout");
  const Tile lse = load(t_.at(in_.lse, rows_)).named("lse");
  visit.products = dot(key_, transpose(visit.query));
  visit.probs = probs_of(t_, in_, rows_, cols_, visit.products, lse);
  if (value_.owner()) visit.dprobs = dot(value_, transpose(visit.dout)).named("dprobs");
  return visit;
}

/// Behind everything else: at head_dim 128 there is no register to spare for a delta.
Tile KeyProgram::dscores(const Visit& visit) {
  const Tile delta = load(t_.at(in_.delta, rows_)).named("delta");
  return dscores_of(t_, in_, rows_, cols_, visit.products, visit.probs, visit.dprobs, delta);
}

/// For each query head, where a group of them shares keys.
Tensor KeyProgram::output(const std::string& name, int dim) {
  const bool grouped = spec_.group() > 1;
  return t_.output(grouped ? name + "_heads" : name, t_.heads, t_.kv_len, dim,
                   grouped ? DType::f32 : spec_.dtype);
}

void KeyProgram::store_sums(const Tensor& tensor, Axis columns, const Tile& sum) {
  const Tile whole = within(t_.own_kv_len, cols_, sum);
  store(t_.at(tensor, t_.head, cols_, columns),
        spec_.group() > 1 ? whole : cast(whole, spec_.dtype));
}

}  // namespace flashcore
