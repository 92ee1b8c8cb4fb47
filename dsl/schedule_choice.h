// Which schedules launches of a program want, by the lengths of their tensors. A dispatcher
// (runtime/dispatcher.h) asks at every launch; templates/attention_chooser.h answers for attention,
// and the author of another program may. For some lengths several kernels that run one after another
// may be faster than any one: the answer is a module then, an alternative to the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dsl/error.h"
#include "dsl/module.h"
#include "dsl/schedule.h"

namespace flashcore {

/// A module that computes what a program does, from tensors and scalars of the same names, and the
/// schedules of each of its kernels: the best first.
struct Alternative {
  Module module;
  std::vector<std::vector<Schedule>> schedules;
};

/// Thread-safe.
class ScheduleChoice {
 public:
  ScheduleChoice() = default;
  ScheduleChoice(const ScheduleChoice&) = delete;
  ScheduleChoice& operator=(const ScheduleChoice&) = delete;
  virtual ~ScheduleChoice() = default;

  /// The program's named extents, and its i32 scalars, on which the choice depends. At most `max_extents`.
  [[nodiscard]] virtual const std::vector<std::string>& extents() const = 0;
  static constexpr std::size_t max_extents = 8;

  /// The number of the list of schedules that a launch with these lengths wants: one for each of
  /// `extents`, in their order. Equal lists have one number.
  virtual std::size_t choose(std::span<const std::int64_t> lengths) = 0;
  /// The same where it is known without a lock, else `unknown`. Asked at every launch.
  [[nodiscard]] virtual std::size_t find(std::span<const std::int64_t> lengths) const = 0;
  static constexpr std::size_t unknown = static_cast<std::size_t>(-1);

  /// The list of that number, the best schedule first: those behind it leave the compiler more
  /// registers.
  [[nodiscard]] virtual std::vector<Schedule> schedules(std::size_t number) const = 0;

  /// Whether launches may want an alternative to the program's kernels. Always the same.
  [[nodiscard]] virtual bool has_alternatives() const { return false; }
  /// The number of the alternative that is faster than any kernel for a launch with these lengths on a
  /// GPU of so many multiprocessors, if there is one. Below `max_alternatives`, and of the same
  /// alternative in every choice for a program. Asked at every launch, where there are any.
  [[nodiscard]] virtual std::optional<std::size_t> find_alternative(
      std::span<const std::int64_t> /*lengths*/, std::int64_t /*multiprocessors*/) const {
    return std::nullopt;
  }
  static constexpr std::size_t max_alternatives = 16;
  [[nodiscard]] virtual Alternative alternative(std::size_t /*number*/) const {
    throw InternalError("a choice without alternatives");
  }

  /// For messages: the lengths in words, and what to call so that such launches find their kernel.
  [[nodiscard]] virtual std::string describe(std::span<const std::int64_t> lengths) const = 0;
  [[nodiscard]] virtual std::string preparation(std::span<const std::int64_t> lengths) const = 0;
};

}  // namespace flashcore
