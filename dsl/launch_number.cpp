#include "dsl/launch_number.h"

#include <array>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dsl/error.h"
#include "dsl/expression_text.h"
#include "dsl/program_builder.h"

namespace flashcore {
namespace {

using ir::OpCode;

[[noreturn]] void refuse(const LaunchNumber& number, std::string why, std::string fix) {
  throw SpecError({fmt::format("the number {} = {}", number.name, number.text),
                   std::move(why),
                   std::move(fix),
                   {}});
}

bool is_for_whole_numbers(OpCode code) {
  switch (code) {
    case OpCode::constant:
    case OpCode::neg:
    case OpCode::abs:
    case OpCode::logical_not:
    case OpCode::add:
    case OpCode::sub:
    case OpCode::mul:
    case OpCode::div:
    case OpCode::mod:
    case OpCode::min:
    case OpCode::max:
    case OpCode::lt:
    case OpCode::le:
    case OpCode::gt:
    case OpCode::ge:
    case OpCode::eq:
    case OpCode::ne:
    case OpCode::logical_and:
    case OpCode::logical_or:
    case OpCode::where:
      return true;
    default:
      return false;
  }
}

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

}  // namespace

NumberFormula::NumberFormula(const LaunchNumber& number, std::span<const std::string> names)
    : number_(number) {
  ProgramBuilder scratch("number");
  std::map<std::string, Tile, std::less<>> known;
  std::map<std::uint32_t, Slot> slots;
  for (const std::string& name : names) {
    const Tile value = scratch.scalar(name, DType::i32);
    slots[value.id().index] = static_cast<Slot>(known.size());
    known.emplace(name, value);
  }
  Tile result;
  try {
    result = read_expression(scratch, number.text, known, {});
  } catch (const SpecError& error) {
    refuse(number, error.complaint().what + ": " + error.complaint().why,
           fmt::format("an expression of {}", fmt::join(names, ", ")));
  }
  const ir::Function& f = scratch.function();
  if (!f[result.id()].type.is_scalar() || result.dtype() != DType::i32)
    refuse(number, fmt::format("it is {}, and a length is a whole number", name_of(result.dtype())),
           "`//` divides whole numbers; where(condition, a, b) makes one of a condition");
  std::vector<const ir::Op*> constants, operations;
  for (const ir::OpId id : f[f.body].ops) {
    const ir::Op& op = f[id];
    if (op.code == OpCode::parameter) continue;
    (op.code == OpCode::constant ? constants : operations).push_back(&op);
    if (!is_for_whole_numbers(op.code))
      refuse(number, fmt::format("{} is not for whole numbers", ir::name_of(op.code)),
             "+, -, *, //, %, min, max, abs, comparisons and where");
  }
  if (names.size() + constants.size() + operations.size() > most_slots)
    refuse(number, fmt::format("it has {} operations", constants.size() + operations.size()),
           fmt::format("at most {}, or several numbers", most_slots - names.size()));
  auto make_slot = [&, next = names.size()](const ir::Op& op) mutable {
    slots[op.results[0].index] = static_cast<Slot>(next++);
  };
  for (const ir::Op* constant : constants) {
    constants_.push_back(static_cast<std::int64_t>(constant->number));
    make_slot(*constant);
  }
  for (const ir::Op* op : operations) {
    Step& step = steps_.emplace_back(Step{.code = op->code});
    for (std::size_t i = 0; i < op->operands.size(); ++i)
      step.operands[i] = slots.at(op->operands[i].index);
    make_slot(*op);
  }
  result_ = slots.at(result.id().index);
}

std::int64_t NumberFormula::evaluate(std::span<const std::int64_t> values) const {
  std::array<std::int64_t, most_slots> slot;
  std::copy(constants_.begin(), constants_.end(),
            std::copy(values.begin(), values.end(), slot.begin()));
  const auto divisor = [&](std::int64_t number) {
    if (number == 0) [[unlikely]]
      refuse(number_, "it divides by zero", "max(1, ...) around what it divides by");
    return number;
  };
  std::size_t at = values.size() + constants_.size();
  for (const Step& step : steps_) {
    const std::int64_t a = slot[step.operands[0]];
    const std::int64_t b = slot[step.operands[1]];
    const std::int64_t c = slot[step.operands[2]];
    std::int64_t result = 0;
    bool lost = false;
    switch (step.code) {
      case OpCode::neg:
        result = -a;
        break;
      case OpCode::abs:
        result = a < 0 ? -a : a;
        break;
      case OpCode::logical_not:
        result = a == 0;
        break;
      case OpCode::add:
        lost = __builtin_add_overflow(a, b, &result);
        break;
      case OpCode::sub:
        lost = __builtin_sub_overflow(a, b, &result);
        break;
      case OpCode::mul:
        lost = __builtin_mul_overflow(a, b, &result);
        break;
      case OpCode::div:
        result = floor_div(a, divisor(b));
        break;
      case OpCode::mod:
        result = a - b * floor_div(a, divisor(b));
        break;
      case OpCode::min:
        result = a < b ? a : b;
        break;
      case OpCode::max:
        result = a < b ? b : a;
        break;
      case OpCode::lt:
        result = a < b;
        break;
      case OpCode::le:
        result = a <= b;
        break;
      case OpCode::gt:
        result = a > b;
        break;
      case OpCode::ge:
        result = a >= b;
        break;
      case OpCode::eq:
        result = a == b;
        break;
      case OpCode::ne:
        result = a != b;
        break;
      case OpCode::logical_and:
        result = a != 0 && b != 0;
        break;
      case OpCode::logical_or:
        result = a != 0 || b != 0;
        break;
      default:
        result = a != 0 ? b : c;
        break;
    }
    if (lost) refuse(number_, "an operation leaves 64 bits", "smaller factors");
    slot[at++] = result;
  }
  const std::int64_t result = slot[result_];
  if (result != static_cast<std::int32_t>(result))
    refuse(number_, fmt::format("it is {}", result), "a number that fits 32 bits");
  return result;
}

}  // namespace flashcore
