#include "templates/attention_decode.h"

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "templates/attention_tensors.h"
#include "templates/choice/decode_splits.h"
#include "templates/key_range.h"

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
  if (a.packed() && spec.page_size)
    refuse("pages with layout thd", "a table of pages has a row for each sequence of a batch",
           "layout bhsd or bshd");
  if (a.packed() && !spec.combines_tiles)
    refuse("decoding with layout thd and combines_tiles = false",
           "a block for each row does not know whether a sequence has it", "combines_tiles = true");
  if (a.dtype == DType::f32)
    refuse("decoding with dtype f32", "its products take bf16 and f16 operands",
           "dtype bf16 or f16, or attention_forward");
  if (spec.page_size < 0)
    refuse(fmt::format("pages of {} keys", spec.page_size), "a page has at least one",
           "0 for contiguous keys");
  if (spec.page_size && !a.kv_lens)
    refuse("pages without kv_lens", "a table of pages does not say where a sequence ends",
           "kv_lens = true");
}

/// The tensors between the two programs, f32 over [batch, head, split, row]; without batch where
/// sequences are packed. `values` have columns besides.
struct Partials {
  const AttentionTensors& t;
  Tensor values, maxima, sums;

  /// `declare` makes inputs of them, or outputs.
  template <class Declare>
  Partials(const AttentionTensors& tensors, int columns, const Declare& declare) : t(tensors) {
    std::vector<Extent> dims{t.heads, Extent("splits"), t.q_len};
    if (!t.spec->packed()) dims.insert(dims.begin(), t.batch_size);
    std::vector<Extent> with_columns = dims;
    with_columns.emplace_back(columns);
    values = declare("partial", with_columns);
    maxima = declare("partial_max", dims);
    sums = declare("partial_sum", dims);
  }

  /// One of them at a split and rows, over its columns where it has some.
  [[nodiscard]] Access at(const Tensor& tensor, const Index& head, const Index& split,
                          const Index& rows, std::optional<Axis> columns = {}) const {
    std::vector<Index> indices{head, split, rows};
    if (!t.spec->packed()) indices.insert(indices.begin(), t.batch);
    if (columns) indices.emplace_back(*columns);
    return tensor.access(indices);
  }
  [[nodiscard]] Tile count_splits(const Tensor& tensor) const {
    return length(tensor, t.spec->packed() ? 1 : 2);
  }
};

/// What the rows of a block's tiles are: one head's query rows, or those of all heads of a group.
struct Rows {
  Tile head, row;         ///< of each, as expressions see them
  Index head_at, row_at;  ///< the same where tensors have them
  Tile kv_head;
};

/// A sequence among packed ones: where it begins, and its length.
struct Sequence {
  Tile begin, length;
};
Sequence sequence_of(ProgramBuilder& b, const AttentionTensors& t, const char* starts,
                     const Tile& most) {
  const Tensor at = b.input(starts, DType::i32, {t.batch_size + 1});
  const Tile begin = minimum(maximum(load(at(index(t.batch))), 0), most);
  const Tile end = minimum(maximum(load(at(index(t.batch) + 1)), begin), most);
  return {begin, end - begin};
}

Rows rows_of(const DecodeSpec& spec, const AttentionTensors& t, Axis rows, const Sequence& query) {
  const int group = spec.attention.group();
  if (!spec.packs_heads()) {
    const Tile kv_head = (index(t.head) / group).named("kv_head");
    return {index(t.head), index(rows), t.head, rows, kv_head};
  }
  const Tile head = (index(t.head) * group + index(rows) % group).named("head_of_row");
  const Tile row = (index(rows) / group).named("query_row");
  if (!query.begin.owner()) return {head, row, head, row, index(t.head)};
  const Tile place = where(row < query.length, row + query.begin, -1).named("row_at");
  return {head, row, head, place, index(t.head)};
}

}  // namespace

