// How a call from Python finds the kernel that it launches: one reading of its arrays, and no table of
// shapes, so that a call of shapes that no call had before costs as much as any other.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <pybind11/pybind11.h>

#include "python/src/array_fit.h"
#include "python/src/jit_kernel.h"
#include "runtime/dispatcher.h"
#include "templates/schedule_chooser.h"

namespace flashcore::python {

class LaunchArguments;

/// Tells every dispatch of this process to look at the user's table of winners again.
void tell_of_new_winners();

class KernelDispatch {
 public:
  using Texts = std::vector<std::string>;

  /// Launches `home`, which computes what `spec` says. Where `chooses`, calls with arrays on a GPU
  /// choose their schedule instead; by the user's table of winners too, unless `tuned` is false.
  /// `fits` are the shapes that some of the tensors must have.
  KernelDispatch(std::shared_ptr<JitKernel> home, const std::string& spec, bool chooses, bool tuned,
                 const std::vector<std::pair<std::string, ArrayFit::Shape>>& fits);

  /// False where there is more to be done than a launch, which then has not happened: an array does
  /// not fit, or can be addressed in a copy only; or it is time to look at the table of winners.
  /// Needs the GIL, and releases it.
  bool try_launch(const pybind11::tuple& arrays, const pybind11::tuple& scalars,
                  pybind11::handle stream, std::int64_t longest);
  /// Whether these have the shapes that they must have.
  [[nodiscard]] bool fits(std::span<const TensorView> tensors) const {
    return fit_.holds(tensors, -1);
  }
  /// Whether these need no more than a launch.
  [[nodiscard]] bool launches(std::span<const TensorView> tensors) const;
  /// Needs the GIL, and releases it. Throws LayoutError for a tensor that can be addressed in a copy
  /// only.
  void launch(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
              CudaStream stream);
  void launch(const pybind11::tuple& arrays, const pybind11::tuple& scalars,
              pybind11::handle stream);

  /// That of calls that choose their schedule, the user's table of winners included; null before that
  /// is known. It lives as long as this.
  [[nodiscard]] const ScheduleChooser* chooser() const {
    return chooser_.load(std::memory_order_acquire);
  }

  [[nodiscard]] const AttentionSpec& spec() const { return spec_; }
  [[nodiscard]] const KernelSource& source() const { return home_->source(); }

  /// Whether take_winners is due.
  [[nodiscard]] bool asks_for_winners() const;
  /// The user's table as it is now; whether it is another than before.
  bool take_winners(const std::string& table);

  /// The schedules, as JSON, that a problem wants and that problems of a range may want.
  [[nodiscard]] Texts schedules(const AttentionProblem& problem);
  [[nodiscard]] std::vector<Texts> reachable(const AttentionProblems& problems);
  /// The kernel that calls which want this list come to; it waits for that, or is null where it is not
  /// built yet.
  std::shared_ptr<JitKernel> kernel(const Texts& list);
  std::shared_ptr<JitKernel> built_kernel(const Texts& list);
  /// Builds it, and loads it on a device: calls that want it wait for nothing then.
  void prepare(const Texts& list, int device);

  /// Whether a kernel is built that serves calls of all lengths.
  [[nodiscard]] bool has_kernel() const;
  [[nodiscard]] bool is_building() const;
  void wait_until_built();

 private:
  using Clock = std::chrono::steady_clock;
  /// Another process may have written the table.
  static constexpr std::chrono::seconds looks_every{1};

  Dispatcher& dispatcher();

  const std::shared_ptr<JitKernel> home_;
  const AttentionSpec spec_;
  const bool chooses_, tuned_;
  const ArrayFit fit_;
  /// Of how many calls one looks at the clock, which on some machines is a call of the system.
  static constexpr unsigned calls_a_look = 32;
  mutable std::atomic<unsigned> calls_ = 0;
  mutable std::atomic<bool> is_due_ = false;
  std::atomic<std::int64_t> looks_next_ = 0;  ///< in ticks of the clock
  std::atomic<unsigned> looked_ = 0;          ///< how many tables this process had written by then
  std::mutex mutex_;
  std::optional<std::string> winners_;
  std::unique_ptr<Dispatcher> owned_;
  std::atomic<Dispatcher*> dispatcher_ = nullptr;
  std::atomic<const ScheduleChooser*> chooser_ = nullptr;  ///< the dispatcher keeps all it had
};

}  // namespace flashcore::python
