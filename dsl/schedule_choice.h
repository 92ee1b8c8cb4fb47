// Which schedules launches of a program want, by the lengths of their tensors. A dispatcher
// (runtime/dispatcher.h) asks at every launch; templates/schedule_chooser.h answers for attention,
// and the author of another program may.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dsl/schedule.h"

namespace flashcore {

/// Thread-safe.
class ScheduleChoice {
 public:
  ScheduleChoice() = default;
  ScheduleChoice(const ScheduleChoice&) = delete;
  ScheduleChoice& operator=(const ScheduleChoice&) = delete;
  virtual ~ScheduleChoice() = default;

  /// The program's named extents on which the choice depends. At most `max_extents`.
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

  /// For messages: the lengths in words, and what to call so that such launches find their kernel.
  [[nodiscard]] virtual std::string describe(std::span<const std::int64_t> lengths) const = 0;
  [[nodiscard]] virtual std::string preparation(std::span<const std::int64_t> lengths) const = 0;
};

}  // namespace flashcore
