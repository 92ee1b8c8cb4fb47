// Which keys some query row of a call can see: a sliding window hides all but a range of them from
// all rows, and what computes less than the whole sequence divides that range.
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
  [[nodiscard]] bool bounded() const { return !least_.empty() || !most_.empty(); }

  /// The first key, and the one behind the last, of a sequence's: scalars of a program.
  [[nodiscard]] std::pair<Tile, Tile> range(const Tile& q_len, const Tile& kv_len) const;
  /// How many they are.
  [[nodiscard]] std::int64_t count(std::int64_t q_len, std::int64_t kv_len) const;
  [[nodiscard]] Tile count(const Tile& q_len, const Tile& kv_len) const;

 private:
  /// of_q_len * q_len + of_kv_len * kv_len + constant.
  struct Bound {
    std::int64_t of_q_len = 0, of_kv_len = 0, constant = 0;
  };
  template <WholeNumber Number>
  [[nodiscard]] std::pair<Number, Number> ends(const Number& q_len, const Number& kv_len) const;

  std::vector<Bound> least_, most_;  ///< keys lie from the largest of these to below the least
};

}  // namespace flashcore
