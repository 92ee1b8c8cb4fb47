// Bounds of the elements of a value that hold for all inputs of a program: the tanh of a score is
// between -1 and 1, a softcapped score between -cap and cap. They hold for floats that are not NaN;
// a NaN stays a NaN whatever is derived from the bounds. Integers have none.
#pragma once

#include <map>

#include "dsl/ir/function.h"

namespace flashcore {

struct Bounds {
  double low = 0, high = 0;
  /// Some elements may be minus infinity besides, as what a mask hides is.
  bool hides = false;

  [[nodiscard]] bool finite() const;
  /// The most that an element's magnitude can be.
  [[nodiscard]] double magnitude() const;
  bool operator==(const Bounds&) const = default;
};

class ValueBounds {
 public:
  explicit ValueBounds(const ir::Function& f) : f_(f) {}

  /// Takes a value to be of these bounds.
  void assume(ir::ValueId value, Bounds bounds) { known_[value] = bounds; }
  /// From -inf to inf where nothing is known.
  Bounds of(ir::ValueId value);

 private:
  Bounds derive(ir::ValueId value);

  const ir::Function& f_;
  std::map<ir::ValueId, Bounds> known_;
};

}  // namespace flashcore
