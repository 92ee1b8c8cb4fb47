#include "templates/attention.h"

#include <string>
#include <utility>
#include <vector>

#include "templates/attention_in_parts.h"
#include "templates/attention_tensors.h"

namespace flashcore {
namespace {

/// What the loop over key columns carries for every query row. The output may have two halves.
struct State {
  Tile row_max, row_sum;
  std::vector<Tile> outs;
};

/// The tensor of an operand, or those of its parts.
class Operand {
 public:
  Operand(const AttentionTensors& t, bool in_parts, const std::string& name, const Extent& heads,
          const Extent& length, int dim) {
    if (!in_parts) tensors_.emplace_back("", t.input(name, heads, length, dim));
    for (const char* part : part_names)
      if (in_parts)
        tensors_.emplace_back(part, t.input(name + part, heads, length, dim, DType::bf16));
  }

  [[nodiscard]] Factor load_tiles(const AttentionTensors& t, const Index& head, Axis rows,
                                  Axis columns, const std::string& name) const {
    Factor tiles;
    for (const auto& [part, tensor] : tensors_)
      tiles.push_back(load(t.at(tensor, head, rows, columns)).named(name + part));
    return tiles;
  }

 private:
  std::vector<std::pair<std::string, Tensor>> tensors_;
};

/// Operands that come in parts are not split here.
Program forward(const AttentionSpec& spec, const char* name, bool in_parts) {
  ProgramBuilder b(name);
  AttentionTensors t = declare_attention(b, spec);
  const int width = in_parts ? value_columns(spec) : spec.stored_value_dim();
  const Axis d = b.whole("d", spec.stored_dim()), dv = b.whole("dv", width);
  const Axis rows = b.parallel_tiles("rows", t.q_len), cols = b.tiles("cols", t.kv_len);
  const Operand q(t, in_parts, "q", t.heads, t.q_len, spec.stored_dim());
  const Operand k(t, in_parts, "k", t.kv_heads, t.kv_len, spec.stored_dim());
  std::vector<Operand> v;
  for (const std::string& range : in_parts ? names_of_values(spec) : std::vector<std::string>{"v"})
    v.emplace_back(t, in_parts, range, t.kv_heads, t.kv_len, width);
  const Tensor o = t.output("o", t.heads, t.q_len, spec.stored_value_dim());
  const Tensor lse = spec.lse ? t.row_output("lse") : Tensor();

  const Tile scale = b.scalar("scale", DType::f32, /*positive=*/true);
  t.set_segments(rows, cols);
  declare_captured(b, captured_tensors(spec));
  const Tile kv_head = (index(t.head) / spec.group()).named("kv_head");
  const auto factor = [&](const Factor& loaded) {
    return in_parts ? loaded : factor_of(spec, loaded[0]);
  };

  const Factor query = factor(q.load_tiles(t, t.head, rows, d, "query"));
  const SoftmaxUnits units = t.softmax_units(scale);
  const SoftmaxStart softmax =
      t.start_softmax(rows, cols, units.unit, units.products_alone ? scale : Tile());
  State start{softmax.row_max.named("row_max"), softmax.row_sum.named("row_sum"), {}};
  while (start.outs.size() < v.size()) start.outs.push_back(b.fill({rows, dv}, 0).named("out"));
  const State last = b.loop(cols, start, [&](const State& s) {
    const Factor key = k.load_tiles(t, kv_head, cols, d, "key");
    std::vector<Factor> values;
    for (const Operand& range : v)
      values.push_back(range.load_tiles(t, kv_head, cols, dv, "value"));
    const Tile scores = t.scores(product_of(spec, query, transpose(factor(key))), units.scale, rows,
                                 cols, units.unit)
                            .named("scores");
    State next;
    next.row_max = maximum(s.row_max, reduce_max(scores, cols)).named("new_max");
    const Tile decay = units.exp2_of(s.row_max, next.row_max).named("decay");
    const Tile probs = units.exp2_of(scores, next.row_max).named("probs");
    next.row_sum = s.row_sum * decay + reduce_sum(probs, cols);
    for (Factor& value : values) value = factor(value);
    const Factor weights = factor_of(spec, probs);
    for (std::size_t i = 0; i < v.size(); ++i)
      next.outs.push_back(s.outs[i] * decay + product_of(spec, weights, values[i]));
    return next;
  });

  // A row that saw no key has row_sum 0 and becomes zeros, as does one beyond its sequence; a NaN
  // in its scores stays a NaN.
  const Tile empty = t.or_beyond(last.row_sum == 0.f, rows).named("empty");
  const Tile inverse = where(empty, 0.f, 1.f / last.row_sum).named("inverse");
  int first = 0;
  for (const Tile& sum : last.outs) {
    const Index columns = v.size() == 1 ? Index(dv) : Index(index(dv) + first);
    const Tile out = sum * inverse;
    store(t.at(o, t.head, rows, columns), in_parts ? out : cast(out, spec.dtype));
    first += width;
  }
  if (spec.lse) store(t.at(lse, rows), units.lse_of(empty, last.row_max, last.row_sum));
  return b.finish();
}

}  // namespace

Program attention_forward(const AttentionSpec& spec) {
  return forward(spec, "attention_forward", false);
}

Program attention_forward_in_parts(const AttentionSpec& spec) {
  return forward(spec, "attention_forward_in_parts", true);
}

}  // namespace flashcore
