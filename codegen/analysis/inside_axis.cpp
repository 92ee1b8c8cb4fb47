#include "codegen/analysis/inside_axis.h"

#include <algorithm>
#include <map>

#include "dsl/ir/affine.h"

namespace flashcore {
namespace {

using namespace ir;

/// A number plus lengths of axes, each taken so many times.
class Lengths {
 public:
  explicit Lengths(const Function& f) : f_(f) {}

  void add(std::int64_t number) { number_ += number; }
  void add(std::int64_t times, AxisId axis) {
    if (const auto length = f_[axis].fixed_length())
      number_ += times * *length;
    else
      times_[axis] += times;
  }
  /// No length is negative.
  [[nodiscard]] bool is_negative() const {
    return number_ < 0 && std::all_of(times_.begin(), times_.end(), [](const auto& term) { return term.second <= 0; });
  }

 private:
  const Function& f_;
  std::int64_t number_ = 0;
  std::map<AxisId, std::int64_t> times_;
};

/// Whether the form is below 0 wherever its position along `axis` is the length of that or more.
bool is_negative_beyond(const Function& f, const AffineForm& form, AxisId axis) {
  const auto along = form.positions.find(axis);
  if (along == form.positions.end() || along->second > 0) return false;
  Lengths most(f);
  most.add(form.constant);
  for (const auto& [other, times] : form.positions) {
    if (other == axis) {
      most.add(times, axis);
      continue;
    }
    if (f[other].kind != AxisKind::parallel_tiles && f[other].kind != AxisKind::parallel) return false;
    if (times < 0) continue;  // most at position 0
    most.add(times, other);
    most.add(-times);
  }
  for (const auto& [scalar, times] : form.scalars) {
    const Op* op = f.definition(scalar);
    if (!op || op->code != OpCode::extent) return false;
    most.add(times, op->axis);
  }
  return most.is_negative();
}

}  // namespace

bool fails_beyond(const Function& f, ValueId condition, AxisId axis) {
  const AffineCondition all = affine_condition(f, condition);
  return std::any_of(all.terms.begin(), all.terms.end(),
                     [&](const AffineForm& form) { return is_negative_beyond(f, form, axis); });
}

}  // namespace flashcore
