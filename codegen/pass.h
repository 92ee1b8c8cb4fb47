// A pass rewrites a program in place. The driver, not the pass, verifies, observes and times.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/ir/function.h"
#include "dsl/schedule.h"
#include "dsl/target.h"

namespace flashcore {

/// What explain() tells of a schedule, a line each.
using PassNotes = std::vector<std::string>;

struct PassContext {
  const Schedule& schedule;
  const Target& target;
  PassNotes* notes = nullptr;  ///< none where nobody asks

  /// Says that the kernel rounds in another way than a plain evaluation does.
  void note_numerics(const std::string& how) const;
  /// Says that the kernel does without something that the schedule asks for.
  void note_refusal(const std::string& asked, const std::string& why) const;
};

using PassFunction = void(ir::Function&, const PassContext&);

struct Pass {
  std::string_view name;
  PassFunction* run;
};

/// All passes, in order. Those that another schedule is for leave the program as it is.
std::span<const Pass> pipeline();

}  // namespace flashcore
