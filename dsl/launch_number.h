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
  struct Step {
    ir::OpCode code;
    int operands[3] = {};  ///< which earlier slot each is
    std::int64_t constant = 0;
  };
  static constexpr std::size_t most_slots = 256;

  LaunchNumber number_;
  std::size_t inputs_ = 0;   ///< slots that the values take
  std::vector<Step> steps_;  ///< each makes the next slot
  int result_ = 0;
};

}  // namespace flashcore
