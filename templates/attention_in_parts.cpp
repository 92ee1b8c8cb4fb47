#include "templates/attention_in_parts.h"

#include <array>

#include "templates/attention_tensors.h"

namespace flashcore {
namespace {

/// What the loop over key columns carries for every query row.
struct Whole {
  Tile row_max, row_sum, out;
  std::array<Tile*, 1> outs() { return {&out}; }
};
/// The same where the output has two halves.
struct Halves {
  Tile row_max, row_sum, left, right;
  std::array<Tile*, 2> outs() { return {&left, &right}; }
};

/// The tensors of an operand's parts.
struct Parts {
  Parts(const AttentionTensors& t, const std::string& name, const Extent& heads,
        const Extent& length, int dim) {
    for (const char* part : part_names)
      tensors.push_back(t.input(name + part, heads, length, dim, DType::bf16));
  }

  [[nodiscard]] Factor load_tiles(const AttentionTensors& t, const Index& head, Axis rows,
                                  Axis columns, const std::string& name) const {
    Factor tiles;
    for (const Tensor& tensor : tensors)
      tiles.push_back(
          load(t.at(tensor, head, rows, columns)).named(name + part_names[tiles.size()]));
    return tiles;
  }

  std::vector<Tensor> tensors;
};

/// `State` is Whole or Halves.
template <class State>
Program forward(const AttentionSpec& spec) {
  ProgramBuilder b("attention_forward_in_parts");
  AttentionTensors t = declare_attention(b, spec);
  State start;
  const int ranges = static_cast<int>(start.outs().size()), width = value_columns(spec);
  const Axis d = b.whole("d", spec.stored_dim()), dv = b.whole("dv", width);
  const Axis rows = b.parallel_tiles("rows", t.q_len), cols = b.tiles("cols", t.kv_len);
  const Parts q(t, "q", t.heads, t.q_len, spec.stored_dim());
  const Parts k(t, "k", t.kv_heads, t.kv_len, spec.stored_dim());
  std::vector<Parts> v;
  for (const std::string& name : names_of_values(spec))
    v.emplace_back(t, name, t.kv_heads, t.kv_len, width);
  const Tensor o = t.output("o", t.heads, t.q_len, spec.stored_value_dim());
  const Tensor lse = spec.lse ? t.row_output("lse") : Tensor();

  const Tile scale = b.scalar("scale", DType::f32, /*positive=*/true);
  t.set_segments(spec, rows, cols);
  declare_captured(b, captured_tensors(spec));
  const Tile kv_head = (index(t.head) / spec.group()).named("kv_head");

  const Factor query = q.load_tiles(t, t.head, rows, d, "query");
  const SoftmaxUnits units = softmax_units(b, spec, scale);
  const SoftmaxStart softmax =
      start_softmax(b, spec, t, rows, cols, units.unit, units.products_alone ? scale : Tile());
  start.row_max = softmax.row_max.named("row_max");
  start.row_sum = softmax.row_sum.named("row_sum");
  for (Tile* out : start.outs()) *out = b.fill({rows, dv}, 0).named("out");
  State last = b.loop(cols, start, [&](State s) {
    const Factor key = k.load_tiles(t, kv_head, cols, d, "key");
    std::vector<Factor> values;
    for (const Parts& range : v) values.push_back(range.load_tiles(t, kv_head, cols, dv, "value"));
    const Tile scores =
        scores_of(b, spec, t, dot(query, transpose(key)), units.scale, rows, cols, units.unit)
            .named("scores");
    State next;
    next.row_max = maximum(s.row_max, reduce_max(scores, cols)).named("new_max");
    const Tile decay = units.exp2_of(s.row_max, next.row_max).named("decay");
    const Tile probs = units.exp2_of(scores, next.row_max).named("probs");
    next.row_sum = s.row_sum * decay + reduce_sum(probs, cols);
    const Factor weights = split(probs);
    for (int i = 0; i < ranges; ++i)
      *next.outs()[i] = *s.outs()[i] * decay + dot(weights, values[i]);
    return next;
  });

  // Rows that see no key, and infinite scores, as in attention_forward.
  const Tile empty = t.or_beyond(last.row_sum == 0.f, rows).named("empty");
  const Tile inverse = where(empty, 0.f, 1.f / last.row_sum).named("inverse");
  for (int i = 0; i < ranges; ++i) {
    const Index columns = ranges == 1 ? Index(dv) : Index(index(dv) + i * width);
    store(t.at(o, t.head, rows, columns), *last.outs()[i] * inverse);
  }
  if (spec.lse) {
    const Tile finite = (units.in_base2(last.row_max) + log2(last.row_sum)) * ln2;
    store(t.at(lse, rows),
          where(empty, -infinity, where(last.row_max == infinity, infinity, finite)));
  }
  return b.finish();
}

}  // namespace

bool halves_values(const AttentionSpec& spec) { return spec.stored_value_dim() > 128; }

int value_columns(const AttentionSpec& spec) {
  const int dim = spec.stored_value_dim();
  return halves_values(spec) ? (dim + 15) / 16 * 8 : dim;
}

std::vector<std::string> names_of_values(const AttentionSpec& spec) {
  if (halves_values(spec)) return {"v_left", "v_right"};
  return {"v"};
}

Program attention_forward_in_parts(const AttentionSpec& spec) {
  return halves_values(spec) ? forward<Halves>(spec) : forward<Whole>(spec);
}

}  // namespace flashcore
