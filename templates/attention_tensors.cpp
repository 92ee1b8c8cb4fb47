#include "templates/attention_tensors.h"

#include <algorithm>

#include <fmt/format.h>

#include "dsl/derivative.h"
#include "dsl/score_range.h"

namespace flashcore {
namespace {

Extent extent_or(std::optional<int> value, const char* name) {
  return value ? Extent(*value) : Extent(std::string(name));
}

std::vector<Extent> dims(const AttentionTensors& t, const Extent& heads, const Extent& length,
                         int dim) {
  if (t.spec->packed()) return {length, heads, Extent(dim)};
  if (t.spec->layout == TensorLayout::bshd) return {t.batch_size, length, heads, Extent(dim)};
  return {t.batch_size, heads, length, Extent(dim)};
}

std::vector<Extent> row_dims(const AttentionTensors& t) {
  if (t.spec->packed()) return {t.heads, t.q_len};
  return {t.batch_size, t.heads, t.q_len};
}

constexpr int aligned_elements = 16 / sizeof(float);

std::vector<Extent> aligned_row_dims(const AttentionTensors& t) {
  if (!t.spec->packed()) return row_dims(t);
  return {t.heads, Extent(std::string("aligned_rows"))};
}

/// Where the block's sequence begins in an aligned row tensor: where it begins in q, rounded down to a chunk
/// of 16 bytes, and one chunk further on for each sequence in front of it, so that no two overlap.
Tile aligned_begin_of(const AttentionTensors& t, const Tile& begin) {
  return ((begin / aligned_elements + t.sequence()) * aligned_elements).named("aligned_begin");
}

/// Places an axis in the block's own one of packed sequences, and gives the row where this sequence begins.
/// `longest`: a name for the length of the longest one where blocks have tiles of the axis.
Tile set_packed(const AttentionTensors& t, Axis axis, const char* starts, const char* longest) {
  const Tile most = longest ? t.builder->scalar(longest, DType::i32) : Tile();
  const Tensor at = t.builder->input(starts, DType::i32, {t.batch_size + 1});
  const Tile begin = load(at(t.sequence())), end = load(at(t.sequence() + 1));
  if (longest)
    t.builder->segment(axis, begin, end, most);
  else
    t.builder->segment(axis, begin, end);
  return begin;
}

/// Places an axis in what there is of the block's own padded sequence.
void set_padded(const AttentionTensors& t, Axis axis, const char* lengths) {
  t.builder->segment(axis, 0, t.given_length(lengths));
}

std::vector<Axis> axes_of(const Tile& tile) {
  std::vector<Axis> axes;
  for (const ir::AxisId axis : tile.owner()->function()[tile.id()].type.axes)
    axes.push_back({tile.owner(), axis});
  return axes;
}

/// A reason is "what: why; what would work", each part after the first perhaps missing. What is in
/// quotation marks is the user's.
Complaint complaint_of(const std::string& reason) {
  const auto quoted = [&](std::size_t at) {
    return std::count(reason.begin(), reason.begin() + static_cast<std::ptrdiff_t>(at), '"') % 2;
  };
  std::size_t why = reason.find(": ");
  while (why != std::string::npos && quoted(why)) why = reason.find(": ", why + 1);
  const std::size_t fix = reason.rfind("; ");
  if (why == std::string::npos) return {"an attention spec", reason, "change what it names", {}};
  if (fix == std::string::npos || fix < why)
    return {reason.substr(0, why), reason.substr(why + 2), "change what it names", {}};
  return {reason.substr(0, why), reason.substr(why + 2, fix - why - 2), reason.substr(fix + 2), {}};
}

void refuse(const std::vector<std::string>& reasons) {
  if (reasons.empty()) return;
  if (reasons.size() == 1) throw SpecError(complaint_of(reasons.front()));
  std::string list;
  for (const std::string& reason : reasons) list += "\n    " + reason;
  throw SpecError({fmt::format("{} mistakes in an attention spec", reasons.size()),
                   list,
                   "change what each line names",
                   {}});
}

}  // namespace

AttentionTensors declare_attention(ProgramBuilder& builder, const AttentionSpec& spec, Heads heads,
                                   Sequences sequences) {
  refuse(check(spec));
  AttentionTensors t;
  t.builder = &builder;
  t.spec = &spec;
  t.batch_size = extent_or(spec.batch, "B");
  t.heads = spec.heads ? Extent(spec.heads) : Extent(std::string("H"));
  t.kv_heads = spec.kv_heads ? Extent(spec.kv_heads) : t.heads;
  t.q_len = extent_or(spec.q_len, spec.packed() ? "Tq" : "Sq");
  t.kv_len = spec.paged() ? Extent("max_pages") * spec.page_size
                          : extent_or(spec.kv_len, spec.packed() ? "Tk" : "Sk");
  if (sequences == Sequences::along_an_axis) t.batch = builder.parallel("batch", t.batch_size);
  t.head = builder.parallel("head", heads == Heads::keys ? t.kv_heads : t.heads);
  return t;
}

Tensor AttentionTensors::input(const std::string& name, const Extent& head_count,
                               const Extent& length, int dim, std::optional<DType> type) const {
  return builder->input(name, type.value_or(spec->dtype), dims(*this, head_count, length, dim));
}

Tensor AttentionTensors::output(const std::string& name, const Extent& head_count,
                                const Extent& length, int dim, std::optional<DType> type) const {
  return builder->output(name, type.value_or(spec->dtype), dims(*this, head_count, length, dim));
}

Tensor AttentionTensors::key_input(const std::string& name, int dim,
                                   std::optional<DType> type) const {
  if (!spec->paged()) return input(name, kv_heads, kv_len, dim, type);
  return builder->input(name, type.value_or(spec->dtype),
                        {Extent("pages"), spec->page_size, kv_heads, Extent(dim)});
}

void AttentionTensors::declare_page_table() {
  if (spec->paged())
    page_table = builder->gathered_input("page_table", DType::i32,
                                         {batch_size, Extent("max_pages")}, /*unit_stride=*/true);
}

Tile AttentionTensors::load_keys(const Tensor& keys, const Index& kv_head, Axis cols,
                                 const Index& columns, const Tile& begin) const {
  if (!spec->paged()) return load(at(keys, kv_head, cols, columns));
  const Tile key = begin.owner() ? index(cols) + begin : index(cols);
  const Tile page = gather(page_table, {sequence(), key / spec->page_size}).named("page");
  return load(keys(page, key % spec->page_size, kv_head, columns));
}

Tile AttentionTensors::longest_keys(const Tensor& keys) const {
  return spec->paged() ? length(page_table, 1) * spec->page_size : length(keys, length_dim());
}

Tensor AttentionTensors::row_input(const std::string& name) const {
  return builder->input(name, DType::f32, row_dims(*this));
}

Tensor AttentionTensors::row_output(const std::string& name) const {
  return builder->output(name, DType::f32, row_dims(*this));
}

Tensor AttentionTensors::aligned_row_input(const std::string& name) const {
  return builder->input(name, DType::f32, aligned_row_dims(*this));
}

Tensor AttentionTensors::aligned_row_output(const std::string& name) const {
  return builder->output(name, DType::f32, aligned_row_dims(*this));
}

std::string aligned_rows_text(const AttentionSpec& spec) {
  return fmt::format("{} + {} * {}", spec.q_len ? std::to_string(*spec.q_len) : "Tq",
                     aligned_elements, spec.batch ? std::to_string(*spec.batch) : "B");
}

Tile AttentionTensors::given_length(const char* lengths) const {
  return load(builder->input(lengths, DType::i32, {batch_size})(at_sequence()));
}

Tile AttentionTensors::own_length(const char* lengths, const Tile& most) const {
  return minimum(maximum(given_length(lengths), 0), most);
}

void AttentionTensors::set_segments(Axis rows, Axis cols) {
  declare_page_table();
  if (spec->packed()) {
    const Tile longest = builder->scalar("max_q_len", DType::i32);
    const Tensor q = builder->input("cu_seqlens_q", DType::i32, {batch_size + 1});
    const Tensor k =
        spec->paged() ? Tensor() : builder->input("cu_seqlens_k", DType::i32, {batch_size + 1});
    const Tile own = sequence(), next = own + 1;
    // One a statement: the order of operations is that of the calls, which arguments do not have.
    const Tile q_end = load(q(next)), q_begin = own_begin.owner() ? own_begin : load(q(own));
    builder->segment(rows, q_begin, next_begin.owner() ? minimum(q_end, next_begin) : q_end,
                     longest);
    if (!spec->paged()) {
      const Tile k_end = load(k(next)), k_begin = load(k(own));
      builder->segment(cols, k_begin, k_end);
    }
    aligned_begin = aligned_begin_of(*this, q_begin);
  }
  if (spec->q_lens) own_q_len = own_length("q_lens", length(rows)).named("own_q_len");
  if (spec->kv_lens) set_padded(*this, cols, "kv_lens");
}

void AttentionTensors::set_segments_of_keys(Axis rows, Axis cols) {
  if (spec->packed()) {
    set_packed(*this, cols, "cu_seqlens_k", "max_kv_len");
    aligned_begin = aligned_begin_of(*this, set_packed(*this, rows, "cu_seqlens_q", nullptr));
  }
  if (spec->q_lens) set_padded(*this, rows, "q_lens");
  if (spec->kv_lens) own_kv_len = own_length("kv_lens", length(cols)).named("own_kv_len");
}

void AttentionTensors::set_segments_alone(Axis axis, Heads of) {
  const bool rows = of == Heads::queries;
  if (!spec->packed()) return;
  const Tile begin = set_packed(*this, axis, rows ? "cu_seqlens_q" : "cu_seqlens_k",
                                rows ? "max_q_len" : "max_kv_len");
  if (rows) aligned_begin = aligned_begin_of(*this, begin);
}

Access AttentionTensors::at(const Tensor& tensor, const Index& head_index, const Index& rows,
                            const Index& columns) const {
  if (spec->packed()) return tensor(rows, head_index, columns);
  if (spec->layout == TensorLayout::bshd) return tensor(at_sequence(), rows, head_index, columns);
  return tensor(at_sequence(), head_index, rows, columns);
}

Access AttentionTensors::at(const Tensor& tensor, const Index& head_index,
                            const Index& rows) const {
  if (spec->packed()) return tensor(head_index, rows);
  return tensor(at_sequence(), head_index, rows);
}

Access AttentionTensors::at_aligned(const Tensor& tensor, Axis rows) const {
  return spec->packed() ? tensor(head, aligned_begin + index(rows)) : at(tensor, rows);
}

ScoreSite AttentionTensors::site(Axis rows, Axis cols) const {
  return {sequence(), index(head), index(rows), index(cols), query_length(rows), key_length(cols)};
}

Tile AttentionTensors::query_length(Axis rows) const {
  return own_q_len.owner() ? own_q_len : length(rows);
}

Tile AttentionTensors::key_length(Axis cols) const {
  return own_kv_len.owner() ? own_kv_len : length(cols);
}

Tile AttentionTensors::or_beyond(const Tile& condition, Axis rows) const {
  return own_q_len.owner() ? condition || index(rows) >= own_q_len : condition;
}

Factor factor_of(const AttentionSpec& spec, const Tile& tile) {
  if (spec.splits_products()) return split(tile);
  return {tile.dtype() == spec.dtype ? tile : cast(tile, spec.dtype)};
}

Tile product_of(const AttentionSpec& spec, const Factor& a, const Factor& b) {
  if (spec.products == Products::tf32) return dot(a[0], b[0], OperandRounding::tf32);
  return dot(a, b);
}

Tile AttentionTensors::scores_at(const ScoreSite& site, const Tile& products, const Tile& scale,
                                 double unit) const {
  Tile scores = products * (scale * unit).named("scale_log2");
  if (!spec->score.text.empty()) {
    // An expression need not depend on everything; the scores have one number a row and key.
    const Tile modified = apply(spec->score, (products * scale).named("scaled"), site);
    const Tile zeros = builder->fill(axes_of(products), 0);
    const Tile whole = (zeros + modified).named("modified");
    scores = unit == 1 ? zeros + whole : whole * unit;
  }
  Tile visible;
  const auto require = [&](const Tile& condition) {
    visible = visible.owner() ? visible && condition : condition;
  };
  if (!spec->mask.is_full()) require(apply(spec->mask, site));
  if (own_q_len.owner()) require(site.query_index < own_q_len);
  if (own_kv_len.owner()) require(site.key_index < own_kv_len);
  return visible.owner() ? where(visible, scores.named("scores"), -infinity) : scores;
}

Tile AttentionTensors::through_score(const Tile& products, const Tile& scale, Axis rows, Axis cols,
                                     const Tile& dscores) const {
  if (spec->score.text.empty()) return dscores;
  const Tile scaled = products * scale;
  return dscores * derivative(apply(spec->score, scaled, site(rows, cols)), scaled).named("slope");
}

bool scores_of_any_size(const AttentionSpec& spec) {
  // Softcapped scores are small whatever a call brings.
  return spec.large_scores && !(spec.sink.text.empty() && is_within(spec.score, 1 << 27));
}

SoftmaxUnits AttentionTensors::softmax_units(const Tile& scale) const {
  SoftmaxUnits units{.scale = scale};
  if (!scores_of_any_size(*spec)) return units;
  units.unit = 1;
  // Without a factor scores are products, or what the score expression makes of them.
  units.products_alone = spec->score.text.empty();
  units.factor =
      units.products_alone ? (scale * log2e).named("scale_log2") : builder->constant(log2e);
  if (units.products_alone) units.scale = builder->constant(1);
  return units;
}

SoftmaxStart AttentionTensors::start_softmax(Axis rows, Axis cols, double unit,
                                             const Tile& divisor) const {
  const Tile nothing = builder->fill({rows}, lowest);
  if (spec->sink.text.empty()) return {nothing, builder->fill({rows}, 0)};
  const Tile sink = apply(
      spec->sink, {sequence(), index(head), index(rows), {}, query_length(rows), length(cols)});
  const Tile start = sink * unit;
  return {maximum(nothing, divisor.owner() ? start / divisor : start), builder->fill({rows}, 1)};
}

Tile SoftmaxUnits::lse_of(const Tile& empty, const Tile& row_max, const Tile& row_sum) const {
  const Tile finite = (in_base2(row_max) + log2(row_sum)) * ln2;
  return where(empty, -infinity, where(row_max == infinity, infinity, finite));
}

}  // namespace flashcore
