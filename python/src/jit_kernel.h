// One generated kernel as Python holds it: compiled for GPUs when that is first needed, and for the
// host when it meets arrays in CPU memory.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <pybind11/pybind11.h>

#include "codegen/generate.h"
#include "runtime/emulator/emulator.h"
#include "runtime/kernel.h"
#include "runtime/launch.h"
#include "runtime/launchable.h"
#include "runtime/tiered_kernel.h"

namespace flashcore::python {

class LaunchArguments;

class JitKernel final : public Launchable {
 public:
  JitKernel(const Program& program, const std::string& schedule, const std::string& target);

  [[nodiscard]] const Program& program() const { return program_; }
  [[nodiscard]] const Schedule& schedule() const { return schedule_; }
  [[nodiscard]] const Target& target() const { return target_; }
  /// Its text is for reading: it may come from a bundle.
  [[nodiscard]] const KernelSource& source() const { return *source_; }
  [[nodiscard]] std::shared_ptr<const KernelSource> shared_source() const override {
    return source_;
  }
  /// The generated CUDA C++ of what launches run; compiles nothing.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] double generate_ms() const { return generate_ms_; }
  /// The program after a pass, or "built" for before the first.
  [[nodiscard]] std::string ir_after(const std::string& pass) const;

  /// What the masks do for the loops, in words; `names` are those of positions and lengths.
  [[nodiscard]] std::string explain(const std::map<std::string, std::string>& names) const;

  /// What launches run now. Needs no GPU. Compiles on first use.
  [[nodiscard]] std::shared_ptr<const CompiledKernel> compiled() { return code().compiled(); }
  /// Schedules to take in place of this kernel's where its optimised code does not fit while code
  /// that was compiled fast serves (TieredKernel). Before the first compile.
  void set_safer(std::vector<std::string> schedules);
  [[nodiscard]] bool is_compiled() const { return code_.load(std::memory_order_acquire); }
  [[nodiscard]] bool is_optimised() { return code().is_optimised(); }
  void wait_until_optimised() { code().wait_until_optimised(); }

  /// On a GPU or in the emulator, as the arrays lie. Releases the GIL.
  void launch(const LaunchArguments& arguments);
  /// The same of views. Called without the GIL.
  void launch(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
              CudaStream stream) override;

  /// Loads the code for a GPU, so that launches can be captured into a graph.
  void prepare(int device) override { code().prepare(device); }
  /// Compiles what launches of more blocks along an axis than CUDA's grid has take, and loads it
  /// unless `device` is -1.
  void prepare_flat(int device);
  /// The file of the cache that keeps it, or its like for more blocks than CUDA's grid has.
  [[nodiscard]] std::string entry(bool of_flat);
  /// What a bundle answers in place of it (runtime/request.h), or of its like.
  [[nodiscard]] std::string request(bool of_flat);

 private:
  /// Arguments that are checked, on one device.
  void run(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
           CudaStream stream);
  /// The same kernel for more blocks along an axis than CUDA's grid has.
  JitKernel& flat();
  TieredKernel& code();
  std::shared_ptr<const CompiledKernel> optimised();
  /// Of code that this process generated: a bundle's would run on the host.
  const LaunchPlan& emulated_plan();
  const EmulatedKernel& emulated();
  void emulate(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars);

  Program program_;
  Schedule schedule_;
  const Target& target_;
  std::shared_ptr<const KernelSource> source_;
  double generate_ms_ = 0;
  std::optional<LaunchPlan> plan_;  ///< of launches in the emulator

  std::mutex mutex_;  ///< taken without the GIL only
  std::vector<std::string> safer_;
  std::unique_ptr<TieredKernel> owned_;
  std::atomic<TieredKernel*> code_ = nullptr;
  std::unique_ptr<EmulatedKernel> emulated_;
  std::unique_ptr<JitKernel> flat_;
};

}  // namespace flashcore::python
