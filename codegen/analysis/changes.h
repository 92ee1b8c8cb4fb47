// What becomes of values as others grow, say by D. Of a softmax, as its maximum m does:
//
//   m                     D is added
//   p = exp2(c (x - m))   is multiplied by 2 to the power of -c D, and so are sum(p) and p v
//   c m + log2(sum(p))    stays what it is
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "dsl/ir/function.h"

namespace flashcore {

/// A sum of products of values, each times a number.
using LinearForm = std::map<std::vector<ir::ValueId>, double>;

/// a + factor * b. What is all but nothing is what rounding of the constants left, and is none.
LinearForm add_forms(LinearForm a, const LinearForm& b, double factor = 1);

/// A value is multiplied by 2 to the power of a form, or gets one added.
struct Change {
  LinearForm power, plus;
  bool known = true;
  bool operator==(const Change&) const = default;
};
inline const Change unknown_change{{}, {}, false};

class Changes {
 public:
  /// `inside`: of what a loop computes in an iteration, where a maximum may still be infinite, and
  /// products read the weights rounded. Behind it no maximum is infinite, and nothing that changes may
  /// be rounded to 16 bits: an output would depend on that.
  Changes(const ir::Function& f, bool inside) : f_(f), inside_(inside) {}

  void assume(ir::ValueId value, Change change) { known_[value] = std::move(change); }
  [[nodiscard]] Change of(ir::ValueId value);
  [[nodiscard]] bool same(ir::ValueId value) { return of(value) == Change{}; }
  /// Of a * b, or of a / b with a negative sign.
  [[nodiscard]] Change of_product(ir::ValueId a, ir::ValueId b, int sign = 1);
  /// Of the product of a dot's operands.
  [[nodiscard]] Change of_dot(const ir::Op& dot);

 private:
  [[nodiscard]] Change derive(const ir::Op& op);
  [[nodiscard]] Change sum(const Change& a, const Change& b, int sign) const;
  [[nodiscard]] Change comparison(const ir::Op& op);
  [[nodiscard]] Change choice(const ir::Op& op);
  [[nodiscard]] Change summed(const Change& change, ir::AxisId axis) const;

  const ir::Function& f_;
  const bool inside_;
  std::map<ir::ValueId, Change> known_;
};

}  // namespace flashcore
