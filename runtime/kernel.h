// From generated source to a launch: a CompiledKernel is machine code for one architecture and
// needs no GPU; a LoadedKernel runs it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "codegen/kernel_source.h"
#include "runtime/compile.h"
#include "runtime/cuda/driver.h"
#include "runtime/launch.h"
#include "runtime/stream_counters.h"

namespace flashcore {

class CompiledKernel {
 public:
  /// From the cache, or compiled with this process's NVRTC. Throws CompileError, also when the code
  /// breaks the schedule's promises (`check_budget`).
  static std::shared_ptr<const CompiledKernel> build(KernelSource source, std::string architecture);

  /// Code that was compiled before and kept by the caller.
  static std::shared_ptr<const CompiledKernel> from_cubin(KernelSource source,
                                                          std::string architecture, Cubin cubin);

  [[nodiscard]] const std::shared_ptr<const KernelSource>& source() const { return source_; }
  [[nodiscard]] const std::string& architecture() const { return architecture_; }
  [[nodiscard]] const std::string& cubin() const { return cubin_->bytes; }
  [[nodiscard]] const Resources& resources() const { return resources_; }
  [[nodiscard]] bool from_cache() const { return from_cache_; }
  /// Time this process spent in the compiler; 0 when the kernel came from the cache.
  [[nodiscard]] double compile_ms() const { return compile_ms_; }

  /// Compiled on request: a launch has no use for it.
  [[nodiscard]] std::string ptx() const;

 private:
  CompiledKernel(KernelSource source, std::string architecture, std::shared_ptr<const Cubin> cubin);

  std::shared_ptr<const KernelSource> source_;
  std::string architecture_;
  std::shared_ptr<const Cubin> cubin_;
  Resources resources_;
  bool from_cache_ = false;
  double compile_ms_ = 0;
};

/// Thread-safe. Loads the code once for every context it is launched in and never unloads it: a
/// graph that captured a launch keeps the function after this object is gone.
class LoadedKernel {
 public:
  /// Touches no GPU yet.
  explicit LoadedKernel(std::shared_ptr<const CompiledKernel> compiled);
  LoadedKernel(const LoadedKernel&) = delete;
  LoadedKernel& operator=(const LoadedKernel&) = delete;
  ~LoadedKernel();

  [[nodiscard]] const CompiledKernel& compiled() const { return *compiled_; }
  [[nodiscard]] const LaunchPlan& plan() const { return plan_; }

  /// Loads the code for `device`, so that the first launch does not, and a captured one need not.
  void prepare(int device);

  /// Tensors and scalars in the order of the program. Asynchronous, on the caller's stream; a
  /// loaded kernel's launch can be captured into a graph. Switches to the tensors' device if need
  /// be. A launch over nothing (an empty batch) does nothing.
  void launch(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
              CudaStream stream = nullptr);

 private:
  // The code in one context. A list that only grows at its head, so that readers need no lock.
  struct InContext {
    std::uint64_t context = 0;
    int device = 0;
    CudaFunction function = nullptr;
    std::uint32_t blocks = 0;  ///< that run at once, as the schedule promises
    CudaAddress zeros = 0;     ///< what tensor maps of empty tensors lead to
    mutable StreamCounters counters;
    std::unique_ptr<const InContext> next;
  };

  [[nodiscard]] const InContext* find(std::uint64_t context) const;
  const InContext& find_or_load(std::uint64_t context, int device, CudaStream stream);
  void load(InContext& into) const;
  void refuse_capture(CudaStream stream) const;
  void launch_in_other_context(const LaunchPlan::Bound& bound, std::span<const TensorView> tensors,
                               ParameterBlock& block, CudaStream stream);
  void run(const Driver& driver, const InContext& loaded, const LaunchPlan::Bound& bound,
           std::span<const TensorView> tensors, ParameterBlock& block, CudaStream stream) const;

  std::shared_ptr<const CompiledKernel> compiled_;
  LaunchPlan plan_;
  std::atomic<const Driver*> driver_ = nullptr;
  std::atomic<const InContext*> head_ = nullptr;
  std::mutex mutex_;
};

}  // namespace flashcore
