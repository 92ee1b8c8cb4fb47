// Which keys some query row of a call can see, and how many of them each row does: a sliding window
// hides all but a range of them from all rows, and what computes less than the whole sequence divides
// that range; a causal mask hides none from all rows, and half of them from a typical row.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "dsl/flashcore.h"
#include "templates/whole_numbers.h"

namespace flashcore {

/// From what the mask says in conjunctions of conditions linear in the positions; other conditions
/// bound nothing.
class KeyRange {
 public:
  explicit KeyRange(const AttentionSpec& spec);

  /// Whether it may be less than all keys.
  [[nodiscard]] bool bounded() const { return !of_some_row_.empty(); }

  /// The first key, and the one behind the last, of a sequence's: scalars of a program.
  [[nodiscard]] std::pair<Tile, Tile> range(const Tile& q_len, const Tile& kv_len) const;
  /// How many they are.
  [[nodiscard]] std::int64_t count(std::int64_t q_len, std::int64_t kv_len) const;
  [[nodiscard]] Tile count(const Tile& q_len, const Tile& kv_len) const;
  /// How many the row in the middle sees. Under causal masks and windows, if there are no more rows than
  /// keys, that is about what rows see in the mean.
  [[nodiscard]] std::int64_t typical_count(std::int64_t q_len, std::int64_t kv_len) const;

 private:
  /// of_row * row + of_q_len * q_len + of_kv_len * kv_len + constant.
  struct Bound {
    std::int64_t of_row = 0, of_q_len = 0, of_kv_len = 0, constant = 0;
  };
  /// Keys lie from the largest of `least` to below the least of `most`.
  struct Bounds {
    std::vector<Bound> least, most;
    [[nodiscard]] bool empty() const { return least.empty() && most.empty(); }
  };
  template <WholeNumber Number>
  static std::pair<Number, Number> ends(const Bounds& bounds, const Number& row,
                                        const Number& q_len, const Number& kv_len);

  Bounds of_some_row_, of_each_row_;
};

}  // namespace flashcore
