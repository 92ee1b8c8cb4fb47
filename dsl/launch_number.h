// Evaluates the numbers of a module on the host, some tens of nanoseconds each: a formula is read
// once and kept as a list of steps over whole numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dsl/ir/op.h"
#include "dsl/module.h"

namespace flashcore {

class NumberFormula {
 public:
  /// `names` are what the text may name. Throws SpecError with the place in the text, or where it
  /// is not a whole number.
  NumberFormula(const LaunchNumber& number, std::span<const std::string> names);

  /// The number for these values of the names, in their order. Throws SpecError where it divides by
  /// zero or leaves 32 bits.
  [[nodiscard]] std::int64_t evaluate(std::span<const std::int64_t> values) const;

  [[nodiscard]] const std::string& name() const { return number_.name; }

 private:
  using Slot = std::uint8_t;
  struct Step {
    ir::OpCode code;
    Slot operands[3] = {};  ///< which earlier slot each is
  };
  static constexpr std::size_t most_slots = 256;

  /// Slots are those of the values, of the constants, which are no steps then, and of the steps.
  LaunchNumber number_;
  std::vector<std::int64_t> constants_;
  std::vector<Step> steps_;
  Slot result_ = 0;
};

}  // namespace flashcore
