// Shows values inside a kernel: the same program, which also stores values by name, so that one run
// locates a wrong result.
#pragma once

#include <span>
#include <string>

#include "dsl/program.h"

namespace flashcore {

/// The program with an output `probe_<name>` for each name, after its own tensors and in this
/// order. A name stands for the last value that its author gave it. The output has a dimension for
/// every parallel axis and one for every axis of the tile; it is f32, or i32 for integers, and a
/// condition is stored as 0 and 1.
///
/// Probes change nothing else: the kernel computes the same results, and visits the same tiles.
/// Elements of tiles that it does not visit are not written; KernelSource::tensors has their value
/// (`unwritten`), with which the caller fills the output before a launch.
///
/// Throws SpecError for a name that the program does not have, or for a value that changes between
/// blocks or iterations without having the axis that would keep its tiles apart.
Program with_probes(const Program& program, std::span<const std::string> names);

/// "probe_scores" for "scores".
std::string probe_tensor(const std::string& name);

}  // namespace flashcore
