// What every attention program declares alike: batch, heads, and tensors in the spec's layout.
#pragma once

#include <optional>
#include <string>

#include "dsl/flashcore.h"
#include "templates/split_products.h"

namespace flashcore {

inline constexpr double log2e = 1.4426950408889634;
inline constexpr double ln2 = 0.6931471805599453;

/// A tile as the spec's products take it: of its dtype, or in parts.
Factor factor_of(const AttentionSpec& spec, const Tile& tile);
/// The product of two tiles as the spec asks for it.
Tile product_of(const AttentionSpec& spec, const Factor& a, const Factor& b);

/// The units of a softmax's exponents. exp(x) is 2 to the x log2(e), so scores are kept in base-2
/// units; those of any size without a factor, so that differences are taken before it rounds them.
struct SoftmaxUnits {
  double unit = log2e;          ///< scores are multiplied by it
  bool products_alone = false;  ///< scores are products, without the scale
  Tile scale;                   ///< products are multiplied by it
  Tile factor;                  ///< of differences, for scores of any size

  [[nodiscard]] Tile exp2_of(const Tile& x, const Tile& reference) const {
    return factor.owner() ? exp2((x - reference) * factor) : exp2(x - reference);
  }
  [[nodiscard]] Tile in_base2(const Tile& x) const { return factor.owner() ? x * factor : x; }
  /// The log-sum-exp of rows, from their maxima and sums of weights. That of an infinite score is
  /// infinite: it makes its row's weights NaN, and not what they sum up to.
  [[nodiscard]] Tile lse_of(const Tile& empty, const Tile& row_max, const Tile& row_sum) const;
};
/// Whether the units are those of scores of any size.
bool scores_of_any_size(const AttentionSpec& spec);

/// The maximum and the sum that the softmax of every row starts from.
struct SoftmaxStart {
  Tile row_max, row_sum;
};

/// Which heads a program has blocks for.
enum class Heads { queries, keys };
/// Whether a program has blocks for every sequence, or sets own_sequence to what it computed.
enum class Sequences { along_an_axis, computed };

/// Lengths the spec leaves open are named B, H, Hk, Sq and Sk, those of packed tensors Tq and Tk, and with
/// pages of the keys pages and max_pages.
struct AttentionTensors {
  ProgramBuilder* builder = nullptr;
  const AttentionSpec* spec = nullptr;  ///< the caller's, who keeps it
  Extent batch_size, heads, kv_heads, q_len, kv_len;
  Axis batch, head;
  Tile own_sequence;  ///< the block's, where sequences do not lie along an axis
  Tile own_q_len;     ///< with q_lens: how much of the query there is; no value without
  /// With kv_lens, in a program whose blocks have tiles of keys: how much of the keys there is.
  Tile own_kv_len;
  /// Of packed sequences, where own_sequence is computed: the row where the block's own one begins, and where
  /// the next one does that the program has blocks for.
  Tile own_begin, next_begin;
  /// Of packed sequences: where the block's own begins in an aligned row tensor.
  Tile aligned_begin;
  Tensor page_table;  ///< of keys in pages

  /// A tensor [batch, heads, length, dim], its dimensions in the spec's order.
  /// Without a dtype it has the spec's.
  [[nodiscard]] Tensor input(const std::string& name, const Extent& head_count,
                             const Extent& length, int dim, std::optional<DType> type = {}) const;
  [[nodiscard]] Tensor output(const std::string& name, const Extent& head_count,
                              const Extent& length, int dim, std::optional<DType> type = {}) const;
  /// Keys or values, [batch, kv_heads, kv_len, dim] or, with pages, [pages, page_size, kv_heads, dim].
  [[nodiscard]] Tensor key_input(const std::string& name, int dim,
                                 std::optional<DType> type = {}) const;
  /// Declares page_table if keys lie in pages, in front of the first load of them.
  void declare_page_table();
  /// An f32 tensor [batch, heads, q_len].
  [[nodiscard]] Tensor row_input(const std::string& name) const;
  [[nodiscard]] Tensor row_output(const std::string& name) const;
  /// The same for what one kernel of a module hands to another. Of packed sequences it is an f32 tensor
  /// [heads, aligned_rows], in which each sequence begins at a multiple of 16 bytes: the copy engine takes
  /// nothing else. The module has the number aligned_rows, and at_aligned() the access.
  [[nodiscard]] Tensor aligned_row_input(const std::string& name) const;
  [[nodiscard]] Tensor aligned_row_output(const std::string& name) const;

