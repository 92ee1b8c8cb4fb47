// Looks inside a kernel: the same program that also stores values it names, so that a wrong result
// is located in one run.
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
/// Probes only observe: the kernel computes the rest as it does without them, and visits the same
/// tiles. Elements of tiles that it does not visit are not written; KernelSource::tensors says what
/// they are worth (`unwritten`), and the caller fills the output with that before a launch.
///
/// Throws SpecError for a name that the program does not have, or whose tile cannot be told apart
/// between the blocks and rounds that compute it.
Program with_probes(const Program& program, std::span<const std::string> names);

/// "probe_scores" for "scores".
std::string probe_tensor(const std::string& name);

}  // namespace flashcore
