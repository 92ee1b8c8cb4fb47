// Integer expressions over positions as linear forms: sum of coefficient * atom + constant. An atom
// is a position, a position divided by a constant, or a scalar.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "dsl/ir/function.h"

namespace flashcore {

struct AffineForm {
  std::map<ir::AxisId, std::int64_t> positions;  ///< coefficient of the position along an axis
  std::map<ir::ValueId, std::int64_t> scalars;   ///< coefficient of an i32 scalar of the block
  std::int64_t constant = 0;
  /// Coefficient of the position along an axis divided by a number above 1, rounded down: where an
  /// axis runs over two dimensions, the position in the outer one.
  std::map<std::pair<ir::AxisId, std::int64_t>, std::int64_t> quotients = {};

  /// Without coefficients that are zero.
  AffineForm& operator+=(const AffineForm& other);
  AffineForm& operator*=(std::int64_t factor);
};

inline AffineForm operator+(AffineForm a, const AffineForm& b) { return a += b; }
inline AffineForm operator*(AffineForm form, std::int64_t factor) { return form *= factor; }

/// Calls `visit` for the terms of each kind, which are a map to coefficients.
template <class Form, class Visit>
void for_each_kind(Form& form, Visit&& visit) {
  visit(form.positions);
  visit(form.quotients);
  visit(form.scalars);
}

/// The linear form of an i32 value, if it has one.
std::optional<AffineForm> affine_form(const ir::Function& f, ir::ValueId value);

/// A condition cut at its `and`s. Each term that is a comparison of linear forms comes as a form
/// that is at least 0 exactly where it holds; `complete` says that no other terms were left out.
struct AffineCondition {
  std::vector<AffineForm> terms;
  bool complete = true;
};

AffineCondition affine_condition(const ir::Function& f, ir::ValueId condition);

}  // namespace flashcore