Program attention_decode_split(const DecodeSpec& given) {
  check_decode(given);
  const AttentionSpec& spec = given.attention;
  const int page_size = given.page_size;
  ProgramBuilder b("attention_decode_split");
  AttentionTensors t =
      declare_attention(b, spec, given.packs_heads() ? Heads::keys : Heads::queries);
  const Axis split = b.parallel("split", Extent("splits"));
  const Axis d = b.whole("d", spec.stored_dim()), dv = b.whole("dv", spec.stored_value_dim());
  const Axis rows =
      b.parallel_tiles("rows", given.packs_heads() ? t.q_len * spec.group() : t.q_len);
  const Extent longest = page_size ? Extent("max_pages") * page_size : t.kv_len;
  const Axis cols = b.tiles("cols", longest);
  const auto cache = [&](const char* name, int dim) {
    if (!page_size) return t.input(name, t.kv_heads, t.kv_len, dim);
    return b.input(name, spec.dtype, {Extent("pages"), page_size, t.kv_heads, dim});
  };
  const Tensor q = t.input("q", t.heads, t.q_len, spec.stored_dim());
  const Tensor k = cache("k", spec.stored_dim()), v = cache("v", spec.stored_value_dim());
  const Tensor table =
      page_size ? b.gathered_input("page_table", DType::i32, {t.batch_size, Extent("max_pages")},
                                   /*unit_stride=*/true)
                : Tensor();
  const Partials partial(t, spec.stored_value_dim(), [&](const char* name, const auto& dims) {
    return b.output(name, DType::f32, dims);
  });
  const Tile scale = b.scalar("scale", DType::f32, /*positive=*/true);

  const int at = spec.packed() ? 0 : spec.layout == TensorLayout::bhsd ? 2 : 1;
  Tile q_len = length(q, at);
  Tile kv_len = page_size ? length(table, 1) * page_size : length(k, at);
  Sequence own_query, own_keys;
  if (spec.packed()) {
    own_query = sequence_of(b, t, "cu_seqlens_q", q_len);
    own_keys = sequence_of(b, t, "cu_seqlens_k", kv_len);
    q_len = own_query.length, kv_len = own_keys.length;
    const int heads = given.packs_heads() ? spec.group() : 1;
    const Tile begin = own_query.begin * heads;
    b.segment(rows, begin, begin + q_len * heads,
              b.scalar(given.packs_heads() ? "most_packed_rows" : "max_q_len", DType::i32));
  }
  if (spec.q_lens) q_len = t.own_q_len = t.own_length("q_lens", q_len).named("own_q_len");
  if (spec.kv_lens) kv_len = t.own_length("kv_lens", kv_len).named("own_kv_len");
  // Equal shares of the keys that some row sees, in which only the last key's tile is not full.
  const Tile rounds = partial.count_splits(partial.values) * keys_of_splits;
  Tile first, end = kv_len, all = kv_len;
  if (const KeyRange visible(spec); visible.bounded()) {
    std::tie(first, end) = visible.range(q_len, kv_len);
    if (page_size) first = first / keys_of_splits * keys_of_splits;
    all = end - first;
  }
  const Tile share = ((all + (rounds - 1)) / rounds * keys_of_splits).named("share");
  const Tile skipped = index(split) * share;
  Tile begin = first.owner() ? first + skipped : skipped;
  // Where keys lie in pages, every split begins with a whole tile, and one behind the last key ends
  // before: so a tile lies in one page if that has a whole number of tiles.
  if (!page_size) begin = minimum(begin, end);
  begin = begin.named("split_begin");
  const Tile split_end = minimum(begin + share, end);
  if (spec.packed())
    b.segment(cols, own_keys.begin + begin, own_keys.begin + split_end);
  else
    b.segment(cols, begin, split_end);
  declare_captured(b, captured_tensors(spec));

  const Rows row = rows_of(given, t, rows, own_query);
  Tile query = load(t.at(q, row.head_at, row.row_at, d)).named("query");
  // What is computed is an operand in registers, of the same value.
  if (given.rows == DecodeRows::packed_in_registers)
    query = cast(cast(query, DType::f32), spec.dtype).named("query_operand");
  // Of keys or values, which are contiguous in the spec's layout, or lie in pages.
  const auto load_tile = [&](const Tensor& tensor, Axis columns) {
    if (!page_size) return load(t.at(tensor, row.kv_head, cols, columns));
    const Tile at = index(cols) + begin;
    const Tile page = gather(table, {index(t.batch), at / page_size}).named("page");
    return load(tensor(page, at % page_size, row.kv_head, columns));
  };
  const SoftmaxUnits units = t.softmax_units(scale);
  State start{b.fill({rows}, lowest), b.fill({rows}, 0), b.fill({rows, dv}, 0).named("out")};
  if (!spec.sink.text.empty()) {
    // The first split starts from the sink.
    const Tile sink =
        apply(spec.sink, {index(t.batch), row.head, row.row, {}, q_len, kv_len}) * units.unit;
    const Tile first = index(split) == 0, begun = units.products_alone ? sink / scale : sink;
    start.row_max = where(first, maximum(start.row_max, begun), lowest);
    start.row_sum = where(first, b.fill({rows}, 1), 0);
  }
  const State last = b.loop(cols, start, [&](const State& s) {
    const Tile key = load_tile(k, d).named("key"), value = load_tile(v, dv).named("value");
    const ScoreSite site{index(t.batch), row.head, row.row, index(cols) + begin, q_len, kv_len};
    const Tile scores =
        t.scores_at(site, dot(query, transpose(key)), units.scale, units.unit).named("scores");
    const Tile row_max = maximum(s.row_max, reduce_max(scores, cols)).named("new_max");
    const Tile decay = units.exp2_of(s.row_max, row_max).named("decay");
    const Tile probs = units.exp2_of(scores, row_max).named("probs");
    return State{row_max, s.row_sum * decay + reduce_sum(probs, cols),
                 s.out * decay + dot(cast(probs, spec.dtype), value)};
  });
  store(partial.at(partial.values, row.head_at, split, row.row_at, dv), last.out);
  // As the weights were made with it: the rounding error of the product is the same in all of them.
  store(partial.at(partial.maxima, row.head_at, split, row.row_at), units.in_base2(last.row_max));
  store(partial.at(partial.sums, row.head_at, split, row.row_at), last.row_sum);
  return b.finish();
}

