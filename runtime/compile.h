// A generated kernel becomes machine code, here and nowhere else; what comes out is held against
// the schedule's promises before anybody runs it.
#pragma once

#include <string>
#include <vector>

#include "codegen/kernel_source.h"
#include "runtime/compiler_report.h"
#include "runtime/cuda/nvrtc.h"

namespace flashcore {

/// Machine code for one architecture and what it takes.
struct Cubin {
  std::string bytes;
  Resources resources;  ///< without the dynamic shared memory, which belongs to the launch
  /// Which compiler made it and how: the end of its key, behind what was asked for (cache/key.h).
  std::string made_by = {};
};

enum class Effort {
  optimised,
  fast,  ///< in less time, and the code takes longer
};

/// The options of a compile. They are part of the cache's key and name no path of this machine.
std::vector<std::string> compile_options(const std::string& architecture, NvrtcVersion version,
                                         Effort effort = Effort::optimised);
/// Throws CompileError where that compiler may compile the kernel wrong and say nothing.
void require_right_code(const KernelSource& source, NvrtcVersion version);
/// Whether that compiler knows how to compile faster.
bool compiles_fast(NvrtcVersion version);

/// Compiles for "sm_80", "sm_90a", ... on any machine, with or without a GPU. Throws CompileError
/// with the compiler's log and the path under which the source was kept.
Cubin compile_cubin(const Nvrtc& nvrtc, const KernelSource& source, const std::string& architecture,
                    Effort effort = Effort::optimised);

/// The same kernel as PTX text.
std::string compile_ptx(const Nvrtc& nvrtc, const KernelSource& source,
                        const std::string& architecture);

/// Throws CompileError when the code spills, serialises wgmma, or keeps the registers that warps
/// should hand on. Separate from the compile, because code from the cache has to pass it as well. A
/// kernel with probes may spill: it is for looking, and has to be the one that is looked into. Code
/// that was compiled fast only has to run at all.
void check_resources(const KernelSource& source, const Resources& resources,
                     const std::string& architecture, Effort effort = Effort::optimised);

}  // namespace flashcore
