// Kernels of the C interface whose launches choose their schedule.
#include <utility>

#include "c/arguments.h"
#include "c/guard.h"
#include "c/objects.h"
#include "dsl/error.h"
#include "dsl/json.h"
#include "runtime/bundled_kernels.h"
#include "runtime/cuda/device.h"
#include "runtime/no_fork.h"
#include "templates/attention.h"

using namespace flashcore;

namespace {

/// That of the GPU here if it is of the target, else of the one that was measured first.
std::optional<CostModel> cost_model_for(const Target& target) {
  GpuFacts gpu;
  if (gpu_is_available()) {
    const Driver& driver = Driver::get();
    const DeviceInfo info = device_info(driver, current_device(driver));
    if (target_for_device(info.major, info.minor).name == target.name)
      gpu = {.name = info.name, .multiprocessors = info.multiprocessors, .l2_bytes = info.l2_bytes};
  }
  return CostModel::find(target.name, gpu);
}

LengthRange range_of(const fc_range& range, const char* name) {
  if (range.least < 1 || range.most < range.least)
    throw SpecError({.what = fmt::format("the range {} to {} of {}", range.least, range.most, name),
                     .why = "sizes are 1 or more, and a range ends with its largest",
                     .fix = "from 1 on, the least number first",
                     .where = {}});
  return {range.least, range.most};
}

Dispatcher make_dispatcher(const Program& program, const Target& target,
                           const std::shared_ptr<AttentionChooser>& chooser,
                           const std::shared_ptr<const Bundle>& bundle) {
  if (bundle == nullptr) return {program, target, chooser};
  return {program, chooser, builds_from_bundle(bundle, target)};
}

}  // namespace

fc_dispatcher::fc_dispatcher(const AttentionSpec& spec, const Target& target,
                             std::shared_ptr<const Bundle> bundle)
    : program_(attention_forward(spec)),
      target_(target),
      bundle_(std::move(bundle)),
      chooser_(std::make_shared<AttentionChooser>(spec, target, std::string_view(),
                                                  cost_model_for(target))),
      dispatcher_(make_dispatcher(program_, target, chooser_, bundle_)) {}

void fc_dispatcher::prepare(const AttentionProblems& problems, int device) {
  for (const std::size_t list : chooser_->choose_all(problems))
    dispatcher_.prepare(chooser_->schedules(list), device);
  for (const std::size_t alternative : chooser_->all_alternatives(problems)) {
    try {
      dispatcher_.prepare_alternative(alternative, device);
    } catch (const CacheMissError&) {
      if (bundle_ == nullptr) throw;  // a kernel of the bundle serves
    }
  }
}

fc_kernel& fc_dispatcher::kernel_for(std::span<const TensorView> tensors) {
  const std::size_t list = dispatcher_.list_for(tensors);
  const NoFork whole;
  const std::lock_guard lock(mutex_);
  std::unique_ptr<fc_kernel>& kernel = kernels_[list];
  if (kernel == nullptr) kernel = make_kernel(chooser_->schedules(list));
  return *kernel;
}

std::unique_ptr<fc_kernel> fc_dispatcher::make_kernel(std::vector<Schedule> schedules) const {
  if (bundle_ == nullptr)
    return std::make_unique<fc_kernel>(program_, std::move(schedules), target_);
  std::exception_ptr first;
  for (const Schedule& schedule : schedules) {
    try {
      return std::make_unique<fc_kernel>(
          read_bundled_kernel(*bundle_, program_, schedule, target_));
    } catch (const CacheMissError&) {
      if (!first) first = std::current_exception();
    }
  }
  std::rethrow_exception(first);
}

extern "C" {

fc_status fc_dispatcher_from_spec(const char* spec, const char* target,
                                  fc_dispatcher** dispatcher) {
  if (spec == nullptr) return c::refuse_null(__func__, "spec");
  if (target == nullptr) return c::refuse_null(__func__, "target");
  if (dispatcher == nullptr) return c::refuse_null(__func__, "dispatcher");
  return c::guarded([&] {
    *dispatcher = new fc_dispatcher(attention_spec_from_json(spec), find_target(target), nullptr);
  });
}

fc_status fc_dispatcher_from_bundle(const fc_bundle* bundle, const char* spec, const char* target,
                                    fc_dispatcher** dispatcher) {
  if (bundle == nullptr) return c::refuse_null(__func__, "bundle");
  if (spec == nullptr) return c::refuse_null(__func__, "spec");
  if (target == nullptr) return c::refuse_null(__func__, "target");
  if (dispatcher == nullptr) return c::refuse_null(__func__, "dispatcher");
  return c::guarded([&] {
    *dispatcher =
        new fc_dispatcher(attention_spec_from_json(spec), find_target(target), bundle->open);
  });
}

void fc_dispatcher_free(fc_dispatcher* dispatcher) { delete dispatcher; }

fc_status fc_dispatcher_prepare(fc_dispatcher* dispatcher, const fc_problems* problems,
                                int32_t device) {
  if (dispatcher == nullptr) return c::refuse_null(__func__, "dispatcher");
  if (problems == nullptr) return c::refuse_null(__func__, "problems");
  return c::guarded([&] {
    dispatcher->prepare({.batch = range_of(problems->batch, "batch"),
                         .heads = range_of(problems->heads, "heads"),
                         .q_len = range_of(problems->q_len, "q_len"),
                         .kv_len = range_of(problems->kv_len, "kv_len")},
                        device);
  });
}

fc_status fc_dispatcher_launch(fc_dispatcher* dispatcher, const fc_tensor* tensors,
                               size_t tensor_count, const fc_scalar* scalars, size_t scalar_count,
                               void* stream) {
  if (dispatcher == nullptr) return c::refuse_null(__func__, "dispatcher");
  if (tensors == nullptr && tensor_count > 0) return c::refuse_null(__func__, "tensors");
  if (scalars == nullptr && scalar_count > 0) return c::refuse_null(__func__, "scalars");
  return c::guarded([&] {
    const c::Arguments given({tensors, tensor_count}, {scalars, scalar_count});
    if (!given.tensors.empty() && given.tensors[0].device >= 0)
      dispatcher->launch(given.tensors, given.scalars, static_cast<CudaStream>(stream));
    else
      dispatcher->kernel_for(given.tensors).emulate(given.tensors, given.scalars);
  });
}

fc_status fc_dispatcher_kernel(fc_dispatcher* dispatcher, const fc_tensor* tensors,
                               size_t tensor_count, fc_kernel** kernel) {
  if (dispatcher == nullptr) return c::refuse_null(__func__, "dispatcher");
  if (tensors == nullptr && tensor_count > 0) return c::refuse_null(__func__, "tensors");
  if (kernel == nullptr) return c::refuse_null(__func__, "kernel");
  return c::guarded([&] {
    const c::Arguments given({tensors, tensor_count}, {});
    *kernel = &dispatcher->kernel_for(given.tensors);
  });
}

}  // extern "C"
