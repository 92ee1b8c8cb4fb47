#include "templates/attention_decode.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "templates/attention.h"
#include "templates/attention_tensors.h"
#include "templates/choice/decode_splits.h"
#include "templates/decode_partials.h"
#include "templates/decode_places.h"
#include "templates/decode_plan.h"

namespace flashcore {
namespace {

struct State {
  Tile row_max, row_sum, out;
};

void refuse(std::string what, std::string why, std::string fix) {
  throw SpecError({std::move(what), std::move(why), std::move(fix), {}});
}

void check_decode(const DecodeSpec& spec) {
  const AttentionSpec& a = spec.attention;
  if (a.packed() && !spec.combines_tiles && !spec.balances)
    refuse("decoding with layout thd and combines_tiles = false",
           "a block for each row does not know whether a sequence has it",
           "combines_tiles = true, or balances = true");
  if (a.dtype == DType::f32)
    refuse("decoding with dtype f32", "its products take bf16 and f16 operands",
           "dtype bf16 or f16, or attention_forward");
  const bool differ = a.kv_lens || a.packed();
  if (spec.balances && (!differ || spec.rows != DecodeRows::packed || spec.combines_tiles))
    refuse("splits that are balanced over sequences",
           "a plan needs kv_lens or layout thd, rows = packed and combines_tiles = false",
           "balances = false");
  if (spec.skips_long && !(spec.balances && a.packed()))
    refuse("a split program that skips long sequences",
           "only a plan for packed sequences knows which have few query rows",
           "layout thd and balances = true, or skips_long = false");
}

/// o, and lse if the spec asks for it.
struct Outputs {
  const AttentionTensors& t;
  Tensor o, lse;

  explicit Outputs(const AttentionTensors& tensors)
      : t(tensors), o(t.output("o", t.heads, t.q_len, t.spec->stored_value_dim())) {
    if (t.spec->lse) lse = t.row_output("lse");
  }

