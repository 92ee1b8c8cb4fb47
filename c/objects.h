// What the handles of the C interface stand for.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "c/flashcore.h"
#include "dsl/program.h"
#include "dsl/schedule.h"
#include "dsl/target.h"
#include "runtime/bundle/bundle.h"
#include "runtime/dispatcher.h"
#include "runtime/emulator/emulator.h"
#include "runtime/kernel.h"
#include "runtime/launch.h"
#include "templates/attention_chooser.h"

/// A kernel: generated here, with schedules to go on with where code does not fit, or read from a
/// bundle.
struct fc_kernel {
  fc_kernel(flashcore::Program program, std::vector<flashcore::Schedule> schedules,
            const flashcore::Target& target);
  explicit fc_kernel(std::shared_ptr<const flashcore::CompiledKernel> stored);

  [[nodiscard]] const flashcore::LaunchPlan& plan() const { return *plan_.load(); }
  [[nodiscard]] const flashcore::KernelSource& source() const { return plan().source(); }
  [[nodiscard]] const std::string& target() const { return target_; }
  /// The whole text, made when it is asked for.
  const char* text();

  const flashcore::CompiledKernel& compiled();
  flashcore::LoadedKernel& loaded();
  void emulate(std::span<const flashcore::TensorView> tensors,
               std::span<const flashcore::ScalarValue> scalars);

 private:
  void use(std::shared_ptr<const flashcore::KernelSource> source);

  std::optional<flashcore::Program> program_;  ///< none of a bundle's
  std::vector<flashcore::Schedule> schedules_;
  std::string target_;

  std::mutex mutex_;
  /// What was planned before a safer schedule was taken lives on: others may be using it.
  std::vector<std::unique_ptr<const flashcore::LaunchPlan>> plans_;
  std::atomic<const flashcore::LaunchPlan*> plan_ = nullptr;
  std::string text_;
  std::shared_ptr<const flashcore::CompiledKernel> compiled_;
  std::unique_ptr<flashcore::LoadedKernel> loaded_;
  std::unique_ptr<flashcore::EmulatedKernel> emulated_;
};

/// The kernels of a spec, of which every launch takes one.
struct fc_dispatcher {
  /// With a bundle those that it has, else those of the cache, compiled as the mode says.
  fc_dispatcher(const flashcore::AttentionSpec& spec, const flashcore::Target& target,
                std::shared_ptr<const flashcore::Bundle> bundle);

  void prepare(const flashcore::AttentionProblems& problems, int device);
  void launch(std::span<const flashcore::TensorView> tensors,
              std::span<const flashcore::ScalarValue> scalars, flashcore::CudaStream stream) {
    dispatcher_.launch(tensors, scalars, stream);
  }
  /// That of a launch with such tensors, to describe it and for the emulator.
  fc_kernel& kernel_for(std::span<const flashcore::TensorView> tensors);

 private:
  [[nodiscard]] std::unique_ptr<fc_kernel> make_kernel(
      std::vector<flashcore::Schedule> schedules) const;

  const flashcore::Program program_;
  const flashcore::Target& target_;
  const std::shared_ptr<const flashcore::Bundle> bundle_;
  const std::shared_ptr<flashcore::AttentionChooser> chooser_;
  flashcore::Dispatcher dispatcher_;
  std::mutex mutex_;
  std::map<std::size_t, std::unique_ptr<fc_kernel>> kernels_;  ///< by the number of their list
};

struct fc_bundle {
  std::shared_ptr<const flashcore::Bundle> open;
  std::string signer;
};
