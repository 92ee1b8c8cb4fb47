#include "python/src/jit_kernel.h"

#include <chrono>
#include <cmath>

#include <fmt/ranges.h>

#include "codegen/explain.h"
#include "dsl/error.h"
#include "dsl/ir/print.h"
#include "dsl/json.h"
#include "dsl/shortened.h"
#include "python/src/array_checks.h"
#include "python/src/arrays.h"
#include "python/src/emulation_watch.h"
#include "runtime/launch_errors.h"
#include "runtime/log.h"
#include "runtime/no_fork.h"
#include "runtime/overlap.h"

namespace flashcore::python {
namespace {

namespace py = pybind11;

// The values of a launch, on the stack of the call.
template <class Value, int capacity>
class Inline {
 public:
  Inline() = default;
  void push(const Value& value) { new (&slots_[count_++]) Value(value); }
  [[nodiscard]] std::span<const Value> span() const {
    return {reinterpret_cast<const Value*>(slots_), static_cast<std::size_t>(count_)};
  }

 private:
  static_assert(std::is_trivially_destructible_v<Value>);
  struct alignas(Value) Slot {
    std::byte bytes[sizeof(Value)];
  };
  Slot slots_[capacity];
  int count_ = 0;
};

void check_count(std::size_t given, std::size_t expected, const char* what) {
  if (given == expected) return;
  throw SpecError({.what = fmt::format("a launch with {} {}", given, what),
                   .why = fmt::format("the program has {}", expected),
                   .fix = {},
                   .where = {}});
}

ScalarValue scalar_of(py::handle number, const ScalarArgument& expected) {
  const bool real = expected.dtype == DType::f32;
  try {
    if (!real) return number.cast<std::int32_t>();
    const auto value = number.cast<double>();
    // An infinite number may be meant; one that only becomes infinite is not.
    const auto single = static_cast<float>(value);
    if (std::isfinite(single) || !std::isfinite(value)) return single;
  } catch (const py::cast_error&) {  // no number at all
  }
  throw SpecError({.what = fmt::format("{} = {}", expected.name, described(number)),
                   .why = real ? "it is no number that fits 32 bits"
                               : "it is no whole number that fits 32 bits",
                   .fix = fmt::format("{}={}", expected.name, real ? "0.125, say" : "1, say"),
                   .where = {}});
}

}  // namespace

JitKernel::JitKernel(const Program& program, const std::string& schedule, const std::string& target)
    : program_(program), schedule_(schedule_from_json(schedule)), target_(find_target(target)) {
  const auto start = std::chrono::steady_clock::now();
  source_ = std::make_shared<const KernelSource>(generate(program_, schedule_, target_));
  generate_ms_ =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  if (source_->tensors.size() > max_tensors || source_->scalars.size() > max_scalars) {
    throw SpecError({.what = source_->name,
                     .why = fmt::format("it has {} tensors and {} scalars", source_->tensors.size(),
                                        source_->scalars.size()),
                     .fix = fmt::format("from Python a kernel takes at most {} and {}", max_tensors,
                                        max_scalars),
                     .where = {}});
  }
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

const CompiledKernel& JitKernel::compiled() const {
  const LogDeferral messages_after_the_lock;
  const NoFork whole;
  const std::lock_guard lock(mutex_);
  if (!compiled_) compiled_ = CompiledKernel::build(*source_, std::string(target_.name));
  return *compiled_;
}

LoadedKernel& JitKernel::loaded() {
  if (LoadedKernel* ready = loaded_.load(std::memory_order_acquire)) return *ready;
  (void)compiled();
  const NoFork whole;
  const std::lock_guard lock(mutex_);
  if (!owned_) owned_ = std::make_unique<LoadedKernel>(compiled_);
  loaded_.store(owned_.get(), std::memory_order_release);
  return *owned_;
}

const EmulatedKernel& JitKernel::emulated() {
  const LogDeferral messages_after_the_lock;
  const NoFork whole;
  const std::lock_guard lock(mutex_);
  if (!emulated_) emulated_ = std::make_unique<EmulatedKernel>(EmulatedKernel::build(*source_));
  return *emulated_;
}

void JitKernel::launch(const py::tuple& arrays, const py::tuple& scalars, py::handle stream) {
  check_count(arrays.size(), source_->tensors.size(), "arrays");
  check_count(scalars.size(), source_->scalars.size(), "scalars");
  ArrayReader reader(stream);
  Inline<TensorView, max_tensors> views;
  for (std::size_t i = 0; i < source_->tensors.size(); ++i) {
    const TensorArgument& tensor = source_->tensors[i];
    views.push(reader.read(PyTuple_GET_ITEM(arrays.ptr(), static_cast<Py_ssize_t>(i)),
                           tensor.name.c_str(), static_cast<int>(i), tensor.output));
  }
  Inline<ScalarValue, max_scalars> numbers;
  for (std::size_t i = 0; i < source_->scalars.size(); ++i) {
    numbers.push(scalar_of(PyTuple_GET_ITEM(scalars.ptr(), static_cast<Py_ssize_t>(i)),
                           source_->scalars[i]));
  }
  check_outputs_apart(*source_, views.span());
  const bool on_gpu = !views.span().empty() && views.span()[0].device >= 0;
  if (!on_gpu) reader.check_stream();
  const CudaStream queue = on_gpu ? reader.stream() : nullptr;
  // A full launch queue blocks until the GPU has caught up; a host callback in it may need the GIL.
  const py::gil_scoped_release release;
  try {
    run(views.span(), numbers.span(), queue);
  } catch (const GridError&) {
    flat().run(views.span(), numbers.span(), queue);
  }
}

void JitKernel::run(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
                    CudaStream stream) {
  if (!tensors.empty() && tensors[0].device >= 0) {
    loaded().launch(tensors, scalars, stream);
  } else {
    emulate(tensors, scalars);
  }
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
  const LaunchPlan plan(source_);
  ParameterBlock block;
  const LaunchPlan::Bound bound = plan.bind(tensors, scalars, block);
  if (bound.grid.count() == 0 || bound.device == no_device) return;
  const std::span<const std::byte> bytes(block.bytes,
                                         static_cast<std::size_t>(source_->parameter_bytes));
  EmulationWatch watch;
  (void)emulated().run(
      bytes, bound.grid, tensors,
      {.watch = [&](int done, int all, double seconds) { watch.look(done, all, seconds); }});
}

}  // namespace flashcore::python
