// What code generation derived from the masks of a program, and how a schedule rounds, in words.
#pragma once

#include <map>
#include <string>

#include "dsl/program.h"
#include "dsl/schedule.h"
#include "dsl/target.h"

namespace flashcore {

/// What positions and lengths are called, where not by their axes: {"rows": "q_idx",
/// "length(rows)": "q_len"}.
using PositionNames = std::map<std::string, std::string>;

/// For every loop: its tiles, what each part of its masks does for it, which tiles are visited and
/// which of them are masked. Then, a line each, what of the schedule's numerics takes effect, and
/// what it asks for that the kernel does without, with the reason. Throws what generate() throws.
std::string explain(const Program& program, const Schedule& schedule, const Target& target,
                    const PositionNames& names = {});

}  // namespace flashcore
