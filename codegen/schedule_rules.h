// The rules that a schedule has to keep. They lie in several files; schedule_checks.cpp lists all of
// them in order.
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "codegen/schedule_checks.h"

namespace flashcore::schedule_rules {

/// "producer = true"
template <class Value>
std::string setting(const char* name, Value value) {
  if constexpr (std::is_enum_v<Value>)
    return fmt::format("{} = {}", name, name_of(value));
  else
    return fmt::format("{} = {}", name, value);
}

template <class Value>
Mending set(const char* name, Value Schedule::*field, Value value) {
  return {setting(name, value), [=](Schedule& s) { s.*field = value; }};
}

/// What a rule sees, and where it puts its reasons.
struct ScheduleCheck {
  const ir::Function& f;
  const Schedule& schedule;
  const Target& target;
  std::vector<Reason>& reasons;

  /// `fix` says what would work, where that is more than the change, or no change is known.
  void refuse(std::string what, std::string why, std::string fix, Mending mending = {}) const {
    reasons.push_back({{std::move(what), std::move(why), std::move(fix), {}}, std::move(mending)});
  }
  void refuse(std::string what, std::string why, Mending mending) const {
    std::string fix = mending.words;
    refuse(std::move(what), std::move(why), std::move(fix), std::move(mending));
  }

  /// What says reasons against the value of a field, which another one mends: beside what the field
  /// has it, why not, and what would work, where that is more than the other value.
  template <class Value>
  [[nodiscard]] auto against(const char* name, Value Schedule::*field, Value mended) const {
    return [=, this](const std::string& beside, std::string why, std::string fix = {}) {
      Mending mending = set(name, field, mended);
      if (fix.empty()) fix = mending.words;
      refuse(setting(name, schedule.*field) + beside, std::move(why), std::move(fix),
             std::move(mending));
    };
  }
};

using Rule = void(const ScheduleCheck&);

// role_rules.cpp: what the copy engine, the roles of warpgroups, and blocks of several tiles need
Rule warpgroups, computed_rows, register_budgets, no_producer, ping_pong, outer_stages,
    sums_by_products, tile_scheduler, persistence, positions, cluster_splits, multicast;

}  // namespace flashcore::schedule_rules
