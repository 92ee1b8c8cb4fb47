// Runs generated kernels without a GPU: the emitted body itself, compiled for the host, thread by
// thread, on a machine stricter than any GPU. For tests of every kernel, and for arrays in CPU
// memory.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "codegen/kernel_source.h"
#include "runtime/emulator/bank_report.h"
#include "runtime/emulator/emulator_error.h"
#include "runtime/emulator/global_memory.h"
#include "runtime/emulator/host_compiler.h"
#include "runtime/tensor.h"

namespace flashcore {

struct EmulationOptions {
  int workers = 0;  ///< OS threads that run blocks; 0: one for each CPU
  /// Called by the thread that calls run(), every twentieth of a second until all is done, with the
  /// blocks (or clusters) that are done, all of them, and the seconds so far. What it throws ends
  /// the run within a moment, and is thrown by it.
  std::function<void(int done, int all, double seconds)> watch = {};
};

struct EmulationReport {
  BankReport banks;
  std::vector<OutputCoverage> outputs;  ///< in the order of KernelSource::tensors
  double run_ms = 0;
};

/// A kernel compiled for the host. Copies share the code; run() may be called from several threads.
class EmulatedKernel {
 public:
  /// Throws CompileError when there is no compiler or it refuses the body.
  static EmulatedKernel build(const KernelSource& source, const HostCompileOptions& options = {});

  /// Runs every block of the grid. `parameters` is the packed parameter block, whose pointers lead
  /// into `tensors`, one for each of KernelSource::tensors. Throws EmulatorError for the first
  /// block that breaks a rule; outputs are then half written.
  [[nodiscard]] EmulationReport run(std::span<const std::byte> parameters, GridSize grid,
                                    std::span<const TensorView> tensors,
                                    const EmulationOptions& options = {}) const;

  /// 0 when another process has compiled it.
  [[nodiscard]] double compile_ms() const { return kernel_->compile_ms; }

 private:
  EmulatedKernel(KernelSource source, std::shared_ptr<const HostKernel> kernel);

  std::shared_ptr<const KernelSource> source_;
  std::shared_ptr<const HostKernel> kernel_;
};

}  // namespace flashcore
