#include "runtime/dispatcher.h"

#include <algorithm>
#include <utility>

#include "codegen/generate.h"
#include "runtime/alternatives_at_hand.h"
#include "runtime/cuda/device.h"
#include "runtime/flat_grid.h"
#include "runtime/kernels_at_hand.h"
#include "runtime/no_fork.h"
#include "runtime/tiered_kernel.h"

namespace flashcore {
namespace {

Dispatcher::Kernel build_one(const std::shared_ptr<const Program>& program, const Target& target,
                             const Schedule& schedule, std::span<const Schedule> safer) {
  if (auto bundled = CompiledKernel::find(*program, schedule, target))
    return std::make_shared<TieredKernel>(std::move(bundled));
  std::vector<TieredKernel::Generate> others;
  for (const Schedule& other : safer)
    others.emplace_back([=, &target] { return generate(*program, other, target); });
  return TieredKernel::build(generate(*program, schedule, target), std::string(target.name),
                             std::move(others));
}

Dispatcher::Build build_tiered(const Program& given, const Target& target) {
  return [program = std::make_shared<const Program>(given), &target](
             const Schedule& schedule, std::span<const Schedule> safer) -> Dispatcher::Kernel {
    Schedule flat = schedule;
    flat.flat_grid = true;
    return std::make_shared<AnyGrid>(build_one(program, target, schedule, safer),
                                     [=, &target] { return build_one(program, target, flat, {}); });
  };
}

}  // namespace

/// A choice, and what is known of its lists.
struct Dispatcher::Chosen {
  static constexpr std::size_t most_lists = 1024;  ///< that are found without a lock

  std::shared_ptr<ScheduleChoice> choice;
  bool has_alternatives = false;
  std::vector<Place> places;  ///< of its extents
  std::array<std::atomic<KernelsAtHand::List*>, most_lists> lists{};

