#include "python/src/jit_kernel.h"

#include <chrono>

#include <fmt/ranges.h>

#include "codegen/explain.h"
#include "dsl/error.h"
#include "dsl/ir/print.h"
#include "dsl/json.h"
#include "dsl/shortened.h"
#include "python/src/emulation_watch.h"
#include "python/src/launch_arguments.h"
#include "runtime/launch_errors.h"
#include "runtime/log.h"
#include "runtime/no_fork.h"
#include "runtime/request.h"

namespace flashcore::python {
namespace {

namespace py = pybind11;

}  // namespace

JitKernel::JitKernel(const Program& program, const std::string& schedule, const std::string& target)
    : program_(program), schedule_(schedule_from_json(schedule)), target_(find_target(target)) {
  if (auto bundled = CompiledKernel::find(program_, schedule_, target_)) {
    source_ = bundled->source();
    owned_ = std::make_unique<TieredKernel>(std::move(bundled));
    code_ = owned_.get();
  } else {
    const auto start = std::chrono::steady_clock::now();
    source_ = std::make_shared<const KernelSource>(generate(program_, schedule_, target_));
    generate_ms_ =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }
  constexpr int tensors = LaunchArguments::max_tensors, scalars = LaunchArguments::max_scalars;
  if (source_->tensors.size() > tensors || source_->scalars.size() > scalars) {
    throw SpecError(
        {.what = source_->name,
         .why = fmt::format("it has {} tensors and {} scalars", source_->tensors.size(),
                            source_->scalars.size()),
         .fix = fmt::format("from Python a kernel takes at most {} and {}", tensors, scalars),
         .where = {}});
  }
  if (!owned_) plan_.emplace(source_);
}

std::string JitKernel::ir_after(const std::string& pass) const {
  std::string text;
  bool found = false;
  (void)generate(program_, schedule_, target_, [&](std::string_view name, const ir::Function& f) {
    if (name != pass) return;
    text = ir::print(f);
    found = true;
  });
  if (found) return text;
  throw SpecError({.what = fmt::format("ir after \"{}\"", shortened(pass)),
                   .why = "there is no such pass",
                   .fix = fmt::format("built, {}", fmt::join(pass_names(), ", ")),
                   .where = {}});
}

std::string JitKernel::explain(const std::map<std::string, std::string>& names) const {
  return flashcore::explain(program_, schedule_, target_, names);
}

TieredKernel& JitKernel::code() {
  if (TieredKernel* ready = code_.load(std::memory_order_acquire)) return *ready;
  const HookDeferral messages_after_the_lock;
  const NoFork whole;
  const std::lock_guard lock(mutex_);
  if (!owned_) {
    std::vector<TieredKernel::Generate> safer;
    for (const std::string& schedule : safer_)
      safer.emplace_back([program = program_, schedule, &target = target_] {
        return generate(program, schedule_from_json(schedule), target);
      });
    owned_ = TieredKernel::build(*source_, std::string(target_.name), std::move(safer));
    code_.store(owned_.get(), std::memory_order_release);
  }
  return *owned_;
}

std::string JitKernel::text() const {
  const TieredKernel* ready = code_.load(std::memory_order_acquire);
  return ready == nullptr ? source_->text() : ready->compiled()->source()->text();
}

void JitKernel::set_safer(std::vector<std::string> schedules) {
  const NoFork whole;
  const std::lock_guard lock(mutex_);
  safer_ = std::move(schedules);
}

const LaunchPlan& JitKernel::emulated_plan() {
  const NoFork whole;
  const std::lock_guard lock(mutex_);
  if (!plan_)
    plan_.emplace(std::make_shared<const KernelSource>(generate(program_, schedule_, target_)));
  return *plan_;
}

const EmulatedKernel& JitKernel::emulated() {
  const KernelSource& source = emulated_plan().source();
  const HookDeferral messages_after_the_lock;
  const NoFork whole;
  const std::lock_guard lock(mutex_);
  if (!emulated_) emulated_ = std::make_unique<EmulatedKernel>(EmulatedKernel::build(source));
  return *emulated_;
}

void JitKernel::launch(const LaunchArguments& arguments) {
  // A full launch queue blocks until the GPU has caught up; a host callback in it may need the GIL.
  const py::gil_scoped_release release;
  launch(arguments.tensors(), arguments.scalars(), arguments.stream());
}

void JitKernel::launch(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
                       CudaStream stream) {
  try {
    run(tensors, scalars, stream);
  } catch (const GridError&) {
    flat().run(tensors, scalars, stream);
  }
}

void JitKernel::run(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
                    CudaStream stream) {
  if (!tensors.empty() && tensors[0].device >= 0) {
    code().launch(tensors, scalars, stream);
  } else {
    emulate(tensors, scalars);
  }
}

void JitKernel::prepare_flat(int device) {
  JitKernel& other = flat();
  (void)other.code();
  if (device >= 0) other.prepare(device);
}

std::shared_ptr<const CompiledKernel> JitKernel::optimised() {
  code().wait_until_optimised();
  return code().compiled();
}

std::string JitKernel::entry(bool of_flat) {
  return (of_flat ? flat() : *this).optimised()->entry();
}

std::string JitKernel::request(bool of_flat) {
  const JitKernel& kernel = of_flat ? flat() : *this;
  return request_of(kernel.program_, kernel.schedule_, kernel.target_);
}

JitKernel& JitKernel::flat() {
  const NoFork whole;
  const std::lock_guard lock(mutex_);
  if (!flat_) {
    Schedule schedule = schedule_;
    schedule.flat_grid = true;
    flat_ = std::make_unique<JitKernel>(program_, to_json(schedule), std::string(target_.name));
  }
  return *flat_;
}

void JitKernel::emulate(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars) {
  ParameterBlock block;
  const LaunchPlan& plan = emulated_plan();
  const LaunchPlan::Bound bound = plan.bind(tensors, scalars, block);
  if (bound.grid.count() == 0 || bound.device == no_device) return;
  const std::span<const std::byte> bytes(block.bytes,
                                         static_cast<std::size_t>(plan.source().parameter_bytes));
  EmulationWatch watch;
  (void)emulated().run(
      bytes, bound.grid, tensors,
      {.watch = [&](int done, int all, double seconds) { watch.look(done, all, seconds); }});
}

}  // namespace flashcore::python