namespace {

/// One row a block, and a tile of splits after the other.
State combine_row(ProgramBuilder& b, const Partials& in, Axis row, Axis dv) {
  const AttentionTensors& t = in.t;
  const Axis splits = b.tiles("splits", Extent("splits"));
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
State combine_rows(ProgramBuilder& b, const Partials& in, int most, Axis rows, Axis dv) {
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

}  // namespace

Program attention_decode_combine(const DecodeSpec& given) {
  check_decode(given);
  const AttentionSpec& spec = given.attention;
  ProgramBuilder b("attention_decode_combine");
  AttentionTensors t = declare_attention(b, spec);
  const Axis row =
      given.combines_tiles ? b.parallel_tiles("rows", t.q_len) : b.parallel("row", t.q_len);
  const Axis dv = b.whole("dv", spec.stored_value_dim());
  const Partials in(t, spec.stored_value_dim(), [&](const char* name, const auto& dims) {
    return b.input(name, DType::f32, dims);
  });
  const Tensor o = t.output("o", t.heads, t.q_len, spec.stored_value_dim());
  const Tensor lse = spec.lse ? t.row_output("lse") : Tensor();
  t.set_segments_alone(row, Heads::queries);
  const State last = given.combines_tiles
                         ? combine_rows(b, in, most_combined_splits(spec, given.rows), row, dv)
                         : combine_row(b, in, row, dv);
  Tile empty = last.row_sum == 0.f;
  if (spec.q_lens) empty = empty || index(row) >= t.given_length("q_lens");
  const Tile inverse = where(empty, 0.f, 1.f / last.row_sum).named("inverse");
  store(t.at(o, t.head, row, dv), cast(last.out * inverse, spec.dtype));
  if (spec.lse) store(t.at(lse, row), SoftmaxUnits{}.lse_of(empty, last.row_max, last.row_sum));
  return b.finish();
}

Module attention_decode(const DecodeSpec& spec, int row_tile, const CostModel& model) {
  ModuleBuilder m("attention_decode");
  m.number("splits", decode_splits_text(spec, row_tile, model));
  for (const char* workspace : {"partial", "partial_max", "partial_sum"}) m.workspace(workspace);
  if (spec.attention.packed() && spec.packs_heads())
    m.number("most_packed_rows", fmt::format("max_q_len * {}", spec.attention.group()));
  m.kernel(attention_decode_split(spec));
  m.kernel(attention_decode_combine(spec));
  return m.finish();
}

bool can_decode(const AttentionSpec& spec, const Target& target) {
  return target.mma_m16n8k16 && target.async_copy && spec.dtype != DType::f32 &&
         spec.head_dim <= 256 && spec.value_dim() <= 256 && spec.group() <= most_decode_rows;
}

}  // namespace flashcore