  KernelsAtHand::List& list(std::size_t number, KernelsAtHand& kernels) {
    if (number < most_lists) {
      if (auto* known = lists[number].load(std::memory_order_acquire)) return *known;
    }
    KernelsAtHand::List& list = kernels.list_of(choice->schedules(number));
    if (number < most_lists) lists[number].store(&list, std::memory_order_release);
    return list;
  }
};

Dispatcher::Dispatcher(Program program, const Target& target,
                       std::shared_ptr<ScheduleChoice> choice)
    : Dispatcher(program, std::move(choice),
                 [&target](const Program& own) { return build_tiered(own, target); }) {}

Dispatcher::Dispatcher(const Program& program, std::shared_ptr<ScheduleChoice> choice,
                       Builds builds)
    : tensors_(program.function().tensors),
      scalars_(program.function().parameters),
      kernels_(std::make_shared<KernelsAtHand>(program.name(), builds(program))),
      alternatives_(std::make_shared<AlternativesAtHand>(program, std::move(builds))) {
  set_choice(std::move(choice));
}

Dispatcher::~Dispatcher() {
  kernels_->end();
  alternatives_->end();
}

void Dispatcher::set_choice(std::shared_ptr<ScheduleChoice> choice) {
  auto made = std::make_unique<Chosen>();
  const std::vector<std::string>& extents = choice->extents();
  if (extents.size() > ScheduleChoice::max_extents)
    throw InternalError("a choice that depends on more than eight extents");
  for (const std::string& extent : extents) made->places.push_back(find_length(extent));
  made->has_alternatives = choice->has_alternatives();
  made->choice = std::move(choice);
  const NoFork whole;
  const std::lock_guard lock(choosing_);
  choices_.push_back(std::move(made));
  chosen_.store(choices_.back().get(), std::memory_order_release);
}

Dispatcher::Place Dispatcher::find_length(const std::string& name) const {
  for (std::size_t tensor = 0; tensor < tensors_.size(); ++tensor) {
    const std::vector<Extent>& dims = tensors_[tensor].dims;
    for (std::size_t dim = 0; dim < dims.size(); ++dim)
      if (dims[dim].name == name)
        return {static_cast<int>(tensor), static_cast<int>(dim), dims[dim].plus};
  }
  const auto scalar = std::ranges::find(scalars_, name, &ir::Parameter::name);
  if (scalar != scalars_.end() && scalar->dtype == DType::i32)
    return {.scalar = static_cast<int>(scalar - scalars_.begin())};
  throw SpecError({.what = "a choice by the extent " + name,
                   .why = "no tensor of the program has it, and it is no i32 scalar",
                   .fix = "a choice that is made for this program",
                   .where = {}});
}

std::shared_ptr<ScheduleChoice> Dispatcher::choice() const { return chosen().choice; }

std::span<const std::int64_t> Dispatcher::lengths_of(const Chosen& chosen,
                                                     std::span<const TensorView> tensors,
                                                     std::span<const ScalarValue> scalars,
                                                     Lengths& lengths) {
  for (std::size_t i = 0; i < chosen.places.size(); ++i) {
    const Place& place = chosen.places[i];
    if (place.scalar >= 0) {
      const auto scalar = static_cast<std::size_t>(place.scalar);
      const bool is_there = scalar < scalars.size() && scalars[scalar].dtype() == DType::i32;
      lengths[i] = is_there ? scalars[scalar].i32() : 0;
      continue;
    }
    const auto tensor = static_cast<std::size_t>(place.tensor);
    const bool has_it = tensor < tensors.size() && place.dim < tensors[tensor].rank;
    lengths[i] = has_it ? tensors[tensor].shape[place.dim] - place.plus : 0;
  }
  return std::span(lengths).first(chosen.places.size());
}

std::size_t Dispatcher::number_of(const Chosen& chosen, std::span<const std::int64_t> lengths) {
  const std::size_t number = chosen.choice->find(lengths);
  if (number != ScheduleChoice::unknown) [[likely]]
    return number;
  const NoFork whole;
  return chosen.choice->choose(lengths);
}

std::size_t Dispatcher::list_for(std::span<const TensorView> tensors,
                                 std::span<const ScalarValue> scalars) const {
  const Chosen& now = chosen();
  Lengths memory;
  return number_of(now, lengths_of(now, tensors, scalars, memory));
}

Dispatcher::AlternativeLaunch Dispatcher::launch_alternative(const Chosen& chosen,
                                                             std::span<const std::int64_t> lengths,
                                                             std::span<const TensorView> tensors,
                                                             std::span<const ScalarValue> scalars,
                                                             CudaStream stream,
                                                             Workspace& workspace) {
  // Arguments of another number are for a kernel to refuse.
  const bool may = chosen.has_alternatives && !tensors.empty() && tensors[0].device >= 0 &&
                   tensors.size() == tensors_.size() && scalars.size() == scalars_.size();
  if (!may) return AlternativeLaunch::none;
  const int device = tensors[0].device;
  const std::optional<std::size_t> number =
      chosen.choice->find_alternative(lengths, multiprocessors_of(Driver::get(), device));
  if (!number) return AlternativeLaunch::none;
  const AlternativeModule* found = alternatives_->find(*number);
  if (found == nullptr) [[unlikely]] {
    const auto served =
        alternatives_->serve(chosen.choice, *number, device, stream, kernels_->has_kernel());
    if (served.module == nullptr)
      return served.is_coming ? AlternativeLaunch::later : AlternativeLaunch::none;
    found = served.module;
  }
  found->launch(tensors, scalars, stream, workspace);
  return AlternativeLaunch::done;
}

bool Dispatcher::launch_alternative(std::span<const TensorView> tensors,
                                    std::span<const ScalarValue> scalars, CudaStream stream,
                                    Workspace& workspace) {
  const Chosen& now = chosen();
  Lengths memory;
  return launch_alternative(now, lengths_of(now, tensors, scalars, memory), tensors, scalars,
                            stream, workspace) == AlternativeLaunch::done;
}

void Dispatcher::launch(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
                        CudaStream stream, Workspace& workspace) {
  Chosen& now = chosen();
  Lengths memory;
  const std::span<const std::int64_t> lengths = lengths_of(now, tensors, scalars, memory);
  const AlternativeLaunch alternative =
      launch_alternative(now, lengths, tensors, scalars, stream, workspace);
  if (alternative == AlternativeLaunch::done) return;
  KernelsAtHand::List& list = now.list(number_of(now, lengths), *kernels_);
  Launchable* kernel = list.in_place.load(std::memory_order_acquire);
  if (kernel == nullptr) [[unlikely]] {
    const int device = tensors.empty() ? cpu_device : tensors[0].device;
    kernel = kernels_->serve(list, lengths, device, stream,
                             /*for_now=*/alternative == AlternativeLaunch::later);
    if (kernel == nullptr) refuse_capture(lengths);
  }
  kernel->launch(tensors, scalars, stream);
}

void Dispatcher::launch(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
                        CudaStream stream) {
  StreamWorkspace workspace(tensors.empty() ? cpu_device : tensors[0].device, stream);
  launch(tensors, scalars, stream, workspace);
}

AlternativeModule& Dispatcher::prepare_alternative(std::size_t number, int device) {
  return alternatives_->prepare(chosen().choice, number, device);
}

AlternativeModule* Dispatcher::built_alternative(std::size_t number) const {
  return alternatives_->find(number);
}

void Dispatcher::refuse_capture(std::span<const std::int64_t> lengths) const {
  const ScheduleChoice& choice = *chosen().choice;
  throw NotReadyError(
      {.what =
           fmt::format("{}: the kernel for {} is not compiled, and the stream is being captured",
                       kernels_->name(), choice.describe(lengths)),
       .why =
           "compiling during the capture of a graph would take a second, and loading code is not "
           "allowed then",
       .fix = fmt::format("{}, or a call with arrays of these shapes, before the capture begins",
                          choice.preparation(lengths)),
       .where = {}});
}

void Dispatcher::prepare(const std::vector<Schedule>& list, int device) {
  kernels_->load(kernels_->list_of(list), device);
}

Dispatcher::Kernel Dispatcher::kernel(const std::vector<Schedule>& list) {
  return kernels_->build(kernels_->list_of(list));
}

Dispatcher::Kernel Dispatcher::built_kernel(const std::vector<Schedule>& list) {
  return kernels_->find_built(kernels_->list_of(list));
}

void Dispatcher::add(const Schedule& schedule, Kernel kernel) {
  kernels_->add(schedule, std::move(kernel));
}

bool Dispatcher::has_kernel() const { return kernels_->has_kernel(); }
bool Dispatcher::is_building() const {
  return kernels_->is_building() || alternatives_->is_building();
}
void Dispatcher::wait_until_built() {
  kernels_->wait_until_built();
  alternatives_->wait_until_built();
}

}  // namespace flashcore
