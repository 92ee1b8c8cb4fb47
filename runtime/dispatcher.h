// A program whose launches choose their schedule: which kernel a launch runs follows from the
// lengths of its tensors, and a launch with lengths that no launch had before costs no more.
//
//     Dispatcher kernel(attention_forward(spec), target, std::make_shared<AttentionChooser>(spec, target));
//     kernel.launch(q_k_v_o, scalars, stream);
//
// Kernels of a program differ in speed alone: each computes problems of any size. So where the kernel
// that a launch wants is not built yet, the best one at hand serves, and the other is built and loaded
// in the background and takes its place at a later launch. The first launch of all has nothing at hand and
// waits, and so do all where the mode of compiling is `eager`, or `forbid`, which finds it or throws.
//
// The best one at hand is the first in the launch's own list of schedules that is built; if none is,
// the one that serves the nearest lengths: those for which the sum over the lengths of
// |log2(a / b)| is least.
//
// Where the choice says that an alternative to the program is faster, several kernels that run one
// after another (dsl/schedule_choice.h), the launch runs that; until it is built, a kernel serves.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "dsl/error.h"
#include "dsl/program.h"
#include "dsl/schedule.h"
#include "dsl/schedule_choice.h"
#include "dsl/target.h"
#include "runtime/cuda/driver.h"
#include "runtime/launchable.h"
#include "runtime/tensor.h"
#include "runtime/workspace.h"

namespace flashcore {

/// A launch that is captured wants a kernel that has to be compiled or loaded first.
class NotReadyError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

class AlternativeModule;
class AlternativesAtHand;
class KernelsAtHand;

/// Thread-safe.
class Dispatcher {
 public:
  using Kernel = std::shared_ptr<Launchable>;
  /// The kernel under a schedule, compiled; `safer` are the schedules that come after it. Throws
  /// ScheduleError or CompileError where it does not fit. Called from any thread, several at a time.
  using Build = std::function<Kernel(const Schedule& schedule, std::span<const Schedule> safer)>;
  /// How kernels of a program are built: of the dispatcher's own, and of alternatives' modules.
  using Builds = std::function<Build(const Program& program)>;

  /// Of kernels that come from the cache or are compiled as the mode of compiling says.
  Dispatcher(Program program, const Target& target, std::shared_ptr<ScheduleChoice> choice);
  Dispatcher(const Program& program, std::shared_ptr<ScheduleChoice> choice, Builds builds);
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;
  /// Drops what waits to be built.
  ~Dispatcher();

  /// As LoadedKernel::launch. During a capture nothing is compiled or loaded: a launch that would
  /// need it throws NotReadyError, unless a launch before wanted the same; then what served that one
  /// is captured, with a warning.
  /// Alternatives take their memory from `workspace`.
  void launch(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
              CudaStream stream, Workspace& workspace);
  /// The same with a StreamWorkspace.
  void launch(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
              CudaStream stream = nullptr);

  /// Launches the alternative that the choice names for these tensors. False, and nothing is launched,
  /// where it names none, or the alternative is not built.
  bool launch_alternative(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
                          CudaStream stream, Workspace& workspace);

  /// Builds an alternative of the choice by its number, and loads it on a device unless that is -1:
  /// launches that want it wait for nothing then. Throws what building it throws.
  AlternativeModule& prepare_alternative(std::size_t number, int device);
  /// The alternative of this number; null unless it is built and launches may run it.
  [[nodiscard]] AlternativeModule* built_alternative(std::size_t number) const;

  /// The number of the list that a launch with these arguments wants, by choice(). Scalars that are not
  /// given count as 0.
  [[nodiscard]] std::size_t list_for(std::span<const TensorView> tensors,
                                     std::span<const ScalarValue> scalars = {}) const;

  /// Builds the kernel under the first of the schedules that fits, as for a launch whose list this
  /// is, and loads it on a device unless that is -1: such launches wait for nothing then. Throws what
  /// building it throws.
  void prepare(const std::vector<Schedule>& list, int device);

  /// That kernel. Waits for it; throws as `prepare`.
  Kernel kernel(const std::vector<Schedule>& list);
  /// The same, and null where it is not built yet.
  Kernel built_kernel(const std::vector<Schedule>& list);

  /// Whether any kernel is built: one that serves launches of all lengths.
  [[nodiscard]] bool has_kernel() const;

  /// A kernel that was built elsewhere.
  void add(const Schedule& schedule, Kernel kernel);
  /// Chooses in another way from now on. What was built stays at hand.
  void set_choice(std::shared_ptr<ScheduleChoice> choice);
  [[nodiscard]] std::shared_ptr<ScheduleChoice> choice() const;

  /// Whether something waits to be built, and waiting until nothing does.
  [[nodiscard]] bool is_building() const;
  void wait_until_built();

 private:
  struct Chosen;
  /// Where a named extent stands in the shapes of a launch, or a scalar among its scalars.
  struct Place {
    int tensor = 0, dim = 0, plus = 0;
    int scalar = -1;
  };
  using Lengths = std::array<std::int64_t, ScheduleChoice::max_extents>;

  /// Reads them off the shapes; zeros where the tensors are not the program's, which a launch says.
  static std::span<const std::int64_t> lengths_of(const Chosen& chosen,
                                                  std::span<const TensorView> tensors,
                                                  std::span<const ScalarValue> scalars,
                                                  Lengths& lengths);
  /// Throws SpecError where the program has no extent and no scalar of this name.
  [[nodiscard]] Place find_length(const std::string& name) const;
  static std::size_t number_of(const Chosen& chosen, std::span<const std::int64_t> lengths);
  enum class AlternativeLaunch {
    done,
    later,  ///< the background builds the alternative
    none,   ///< a kernel of the program serves
  };
  AlternativeLaunch launch_alternative(const Chosen& chosen, std::span<const std::int64_t> lengths,
                                       std::span<const TensorView> tensors,
                                       std::span<const ScalarValue> scalars, CudaStream stream,
                                       Workspace& workspace);
  [[noreturn]] void refuse_capture(std::span<const std::int64_t> lengths) const;
  [[nodiscard]] Chosen& chosen() const { return *chosen_.load(std::memory_order_acquire); }

  const std::vector<ir::Tensor> tensors_;
  const std::vector<ir::Parameter> scalars_;
  const std::shared_ptr<KernelsAtHand> kernels_;
  const std::shared_ptr<AlternativesAtHand> alternatives_;
  std::mutex choosing_;
  std::vector<std::unique_ptr<Chosen>> choices_;  ///< launches may still go by an earlier one
  std::atomic<Chosen*> chosen_ = nullptr;
};

}  // namespace flashcore
