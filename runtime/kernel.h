// From generated source to a launch: a CompiledKernel is machine code for one architecture and
// needs no GPU; a LoadedKernel runs it.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "codegen/kernel_source.h"
#include "dsl/program.h"
#include "dsl/schedule.h"
#include "dsl/target.h"
#include "runtime/compile.h"
#include "runtime/cuda/driver.h"
#include "runtime/launch.h"
#include "runtime/loaded_code.h"

namespace flashcore {

class CompiledKernel {
 public:
  /// From the cache, or compiled with this process's NVRTC. Throws CompileError, also when the code
  /// breaks the schedule's promises (`check_resources`).
  static std::shared_ptr<const CompiledKernel> build(KernelSource source, std::string architecture);

  /// Compiled fast, whether or not it keeps the schedule's promises (Effort::fast), and kept in
  /// this process alone. Throws CompileError.
  static std::shared_ptr<const CompiledKernel> build_fast(KernelSource source,
                                                          std::string architecture);

  /// From the cache, and nothing where it would have to be compiled, or fetched from a remote
  /// store.
  static std::shared_ptr<const CompiledKernel> find(const KernelSource& source,
                                                    const std::string& architecture);

  /// What a bundle in use keeps for such a kernel, found without generating code; null if none
  /// does. The text of its source is for reading (StoredKernel::source). Throws CompileError when
  /// the code breaks the schedule's promises.
  static std::shared_ptr<const CompiledKernel> find(const Program& program,
                                                    const Schedule& schedule, const Target& target);

  /// Code that was compiled before and kept by the caller.
  static std::shared_ptr<const CompiledKernel> from_cubin(KernelSource source,
                                                          std::string architecture, Cubin cubin);

  [[nodiscard]] const std::shared_ptr<const KernelSource>& source() const { return source_; }
  [[nodiscard]] const std::string& architecture() const { return architecture_; }
  [[nodiscard]] const std::string& cubin() const { return cubin_->bytes; }
  [[nodiscard]] const Resources& resources() const { return resources_; }
  [[nodiscard]] bool is_optimised() const { return effort_ == Effort::optimised; }
  [[nodiscard]] bool from_cache() const { return from_cache_; }
  /// Time this process spent in the compiler; 0 when the kernel came from the cache.
  [[nodiscard]] double compile_ms() const { return compile_ms_; }

  /// The file of the cache that keeps it (docs/cache_format.md). Throws CompileError for code that
  /// the caller brought.
  [[nodiscard]] std::string entry() const;

  /// Compiled on request: a launch has no use for it.
  [[nodiscard]] std::string ptx() const;

 private:
  CompiledKernel(KernelSource source, std::string architecture, std::shared_ptr<const Cubin> cubin,
                 Effort effort = Effort::optimised);

  std::shared_ptr<const KernelSource> source_;
  std::string architecture_;
  std::shared_ptr<const Cubin> cubin_;
  Resources resources_;
  Effort effort_;
  bool from_cache_ = false;
  double compile_ms_ = 0;
};

/// Whether the stream is captured into a graph; also where the driver has a complaint about the
/// stream, which a launch will have as well.
bool is_captured(const Driver& driver, CudaStream stream);

/// Thread-safe. Kernels of equal machine code share what is loaded (runtime/loaded_code.h), and a
/// graph that captured a launch may be run after this object is gone.
class LoadedKernel {
 public:
  /// Touches no GPU yet.
  explicit LoadedKernel(std::shared_ptr<const CompiledKernel> compiled);
  LoadedKernel(const LoadedKernel&) = delete;
  LoadedKernel& operator=(const LoadedKernel&) = delete;

  [[nodiscard]] const CompiledKernel& compiled() const { return *compiled_; }
  [[nodiscard]] std::shared_ptr<const CompiledKernel> shared_compiled() const { return compiled_; }
  [[nodiscard]] const LaunchPlan& plan() const { return plan_; }

  /// Loads the code for `device`, so that the first launch does not, and a captured one need not.
  void prepare(int device);

  /// Tensors and scalars in the order of the program. Asynchronous, on the caller's stream; a
  /// loaded kernel's launch can be captured into a graph. Switches to the tensors' device if need
  /// be. A launch over nothing (an empty batch) does nothing.
  void launch(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
              CudaStream stream = nullptr);

 private:
  void launch_in_other_context(std::span<const TensorView> tensors,
                               std::span<const ScalarValue> scalars, CudaStream stream);
  void run(const Driver& driver, const LoadedCode::InContext& loaded,
           const LaunchPlan::Bound& bound, ParameterBlock& block, CudaStream stream) const;

  std::shared_ptr<const CompiledKernel> compiled_;
  LaunchPlan plan_;
  std::shared_ptr<LoadedCode> code_;
};

}  // namespace flashcore
