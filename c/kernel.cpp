// Kernels of the C interface: made, compiled and described.
#include <array>

#include "c/guard.h"
#include "c/objects.h"
#include "codegen/generate.h"
#include "dsl/error.h"
#include "dsl/json.h"
#include "runtime/build.h"
#include "runtime/log.h"
#include "runtime/no_fork.h"
#include "templates/attention.h"

using namespace flashcore;

static_assert(FC_MAX_RANK == max_rank && FC_CPU == cpu_device);
static_assert(FC_F16 == int(DType::f16) && FC_I32 == int(DType::i32) && FC_I1 == int(DType::i1));

fc_kernel::fc_kernel(Program program, std::vector<Schedule> schedules, const Target& target)
    : program_(std::move(program)), schedules_(std::move(schedules)), target_(target.name) {
  std::exception_ptr first;
  for (const Schedule& schedule : schedules_) {
    try {
      use(std::make_shared<const KernelSource>(generate(*program_, schedule, target)));
      return;
    } catch (const ScheduleError&) {
      if (!first) first = std::current_exception();
    }
  }
  std::rethrow_exception(first);
}

fc_kernel::fc_kernel(std::shared_ptr<const CompiledKernel> stored)
    : target_(stored->architecture()), compiled_(std::move(stored)) {
  use(compiled_->source());
}

void fc_kernel::use(std::shared_ptr<const KernelSource> source) {
  plans_.push_back(std::make_unique<const LaunchPlan>(std::move(source)));
  plan_ = plans_.back().get();
}

const char* fc_kernel::text() {
  const std::lock_guard lock(mutex_);
  if (text_.empty()) text_ = source().text();
  return text_.c_str();
}

const CompiledKernel& fc_kernel::compiled() {
  const HookDeferral messages_after_the_lock;
  const NoFork whole;
  const std::lock_guard lock(mutex_);
  if (!compiled_) {
    compiled_ = build_first_fitting(*program_, schedules_, find_target(target_));
    use(compiled_->source());
    text_.clear();
  }
  return *compiled_;
}

LoadedKernel& fc_kernel::loaded() {
  (void)compiled();
  const NoFork whole;
  const std::lock_guard lock(mutex_);
  if (!loaded_) loaded_ = std::make_unique<LoadedKernel>(compiled_);
  return *loaded_;
}

