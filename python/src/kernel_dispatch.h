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
#include "runtime/launchable_module.h"
#include "templates/attention_chooser.h"

namespace flashcore::python {

/// Tells every dispatch of this process to look at the user's table of winners again.
void tell_of_new_winners();

class KernelDispatch {
 public:
  using Texts = std::vector<std::string>;

  /// What calls with arrays on a GPU choose.
  struct Chosen {
    bool schedules = false;     ///< their schedule
    bool tuned = false;         ///< by the user's table of winners too
    bool alternatives = false;  ///< whether several kernels run in place of one
  };

  /// Launches `home`, which computes what `spec` says, or what calls choose in its place. `fits` are
  /// the shapes that some of the tensors must have, and `allocate` is as CallWorkspace's.
  KernelDispatch(std::shared_ptr<JitKernel> home, const std::string& spec, Chosen chosen,
                 const std::vector<std::pair<std::string, ArrayFit::Shape>>& fits,
                 pybind11::function allocate);

  /// False where there is more to be done than a launch, which then has not happened: an array does
  /// not fit, or can be addressed in a copy only; or it is time to look at the table of winners.
  /// Needs the GIL, and releases it.
  bool try_launch(const pybind11::tuple& arrays, const pybind11::tuple& scalars,
                  pybind11::handle stream, std::int64_t longest);
  /// Whether these have the shapes that they must have, and need no more than a launch. `longest` is
  /// ArrayFit's.
  [[nodiscard]] bool launches(std::span<const TensorView> tensors, std::int64_t longest) const;
  /// Needs the GIL, and releases it. `like` is the array of the first tensor, `given_stream` the stream
  /// as the caller gave it. Throws LayoutError for a tensor that can be addressed in a copy only.
  void launch(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
              CudaStream stream, pybind11::handle like, pybind11::handle given_stream);
  void launch(const pybind11::tuple& arrays, const pybind11::tuple& scalars,
              pybind11::handle stream);

  [[nodiscard]] const AttentionSpec& spec() const { return spec_; }
  [[nodiscard]] const KernelSource& source() const { return home_->source(); }

  /// Whether calls with arrays on a GPU choose anything.
  [[nodiscard]] bool dispatches() const { return chosen_.schedules || chosen_.alternatives; }

  /// Whether take_winners is due.
  [[nodiscard]] bool asks_for_winners() const;
  /// The user's table as it is now; whether it is another than before.
  bool take_winners(const std::string& table);

  /// The number of the alternative that a problem wants, and those that problems of a range may want.
  [[nodiscard]] std::optional<std::size_t> alternative(const AttentionProblem& problem,
                                                       std::int64_t multiprocessors);
  [[nodiscard]] std::vector<std::size_t> reachable_alternatives(const AttentionProblems& problems);
  /// Whether the alternative of this number is built, so that calls run it.
  [[nodiscard]] bool has_alternative(std::size_t number);
  /// Builds the alternative, and loads its kernels on a device unless that is -1.
  const LaunchableModule& prepare_alternative(std::size_t number, int device);

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
  [[nodiscard]] std::shared_ptr<AttentionChooser> chooser();

  const std::shared_ptr<JitKernel> home_;
  const AttentionSpec spec_;
  Chosen chosen_;
  const ArrayFit fit_;
  const pybind11::function allocate_;
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
};

}  // namespace flashcore::python
