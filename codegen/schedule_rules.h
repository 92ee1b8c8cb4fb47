// The rules that a schedule has to keep; schedule_checks.cpp calls them in order.
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "codegen/schedule_checks.h"

namespace flashcore {

/// What the rules see, and where they put their reasons.
struct ScheduleCheck {
  const ir::Function& f;
  const Schedule& s;
  const Target& target;
  std::vector<Reason>& reasons;

  using Rule = void() const;
  Rule every_rule;  ///< in the order in which the reasons are told
  // schedule_checks.cpp
  Rule instruction, copies, chains, number_formats, resident_blocks, tiles, warps, stages,
      missing_tiles;
  // role_rules.cpp: what the copy engine, the roles of warpgroups, and blocks of several tiles need
  Rule warpgroups, computed_rows, role_registers, no_producer, producer_warps, ping_pong,
      outer_stages, sums_by_products, tile_scheduler, persistence, positions, cluster_splits,
      multicast, end_aligned_tiles;

  [[nodiscard]] bool warps_fit() const;
  void tiles_beyond_segments(ir::AxisId axis) const;

  /// "producer = true"
  template <class Value>
  static std::string setting(const char* name, Value value) {
    if constexpr (std::is_enum_v<Value>)
      return fmt::format("{} = {}", name, name_of(value));
    else
      return fmt::format("{} = {}", name, value);
  }
  template <class Value>
  static Mending set(const char* name, Value Schedule::*field, Value value) {
    return {setting(name, value), [=](Schedule& mended) { mended.*field = value; }};
  }

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
      refuse(setting(name, s.*field) + beside, std::move(why), std::move(fix), std::move(mending));
    };
  }
};

}  // namespace flashcore
