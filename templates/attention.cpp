#include "templates/attention.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "templates/attention_in_parts.h"
#include "templates/attention_tensors.h"
#include "templates/decode_plan.h"

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
  /// `declare` makes a tensor of it, from a name and a dtype.
  template <class Declare>
  Operand(bool in_parts, const std::string& name, const Declare& declare) {
    if (!in_parts) tensors_.emplace_back("", declare(name, std::nullopt));
    for (const char* part : part_names)
      if (in_parts) tensors_.emplace_back(part, declare(name + part, DType::bf16));
  }

  /// `load_one` loads a tile of a tensor.
  template <class Load>
  [[nodiscard]] Factor load_tiles(const std::string& name, const Load& load_one) const {
    Factor tiles;
    for (const auto& [part, tensor] : tensors_)
      tiles.push_back(load_one(tensor).named(name + part));
    return tiles;
  }

 private:
  std::vector<std::pair<std::string, Tensor>> tensors_;
};

struct Variant {
  const char* name;
  bool in_parts = false;  ///< operands come in parts, and are not split here
  bool of_long = false;   ///< of packed sequences, those that a plan lists
};

Program forward(const AttentionSpec& spec, const Variant& variant) {
  const bool in_parts = variant.in_parts;
  ProgramBuilder b(variant.name);
  AttentionTensors t = declare_attention(
      b, spec, Heads::queries, variant.of_long ? Sequences::computed : Sequences::along_an_axis);
  if (variant.of_long) place_in_long_sequences(t);
  const int width = in_parts ? value_columns(spec) : spec.stored_value_dim();
  const Axis d = b.whole("d", spec.stored_dim()), dv = b.whole("dv", width);
  const Axis rows = b.parallel_tiles("rows", t.q_len), cols = b.tiles("cols", t.kv_len);
  const Operand q(in_parts, "q", [&](const std::string& called, std::optional<DType> type) {
    return t.input(called, t.heads, t.q_len, spec.stored_dim(), type);
  });
  const auto declare_keys = [&](int columns) {
    return [&t, columns](const std::string& called, std::optional<DType> type) {
      return t.key_input(called, columns, type);
    };
  };
  const Operand k(in_parts, "k", declare_keys(spec.stored_dim()));
  std::vector<Operand> v;
  for (const std::string& range : in_parts ? names_of_values(spec) : std::vector<std::string>{"v"})
    v.emplace_back(in_parts, range, declare_keys(width));
  const Tensor o = t.output("o", t.heads, t.q_len, spec.stored_value_dim());
  const Tensor lse = spec.lse ? t.row_output("lse") : Tensor();

  const Tile scale = b.scalar("scale", DType::f32, /*positive=*/true);
  t.set_segments(rows, cols);
  declare_captured(b, captured_tensors(spec));
  const Tile kv_head = (index(t.head) / spec.group()).named("kv_head");
  const auto factor = [&](const Factor& loaded) {
    return in_parts ? loaded : factor_of(spec, loaded[0]);
  };

  const auto load_keys = [&](Axis columns) {
    return [&t, &kv_head, cols, columns](const Tensor& keys) {
      return t.load_keys(keys, kv_head, cols, columns);
    };
  };

  const Factor query = factor(q.load_tiles(
      "query", [&](const Tensor& rows_of) { return load(t.at(rows_of, t.head, rows, d)); }));
  const SoftmaxUnits units = t.softmax_units(scale);
  const SoftmaxStart softmax =
      t.start_softmax(rows, cols, units.unit, units.products_alone ? scale : Tile());
  State start{softmax.row_max.named("row_max"), softmax.row_sum.named("row_sum"), {}};
  while (start.outs.size() < v.size()) start.outs.push_back(b.fill({rows, dv}, 0).named("out"));
  const State last = b.loop(cols, start, [&](const State& s) {
    const Factor key = k.load_tiles("key", load_keys(d));
    std::vector<Factor> values;
    for (const Operand& range : v) values.push_back(range.load_tiles("value", load_keys(dv)));
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
  return forward(spec, {"attention_forward"});
}

Program attention_forward_of_long(const AttentionSpec& spec) {
  return forward(spec, {.name = "attention_forward_of_long", .of_long = true});
}

Program attention_forward_in_parts(const AttentionSpec& spec) {
  return forward(spec, {.name = "attention_forward_in_parts", .in_parts = true});
}

}  // namespace flashcore