  /// A tile of keys or values: those `cols` behind the key at `begin`, or behind the first one.
  [[nodiscard]] Tile load_keys(const Tensor& keys, const Index& kv_head, Axis cols,
                               const Index& columns, const Tile& begin = {}) const;
  /// How many keys there is room for in a tensor of them, of all packed sequences together.
  [[nodiscard]] Tile longest_keys(const Tensor& keys) const;

  /// What a tensor of this name says of the length of the block's padded sequence, and how much there is
  /// of the sequence.
  [[nodiscard]] Tile given_length(const char* lengths) const;
  [[nodiscard]] Tile own_length(const char* lengths, const Tile& most) const;
  /// Declares the tensors that say how long each sequence is, if the spec has them, and places the
  /// axes in the block's own sequence. Blocks have tiles of rows.
  void set_segments(Axis rows, Axis cols);
  /// The same where blocks have tiles of cols.
  void set_segments_of_keys(Axis rows, Axis cols);
  /// The same of packed sequences in a program that has rows alone, or keys alone.
  void set_segments_alone(Axis axis, Heads of);

  /// The number of the block's own sequence.
  [[nodiscard]] Tile sequence() const { return own_sequence.owner() ? own_sequence : index(batch); }
  /// The same as an index of tensors.
  [[nodiscard]] Index at_sequence() const {
    return own_sequence.owner() ? Index(own_sequence) : Index(batch);
  }
  /// Which dimension of such a tensor is its length.
  [[nodiscard]] int length_dim() const {
    return spec->packed() ? 0 : spec->layout == TensorLayout::bhsd ? 2 : 1;
  }

  /// tensor(batch, head, rows, columns), in the tensor's own order.
  [[nodiscard]] Access at(const Tensor& tensor, const Index& head_index, const Index& rows,
                          const Index& columns) const;
  /// tensor(batch, head, rows) of a row_output.
  [[nodiscard]] Access at(const Tensor& tensor, const Index& head_index, const Index& rows) const;
  [[nodiscard]] Access at(const Tensor& tensor, const Index& rows) const {
    return at(tensor, head, rows);
  }
  [[nodiscard]] Access at_aligned(const Tensor& tensor, Axis rows) const;
  /// The positions of the scores over [rows, cols]. Outside a loop over them, cols has no position.
  [[nodiscard]] ScoreSite site(Axis rows, Axis cols) const;
  /// The query's own length.
  [[nodiscard]] Tile query_length(Axis rows) const;
  /// The keys' own length.
  [[nodiscard]] Tile key_length(Axis cols) const;
  /// A condition on rows that holds beyond the sequence, too, where q_lens leaves rows there.
  [[nodiscard]] Tile or_beyond(const Tile& condition, Axis rows) const;

  /// The scores over [rows, cols] times `unit`: scaled, modified by the spec's score expression, -inf
  /// where its mask hides a key.
  [[nodiscard]] Tile scores(const Tile& products, const Tile& scale, Axis rows, Axis cols,
                            double unit) const {
    return scores_at(site(rows, cols), products, scale, unit);
  }
  /// The same at other positions than those of the axes.
  [[nodiscard]] Tile scores_at(const ScoreSite& site, const Tile& products, const Tile& scale,
                               double unit) const;
  /// The gradients of scaled scores, given those of the scores that the spec's score expression makes
  /// of them; `products` are the scores before their scale, over the axes of `dscores`.
  [[nodiscard]] Tile through_score(const Tile& products, const Tile& scale, Axis rows, Axis cols,
                                   const Tile& dscores) const;
  [[nodiscard]] SoftmaxUnits softmax_units(const Tile& scale) const;
  /// That of the spec's sink times `unit`, and over `divisor` if there is one, or of nothing.
  [[nodiscard]] SoftmaxStart start_softmax(Axis rows, Axis cols, double unit,
                                           const Tile& divisor = {}) const;
};

/// How many rows an aligned row tensor of packed sequences has, as a module's formula.
std::string aligned_rows_text(const AttentionSpec& spec);

/// Checks the spec and declares the axes batch, unless sequences are computed, and head. Throws SpecError
/// with every reason.
AttentionTensors declare_attention(ProgramBuilder& builder, const AttentionSpec& spec,
                                   Heads heads = Heads::queries,
                                   Sequences sequences = Sequences::along_an_axis);

}  // namespace flashcore
