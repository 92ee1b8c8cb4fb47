#include "python/src/kernel_dispatch.h"

#include <utility>

#include "dsl/error.h"
#include "dsl/json.h"
#include "python/src/call_workspace.h"
#include "python/src/gpu_model.h"
#include "python/src/launch_arguments.h"
#include "runtime/alternative_module.h"
#include "runtime/compile_mode.h"
#include "runtime/launch_errors.h"
#include "runtime/no_fork.h"

namespace flashcore::python {
namespace {

namespace py = pybind11;

std::atomic<unsigned> tables_written = 0;

KernelDispatch::Texts texts_of(std::span<const Schedule> schedules) {
  KernelDispatch::Texts texts;
  for (const Schedule& schedule : schedules) texts.push_back(to_json(schedule));
  return texts;
}

std::vector<Schedule> schedules_of(const KernelDispatch::Texts& texts) {
  std::vector<Schedule> schedules;
  for (const std::string& text : texts) schedules.push_back(schedule_from_json(text));
  return schedules;
}

/// Kernels as Python has them; of the schedule of `home`, that itself.
Dispatcher::Builds builds_like(const std::shared_ptr<JitKernel>& home) {
  return [home](const Program& program) -> Dispatcher::Build {
    const bool is_own = &program == &home->program();
    const auto kept = std::make_shared<const Program>(program);
    return [home, kept, is_own](const Schedule& schedule,
                                std::span<const Schedule> safer) -> Dispatcher::Kernel {
      std::shared_ptr<JitKernel> kernel = home;
      if (!is_own || !(schedule == home->schedule()))
        kernel =
            std::make_shared<JitKernel>(*kept, to_json(schedule), std::string(home->target().name));
      if (compile_mode() == CompileMode::tiered) kernel->set_safer(texts_of(safer));
      (void)kernel->compiled();
      return kernel;
    };
  };
}

std::unique_ptr<AttentionChooser> chooser_by(const AttentionSpec& spec, const Target& target,
                                             const std::string& winners) {
  try {
    return std::make_unique<AttentionChooser>(spec, target, winners, cost_model_of(target));
  } catch (const ScheduleError&) {  // a table that is left aside
    return std::make_unique<AttentionChooser>(spec, target, "", cost_model_of(target));
  }
}

}  // namespace

void tell_of_new_winners() { ++tables_written; }

KernelDispatch::KernelDispatch(std::shared_ptr<JitKernel> home, const std::string& spec,
                               Chosen chosen,
                               const std::vector<std::pair<std::string, ArrayFit::Shape>>& fits,
                               py::function allocate)
    : home_(std::move(home)),
      spec_(attention_spec_from_json(spec)),
      chosen_(chosen),
      fit_(spec_, home_->source(), fits),
      allocate_(std::move(allocate)) {
  chosen_.alternatives = chosen_.alternatives && has_alternatives(spec_, home_->target());
}

bool KernelDispatch::try_launch(const py::tuple& arrays, const py::tuple& scalars,
                                py::handle stream, std::int64_t longest) {
  try {
    const LaunchArguments arguments(home_->source(), arrays, scalars, stream);
    if (!fit_.holds(arguments.tensors(), longest)) return false;
    if (dispatches() && arguments.on_gpu() && asks_for_winners()) return false;
    launch(arguments.tensors(), arguments.scalars(), arguments.stream(), arrays[0], stream);
    return true;
  } catch (const LayoutError&) {
    return false;
  }
}

void KernelDispatch::launch(const py::tuple& arrays, const py::tuple& scalars, py::handle stream) {
  const LaunchArguments arguments(home_->source(), arrays, scalars, stream);
  launch(arguments.tensors(), arguments.scalars(), arguments.stream(), arrays[0], stream);
}

bool KernelDispatch::launches(std::span<const TensorView> tensors, std::int64_t longest) const {
  return fit_.holds(tensors, longest) &&
         !(dispatches() && tensors[0].device >= 0 && asks_for_winners());
}

void KernelDispatch::launch(std::span<const TensorView> tensors,
                            std::span<const ScalarValue> scalars, CudaStream stream,
                            py::handle like, py::handle given_stream) {
  const bool on_gpu = !tensors.empty() && tensors[0].device >= 0;
  CallWorkspace workspace(like, on_gpu ? tensors[0].device : cpu_device, given_stream, stream,
                          allocate_);
  // A full launch queue blocks until the GPU has caught up; a host callback in it may need the GIL.
  const py::gil_scoped_release release;
  if (on_gpu && chosen_.schedules) {
    dispatcher().launch(tensors, scalars, stream, workspace);
    return;
  }
  const bool is_done = on_gpu && chosen_.alternatives &&
                       dispatcher().launch_alternative(tensors, scalars, stream, workspace);
  if (!is_done) home_->launch(tensors, scalars, stream);
}

bool KernelDispatch::asks_for_winners() const {
  constexpr auto relaxed = std::memory_order_relaxed;
  if (dispatcher_.load(std::memory_order_acquire) == nullptr) return true;
  if (!chosen_.tuned) return false;
  if (is_due_.load(relaxed) || looked_.load(relaxed) != tables_written.load(relaxed)) return true;
  const unsigned call = calls_.load(relaxed);  // one that is not counted does no harm
  calls_.store(call + 1, relaxed);
  if (call % calls_a_look != 0) return false;
  const bool is_due = Clock::now().time_since_epoch().count() >= looks_next_.load(relaxed);
  if (is_due) is_due_.store(true, relaxed);
  return is_due;
}

bool KernelDispatch::take_winners(const std::string& table) {
  const NoFork whole;
  const std::lock_guard lock(mutex_);
  looked_ = tables_written.load();
  is_due_ = false;
  looks_next_ = (Clock::now() + looks_every).time_since_epoch().count();
  if (winners_ == table) return false;
  std::unique_ptr<AttentionChooser> chooser = chooser_by(spec_, home_->target(), table);
  if (owned_) {
    owned_->set_choice(std::move(chooser));
  } else {
    owned_ = std::make_unique<Dispatcher>(home_->program(), std::move(chooser), builds_like(home_));
    if (home_->is_compiled()) owned_->add(home_->schedule(), home_);
    dispatcher_.store(owned_.get(), std::memory_order_release);
  }
  winners_ = table;
  return true;
}

Dispatcher& KernelDispatch::dispatcher() {
  if (Dispatcher* const made = dispatcher_.load(std::memory_order_acquire)) return *made;
  throw InternalError("a choice before the table of winners is known");
}

std::shared_ptr<AttentionChooser> KernelDispatch::chooser() {
  return std::static_pointer_cast<AttentionChooser>(dispatcher().choice());
}

KernelDispatch::Texts KernelDispatch::schedules(const AttentionProblem& problem) {
  const NoFork whole;
  const auto choice = chooser();
  return texts_of(choice->schedules(choice->choose(problem)));
}

std::vector<KernelDispatch::Texts> KernelDispatch::reachable(const AttentionProblems& problems) {
  const NoFork whole;
  const auto choice = chooser();
  std::vector<Texts> lists;
  for (const std::size_t list : choice->choose_all(problems))
    lists.push_back(texts_of(choice->schedules(list)));
  return lists;
}

std::optional<std::size_t> KernelDispatch::alternative(const AttentionProblem& problem,
                                                       std::int64_t multiprocessors) {
  if (!chosen_.alternatives) return std::nullopt;
  return chooser()->find_alternative(problem, multiprocessors);
}

bool KernelDispatch::has_alternative(std::size_t number) {
  return dispatcher().built_alternative(number) != nullptr;
}

std::vector<std::size_t> KernelDispatch::reachable_alternatives(const AttentionProblems& problems) {
  return chosen_.alternatives ? chooser()->all_alternatives(problems) : std::vector<std::size_t>();
}

const LaunchableModule& KernelDispatch::prepare_alternative(std::size_t number, int device) {
  return dispatcher().prepare_alternative(number, device).module();
}

std::shared_ptr<JitKernel> KernelDispatch::kernel(const Texts& list) {
  return std::static_pointer_cast<JitKernel>(dispatcher().kernel(schedules_of(list)));
}

std::shared_ptr<JitKernel> KernelDispatch::built_kernel(const Texts& list) {
  return std::static_pointer_cast<JitKernel>(dispatcher().built_kernel(schedules_of(list)));
}

void KernelDispatch::prepare(const Texts& list, int device) {
  dispatcher().prepare(schedules_of(list), device);
}

bool KernelDispatch::has_kernel() const {
  const Dispatcher* const made = dispatcher_.load(std::memory_order_acquire);
  return made != nullptr && made->has_kernel();
}

bool KernelDispatch::is_building() const {
  const Dispatcher* const made = dispatcher_.load(std::memory_order_acquire);
  return made != nullptr && made->is_building();
}

void KernelDispatch::wait_until_built() {
  if (Dispatcher* const made = dispatcher_.load(std::memory_order_acquire))
    made->wait_until_built();
}

}  // namespace flashcore::python