extern "C" {

int fc_abi_version(void) { return FC_ABI_VERSION; }

const char* fc_version(void) { return FLASHCORE_VERSION; }

fc_status fc_kernel_from_spec(const char* spec, const char* target, const char* schedule,
                              fc_kernel** kernel) {
  if (spec == nullptr) return c::refuse_null(__func__, "spec");
  if (target == nullptr) return c::refuse_null(__func__, "target");
  if (kernel == nullptr) return c::refuse_null(__func__, "kernel");
  return c::guarded([&] {
    const AttentionSpec attention = attention_spec_from_json(spec);
    const Target& of = find_target(target);
    std::vector<Schedule> schedules;
    if (schedule != nullptr)
      schedules.push_back(schedule_from_json(schedule));
    else
      schedules = attention_schedules(attention, of);
    *kernel = new fc_kernel(attention_forward(attention), std::move(schedules), of);
  });
}

void fc_kernel_free(fc_kernel* kernel) { delete kernel; }

fc_status fc_kernel_compile(fc_kernel* kernel) {
  if (kernel == nullptr) return c::refuse_null(__func__, "kernel");
  return c::guarded([&] { (void)kernel->compiled(); });
}

fc_status fc_kernel_prepare(fc_kernel* kernel, int32_t device) {
  if (kernel == nullptr) return c::refuse_null(__func__, "kernel");
  return c::guarded([&] { kernel->loaded().prepare(device); });
}

const char* fc_kernel_name(const fc_kernel* kernel) { return kernel->source().name.c_str(); }

const char* fc_kernel_target(const fc_kernel* kernel) { return kernel->target().c_str(); }

const char* fc_kernel_source(fc_kernel* kernel) { return kernel->text(); }

fc_status fc_kernel_cubin(fc_kernel* kernel, const void** bytes, size_t* size) {
  if (kernel == nullptr) return c::refuse_null(__func__, "kernel");
  if (bytes == nullptr || size == nullptr) return c::refuse_null(__func__, "bytes or size");
  return c::guarded([&] {
    const std::string& cubin = kernel->compiled().cubin();
    *bytes = cubin.data();
    *size = cubin.size();
  });
}

size_t fc_kernel_tensor_count(const fc_kernel* kernel) { return kernel->source().tensors.size(); }

fc_status fc_kernel_tensor(const fc_kernel* kernel, size_t index, fc_tensor_info* info) {
  if (kernel == nullptr) return c::refuse_null(__func__, "kernel");
  if (info == nullptr) return c::refuse_null(__func__, "info");
  const auto& tensors = kernel->source().tensors;
  if (index >= tensors.size()) return c::refuse_index(__func__, index, tensors.size());
  const TensorArgument& tensor = tensors[index];
  *info = {};
  info->name = tensor.name.c_str();
  info->dtype = static_cast<int32_t>(tensor.dtype);
  info->rank = static_cast<int32_t>(tensor.dims.size());
  info->output = tensor.output;
  info->alignment = tensor.alignment;
  for (std::size_t i = 0; i < tensor.dims.size() && i < FC_MAX_RANK; ++i) {
    const Extent& extent = tensor.dims[i];
    info->size[i] = extent.is_static() ? extent.value : -1;
    info->extent[i] = extent.is_static() ? nullptr : extent.name.c_str();
  }
  return FC_OK;
}

size_t fc_kernel_scalar_count(const fc_kernel* kernel) { return kernel->source().scalars.size(); }

fc_status fc_kernel_scalar(const fc_kernel* kernel, size_t index, fc_scalar_info* info) {
  if (kernel == nullptr) return c::refuse_null(__func__, "kernel");
  if (info == nullptr) return c::refuse_null(__func__, "info");
  const auto& scalars = kernel->source().scalars;
  if (index >= scalars.size()) return c::refuse_index(__func__, index, scalars.size());
  *info = {.name = scalars[index].name.c_str(),
           .dtype = static_cast<int32_t>(scalars[index].dtype),
           .positive = scalars[index].positive};
  return FC_OK;
}

size_t fc_kernel_field_count(const fc_kernel* kernel) { return kernel->source().parameters.size(); }

fc_status fc_kernel_field(const fc_kernel* kernel, size_t index, fc_field* field) {
  if (kernel == nullptr) return c::refuse_null(__func__, "kernel");
  if (field == nullptr) return c::refuse_null(__func__, "field");
  const KernelSource& source = kernel->source();
  if (index >= source.parameters.size())
    return c::refuse_index(__func__, index, source.parameters.size());
  const ParameterField& own = source.parameters[index];
  *field = {.kind = static_cast<int32_t>(own.kind),
            .offset = own.offset,
            .index = own.index,
            .dim = own.dim,
            .name = ""};
  const auto at = static_cast<std::size_t>(own.index);
  switch (own.kind) {
    case ParameterField::Kind::pointer:
    case ParameterField::Kind::stride:
      field->name = source.tensors[at].name.c_str();
      break;
    case ParameterField::Kind::extent:
      field->name = source.extents[at].c_str();
      break;
    case ParameterField::Kind::scalar:
      field->name = source.scalars[at].name.c_str();
      break;
    case ParameterField::Kind::tensor_map:
      field->index = source.tensor_maps[at].tensor;
      field->name = source.tensors[static_cast<std::size_t>(field->index)].name.c_str();
      break;
    case ParameterField::Kind::tile_counter:
      break;
  }
  return FC_OK;
}

}  // extern "C"