  /// What the sums of rows come to, or nothing where they are `empty`.
  void store_rows(const Index& head, const Index& rows, Axis columns, const State& sums,
                  const SoftmaxUnits& units, const Tile& empty) const {
    const Tile inverse = where(empty, 0.f, 1.f / sums.row_sum).named("inverse");
    store(t.at(o, head, rows, columns), cast(sums.out * inverse, t.spec->dtype));
    if (t.spec->lse) store(t.at(lse, head, rows), units.lse_of(empty, sums.row_max, sums.row_sum));
  }
};

}  // namespace

Program attention_decode_split(const DecodeSpec& decode) {
  check_decode(decode);
  const AttentionSpec& spec = decode.attention;
  const bool packs = decode.packs_heads();
  ProgramBuilder b("attention_decode_split");
  AttentionTensors t =
      declare_attention(b, spec, packs ? Heads::keys : Heads::queries,
                        decode.balances ? Sequences::computed : Sequences::along_an_axis);
  const Axis split = b.parallel("split", Extent("splits"));
  const Axis d = b.whole("d", spec.stored_dim()), dv = b.whole("dv", spec.stored_value_dim());
  const Axis rows = b.parallel_tiles("rows", packs ? t.q_len * spec.group() : t.q_len);
  const Axis cols = b.tiles("cols", t.kv_len);
  const Tensor q = t.input("q", t.heads, t.q_len, spec.stored_dim());
  const Tensor k = t.key_input("k", spec.stored_dim());
  const Tensor v = t.key_input("v", spec.stored_value_dim());
  t.declare_page_table();
  const DecodePartials partial(t, decode, [&](const char* name, const auto& dims) {
    return b.output(name, DType::f32, dims);
  });
  const Tile scale = b.scalar("scale", DType::f32, /*positive=*/true);
  std::optional<SplitPlan> plan;
  SplitOwner owner;
  if (decode.balances) {
    owner = plan.emplace(t).find_owner(split);
    t.own_sequence = owner.sequence;
  }
  const DecodeSequence own = place_rows(t, decode, q, k, rows, owner.exists);
  const SeenKeys visible = seen_keys(decode, own.q_len, own.kv_len);
  const SplitShare share = plan ? plan->load_share(split)
                                : equal_share(visible, split, partial.count_splits(partial.values));
  const Tile begin = place_split(decode, own, visible, share, cols);
  declare_captured(b, captured_tensors(spec));

  const DecodePlaces at = places_of_rows(t, decode, own, rows);
  Tile query = load(t.at(q, at.head_at, at.row_at, d)).named("query");
  // What is computed is an operand in registers, of the same value.
  if (decode.rows == DecodeRows::packed_in_registers)
    query = cast(cast(query, DType::f32), spec.dtype).named("query_operand");
  const SoftmaxUnits units = t.softmax_units(scale);
  State start{b.fill({rows}, lowest), b.fill({rows}, 0), b.fill({rows, dv}, 0).named("out")};
  if (!spec.sink.text.empty()) {
    // The first split starts from the sink.
    const ScoreSite site{t.sequence(), at.head, at.row, {}, own.q_len, own.kv_len};
    const Tile sink = apply(spec.sink, site) * units.unit;
    const Tile first = (plan ? share.skipped : index(split)) == 0;
    const Tile begun = units.products_alone ? sink / scale : sink;
    start.row_max = where(first, maximum(start.row_max, begun), lowest);
    start.row_sum = where(first, b.fill({rows}, 1), 0);
  }
  const State last = b.loop(cols, start, [&](const State& s) {
    const Tile key = t.load_keys(k, at.kv_head, cols, d, begin).named("key");
    const Tile value = t.load_keys(v, at.kv_head, cols, dv, begin).named("value");
    const ScoreSite site{t.sequence(), at.head, at.row, index(cols) + begin, own.q_len, own.kv_len};
    const Tile products = dot(query, transpose(key));
    const Tile scores = t.scores_at(site, products, units.scale, units.unit).named("scores");
    const Tile row_max = maximum(s.row_max, reduce_max(scores, cols)).named("new_max");
    const Tile decay = units.exp2_of(s.row_max, row_max).named("decay");
    const Tile probs = units.exp2_of(scores, row_max).named("probs");
    return State{row_max, s.row_sum * decay + reduce_sum(probs, cols),
                 s.out * decay + dot(cast(probs, spec.dtype), value)};
  });
  Index row_at = at.row_at;
  if (plan) {
    // What is the sum over one split alone needs no combination. Rows of -1 are not stored.
    const Tile alone = plan->count_splits() == 1;
    const Tile place = spec.packed() ? where(at.row < own.q_len, at.row + own.q_begin, -1) : at.row;
    Tile empty = last.row_sum == 0.f;
    if (spec.q_lens) empty = empty || at.row >= own.q_len;
    Outputs(t).store_rows(at.head_at, where(alone, place, -1), dv, last, units, empty);
    row_at = where(alone, -1, at.row);
  }
  store(partial.at(partial.values, at.head_at, split, row_at, dv), last.out);
  // As the weights were made with it: the rounding error of the product is the same in all of them.
  store(partial.at(partial.maxima, at.head_at, split, row_at), units.in_base2(last.row_max));
  store(partial.at(partial.sums, at.head_at, split, row_at), last.row_sum);
  return b.finish();
}

namespace {

/// One row a block, and a tile of splits after the other.
State combine_row(ProgramBuilder& b, const DecodePartials& in, Axis splits, const Index& row,
                  Axis dv) {
  const AttentionTensors& t = in.t;
  const auto of_split = [&](const Tensor& tensor) {
    return load(in.at(tensor, t.head, splits, row));
  };
  const State start{b.constant(lowest), b.constant(0), b.fill({dv}, 0).named("out")};
  return b.loop(splits, start, [&](const State& s) {
    const Tile row_max =
        maximum(s.row_max, reduce_max(of_split(in.maxima), splits)).named("new_max");
    const Tile decay = exp2(s.row_max - row_max).named("decay");
    // No maximum is above that of all splits but the zero of one that does not exist.
    const auto weight = [&] {
      return exp2(minimum(of_split(in.maxima), row_max) - row_max).named("weight");
    };
    const Tile weighted = weight() * of_split(in.sums), weights = weight();
    const Tile values = load(in.at(in.values, t.head, splits, row, dv)).named("values");
    return State{row_max, s.row_sum * decay + reduce_sum(weighted, splits),
                 s.out * decay + reduce_sum(weights * values, splits)};
  });
}

/// A tile of rows, and all splits at once. Those that do not exist are the last one, without weight.
State combine_rows(ProgramBuilder& b, const DecodePartials& in, int most, Axis rows, Axis dv) {
  const AttentionTensors& t = in.t;
  const Tile count = in.count_splits(in.maxima);
  State all{b.fill({rows}, lowest), b.fill({rows}, 0), b.fill({rows, dv}, 0)};
  std::vector<Tile> places, maxima;
  for (int split = 0; split < most; ++split) {
    places.push_back(minimum(split, count - 1));
    maxima.push_back(load(in.at(in.maxima, t.head, places.back(), rows)));
    all.row_max = maximum(all.row_max, maxima.back());
  }
  for (int split = 0; split < most; ++split) {
    const auto at = static_cast<std::size_t>(split);
    const Tile weight = where(split < count, exp2(maxima[at] - all.row_max), 0.f).named("weight");
    const Tile values = load(in.at(in.values, t.head, places[at], rows, dv)).named("values");
    all.row_sum = all.row_sum + weight * load(in.at(in.sums, t.head, places[at], rows));
    all.out = all.out + weight * values;
  }
  return all;
}

/// Has a row be one of the block's own sequence, if that has several splits, and says where `o` has it.
Index place_in_sequence(const AttentionTensors& t, const SplitPlan& plan, Axis row,
                        const Tensor& o) {
  ProgramBuilder& b = *t.builder;
  const auto if_several = [&](const Tile& rows) { return where(plan.count_splits() > 1, rows, 0); };
  const Tile all_rows = length(o, t.length_dim());
  if (!t.spec->packed()) {
    b.segment(row, 0, if_several(all_rows));
    return row;
  }
  const Tensor starts = b.input("cu_seqlens_q", DType::i32, {t.batch_size + 1});
  const Tile begin = load(starts(t.sequence())), end = load(starts(t.sequence() + 1));
  b.segment(row, 0, if_several(end - begin));
  // Whatever the starts are, nothing is written outside the tensors.
  return minimum(maximum(begin + index(row), 0), all_rows - 1).named("place");
}

}  // namespace

Program attention_decode_combine(const DecodeSpec& decode) {
  check_decode(decode);
  const AttentionSpec& spec = decode.attention;
  ProgramBuilder b("attention_decode_combine");
  AttentionTensors t = declare_attention(b, spec);
  const bool of_a_sequence = decode.balances && spec.packed();
  const Axis row = decode.combines_tiles
                       ? b.parallel_tiles("rows", t.q_len)
                       : b.parallel("row", of_a_sequence ? Extent("most_rows") : t.q_len);
  const Axis dv = b.whole("dv", spec.stored_value_dim());
  const DecodePartials in(t, decode, [&](const char* name, const auto& dims) {
    return b.input(name, DType::f32, dims);
  });
  const Outputs outputs(t);
  Index place = row;
  State last;
  if (decode.combines_tiles) {
    t.set_segments_alone(row, Heads::queries);
    last = combine_rows(b, in, most_combined_splits(spec, decode.rows), row, dv);
  } else {
    const Axis splits = b.tiles("splits", Extent("splits"));
    if (decode.balances) {
      const SplitPlan plan(t);
      place = place_in_sequence(t, plan, row, outputs.o);
      plan.place_splits(splits);
    }
    last = combine_row(b, in, splits, row, dv);
  }
  Tile empty = last.row_sum == 0.f;
  if (spec.q_lens) empty = empty || index(row) >= t.given_length("q_lens");
  outputs.store_rows(t.head, place, dv, last, SoftmaxUnits{}, empty);
  return b.finish();
}

Module attention_decode(const DecodeSpec& spec, int row_tile, const CostModel& model) {
  ModuleBuilder m("attention_decode");
  if (spec.balances) {
    m.several_writers("o");
    if (spec.attention.lse) m.several_writers("lse");
    // A block of a long split, among short ones, reads contiguous keys no faster than those in pages.
    AttentionSpec in_pages = spec.attention;
    in_pages.page_size = std::max(in_pages.page_size, 1);
    const SplitCosts costs = split_costs(in_pages, {spec.rows, row_tile}, model);
    add_plan_numbers(m, spec, row_tile, costs);
    for (const char* workspace : {"first_split", "split_keys"}) m.workspace(workspace);
    if (spec.skips_long)
      for (const char* list : {"long_in_front", "long_sequences", "long_starts"}) m.workspace(list);
    m.kernel(attention_decode_plan(spec, costs));
  } else {
    m.number("splits", decode_splits_text(spec, row_tile, model));
  }
  for (const char* workspace : {"partial", "partial_max", "partial_sum"}) m.workspace(workspace);
  if (spec.attention.packed() && spec.packs_heads())
    m.number("most_packed_rows", fmt::format("{} * {}", spec.balances ? "most_rows" : "max_q_len",
                                             spec.attention.group()));
  m.kernel(attention_decode_split(spec));
  m.kernel(attention_decode_combine(spec));
  if (spec.skips_long) m.kernel(attention_forward_of_long(spec.attention));
  return m.finish();
}

bool can_decode(const AttentionSpec& spec, const Target& target) {
  return target.mma_m16n8k16 && target.async_copy && spec.dtype != DType::f32 &&
         spec.head_dim <= 256 && spec.value_dim() <= 256 && spec.group() <= most_decode_rows;
}

}  // namespace flashcore
