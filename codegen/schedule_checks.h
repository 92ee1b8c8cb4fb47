// What a schedule can be refused for before any pass has run: a list of rules, each a small
// function that looks at the program, the schedule and the target, and says every reason it finds.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "codegen/pass.h"
#include "dsl/error.h"
#include "dsl/ir/function.h"

namespace flashcore {

/// A change of a schedule, and its words, if there are any.
struct Mending {
  std::string words;
  std::function<void(Schedule&)> change;
};

/// A reason and, where there is an obvious one, the change after which it no longer holds. why_not
/// makes that change to see what else stands in the way.
struct Reason {
  Complaint complaint;
  Mending mending = {};
};

Mending with_tile(const std::string& axis, int size);

/// Fewer stages, and smaller tiles along each axis: what takes less shared memory, of each kind the
/// least change first.
std::vector<std::vector<Mending>> lesser_schedules(const Schedule& schedule);

/// Every reason that can be told from the three alone, in the order of the rules.
std::vector<Reason> check_schedule(const ir::Function& f, const PassContext& context);

}  // namespace flashcore
