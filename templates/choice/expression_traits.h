// What the expressions of a spec ask of a kernel, found in the program that they become: how many
// operations they take for each score, what they look up, and which keys a row sees.
#pragma once

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "templates/attention.h"
#include "templates/attention_problem.h"

namespace flashcore {

/// How many keys blocks of query rows visit: those of some blocks of a head, evenly spread over its
/// rows, the most first.
struct VisibleKeys {
  static constexpr int most_samples = 9;
  std::array<double, most_samples> keys{};  ///< 0 behind the samples
  int samples = 0;
  double share = 1;  ///< of all keys, what blocks see in the mean

  [[nodiscard]] double most() const { return keys[0]; }
  [[nodiscard]] double least() const { return keys[static_cast<std::size_t>(samples - 1)]; }
};

/// How query rows are cut into tiles: what decides which keys a tile sees.
struct RowTiles {
  int rows = 1;
  bool end_aligned = false;  ///< the first tile of a head may be partial, rather than the last
  bool operator==(const RowTiles&) const = default;
};

/// What the score expression computes for every key; terms that a row has in common do not count.
struct ScoreTraits {
  /// Threads look up elements of arrays, as for a relative bias; ALiBi needs none for a score.
  bool looks_up = false;
  bool looks_up_rows = false;  ///< those, or elements for each row
  bool softcap = false;        ///< a tanh
  int operations = 0;          ///< of a score, beside those of plain attention
  /// Of those lookups, how many are in arrays with an element for each row and key: a dense bias.
  int own_elements = 0;
  /// The same in arrays of which the copy engine brings whole tiles, so that no thread looks them up.
  int loaded_elements = 0;
};

class MaskTraits {
 public:
  explicit MaskTraits(const AttentionSpec& spec);

  /// The mask is a conjunction of conditions that are linear in the positions and depend on the
  /// key: such a mask bounds the loop. For any other mask a block scans the tiles first.
  [[nodiscard]] bool bounds_loop() const { return bounds_loop_; }
  [[nodiscard]] bool looks_up() const { return looks_up_; }  ///< threads, elements of arrays
  /// Lookups in arrays with an element for each row and key, of which the copy engine brings tiles.
  [[nodiscard]] int loaded_elements() const { return loaded_elements_; }
  [[nodiscard]] bool by_head() const { return by_head_; }  ///< each head visits other tiles
  [[nodiscard]] bool several() const { return several_; }  ///< conditions that all hold
  [[nodiscard]] bool divides() const { return divides_; }  ///< positions, as chunks do
  [[nodiscard]] bool is_full() const { return is_full_; }  ///< all tiles are visited

  /// Where a mask does not bound the loop, rows are taken to see half of the keys, or an eighth
  /// where the mask looks something up, as documents do.
  [[nodiscard]] VisibleKeys visible_keys(const AttentionProblem& problem, RowTiles tiles) const;

 private:
  /// key * col + row * position + q_len * Sq + kv_len * Sk + constant >= 0 for a visible key.
  struct Condition {
    double key = 0, row = 0, q_len = 0, kv_len = 0, constant = 0;
    double border = 0;  ///< -1 / key: times the other terms, the key at which the sum is 0
  };

  /// By the conditions.
  [[nodiscard]] VisibleKeys count_keys(const AttentionProblem& problem, RowTiles tiles) const;

  std::vector<Condition> conditions_;
  bool is_full_ = true, bounds_loop_ = true, counts_ = true;
  bool looks_up_ = false, by_head_ = false, several_ = false, divides_ = false;
  int loaded_elements_ = 0;
};

ScoreTraits traits_of_score(AttentionSpec spec);

/// A spec with what its expressions ask.
struct SpecTraits {
  explicit SpecTraits(AttentionSpec of)
      : spec(std::move(of)), mask(spec), score(traits_of_score(spec)) {}

  AttentionSpec spec;
  MaskTraits mask;
  ScoreTraits score;
  bool ragged = spec.packed() || spec.q_lens || spec.kv_lens;  ///< sequences differ in length
};

}  // namespace flashcore
