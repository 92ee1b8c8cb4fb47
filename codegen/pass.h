// A pass rewrites a program in place. The driver, not the pass, verifies, observes and times.
#pragma once

#include <span>
#include <string_view>

#include "dsl/ir/function.h"
#include "dsl/schedule.h"
#include "dsl/target.h"

namespace flashcore {

struct PassContext {
  const Schedule& schedule;
  const Target& target;
};

struct Pass {
  std::string_view name;
  void (*run)(ir::Function&, const PassContext&);
  std::string_view why_here;
};

/// All passes, in order. Those that another schedule is for leave the program as it is.
std::span<const Pass> pipeline();

}  // namespace flashcore
