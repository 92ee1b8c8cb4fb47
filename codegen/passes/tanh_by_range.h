// The elements of a tanh and of the chain around it, computed by what is known of its arguments.
#pragma once

#include <vector>

#include "codegen/analysis/tanh_chain.h"
#include "dsl/ir/builder.h"

namespace flashcore {

enum class Arguments : std::uint8_t { small, moderate, any };

/// Builds tanh(k x) l and what a chain makes of it. For k x from -0.3 to 0.3 the polynomial of
/// fifth degree with the least error there is within 1.2e-6 of the true value times itself; for k x from
/// -0.8 to 0.8 that of ninth degree is, whose coefficients are in proportion to the first of the
/// other; for any other the special function unit serves.
class TanhByRange {
 public:
  /// Builds the coefficients, scalars, where the builder stands: anew in every iteration, since a
  /// loop would keep them all in registers. A nest for any arguments has `fence` (dsl/ir/op.h).
  TanhByRange(ir::Builder& b, const TanhChain& chain, int fence);

  /// The largest square of a small argument, and how many times that one of a moderate one is.
  [[nodiscard]] ir::ValueId limit() const { return limit_; }
  static constexpr double squares_of_small = 0.09, squares_of_moderate = 0.64;

  /// Appends a nest with the chain on `x`; where a mask may have hidden scores of the tile
  /// (`hides`), the sum adds up the weights rounded to the 16-bit type in which the second product reads them.
  /// Returns the chain's values: the elements, their sum, what rounding adds to it.
  std::vector<ir::ValueId> build_nest(ir::Builder& outer, ir::ValueId x, Arguments arguments,
                                      bool hides) const;

 private:
  void build_sums(ir::Builder& b, std::vector<ir::ValueId>& made, bool hides) const;
  ir::ValueId build_tanh(ir::Builder& b, ir::ValueId x, Arguments arguments) const;
  ir::ValueId build_any(ir::Builder& b, ir::ValueId x) const;

  ir::Function& f_;
  const TanhChain& chain_;
  int fence_;
  ir::Value like_;  ///< what an element is like
  ir::ValueId square_, first_, third_, fifth_, limit_;
  ir::ValueId exponent_, twice_, l_;  ///< for any x: l - 2 l / (exp2(exponent x) + 1), twice = -2 l
};

}  // namespace flashcore
