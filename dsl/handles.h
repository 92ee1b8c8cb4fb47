// Axes, tensors and tiles hold numbers that mean something in their own program only.
#pragma once

#include <fmt/format.h>

#include "dsl/error.h"

namespace flashcore {

class ProgramBuilder;

/// Refuses a handle that another builder gave, or none. `what` it is: "axis", "tensor", "tile".
inline void require_own(const ProgramBuilder* owner, const ProgramBuilder* given, const char* what,
                        const Location& where) {
  if (!given)
    throw SpecError({fmt::format("an empty {}", what), "no builder has made it",
                     "declare it with the functions of the builder, or compute it first", where});
  if (given != owner)
    throw SpecError({fmt::format("the {} of another program", what),
                     "axes, tensors and tiles belong to the builder that made them",
                     "declare it in this program", where});
}

}  // namespace flashcore
