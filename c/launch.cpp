// Launches of the C interface.
#include <cstring>

#include "c/arguments.h"
#include "c/guard.h"
#include "c/objects.h"
#include "dsl/error.h"

using namespace flashcore;

static_assert(FC_POINTER == int(ParameterField::Kind::pointer) &&
              FC_TENSOR_MAP == int(ParameterField::Kind::tensor_map) &&
              FC_TILE_COUNTER == int(ParameterField::Kind::tile_counter));

void fc_kernel::emulate(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars) {
  if (!program_)
    throw DeviceError(
        {.what = fmt::format("a launch of {} on arrays in CPU memory", source().name),
         .why = "the kernel is a bundle's, and text from a file is not run on the host",
         .fix = "arrays on a GPU, or fc_kernel_from_spec with the spec",
         .where = {}});
  const LaunchPlan& plan = this->plan();
  ParameterBlock block;
  const LaunchPlan::Bound bound = plan.bind(tensors, scalars, block);
  if (bound.grid.count() == 0) return;
  {
    const std::lock_guard lock(mutex_);
    if (!emulated_)
      emulated_ = std::make_unique<EmulatedKernel>(EmulatedKernel::build(plan.source()));
  }
  const std::span<const std::byte> bytes(block.bytes,
                                         static_cast<std::size_t>(plan.source().parameter_bytes));
  (void)emulated_->run(bytes, bound.grid, tensors);
}

extern "C" {

fc_status fc_kernel_launch(fc_kernel* kernel, const fc_tensor* tensors, size_t tensor_count,
                           const fc_scalar* scalars, size_t scalar_count, void* stream) {
  if (kernel == nullptr) return c::refuse_null(__func__, "kernel");
  if (tensors == nullptr && tensor_count > 0) return c::refuse_null(__func__, "tensors");
  if (scalars == nullptr && scalar_count > 0) return c::refuse_null(__func__, "scalars");
  return c::guarded([&] {
    const c::Arguments given({tensors, tensor_count}, {scalars, scalar_count});
    if (!given.tensors.empty() && given.tensors[0].device >= 0) {
      kernel->loaded().launch(given.tensors, given.scalars, static_cast<CudaStream>(stream));
    } else {
      kernel->emulate(given.tensors, given.scalars);
    }
  });
}

fc_status fc_kernel_bind(const fc_kernel* kernel, const fc_tensor* tensors, size_t tensor_count,
                         const fc_scalar* scalars, size_t scalar_count, void* parameters,
                         size_t room, fc_launch* launch) {
  if (kernel == nullptr) return c::refuse_null(__func__, "kernel");
  if (tensors == nullptr && tensor_count > 0) return c::refuse_null(__func__, "tensors");
  if (scalars == nullptr && scalar_count > 0) return c::refuse_null(__func__, "scalars");
  if (parameters == nullptr) return c::refuse_null(__func__, "parameters");
  if (launch == nullptr) return c::refuse_null(__func__, "launch");
  return c::guarded([&] {
    const LaunchPlan& plan = kernel->plan();
    const KernelSource& source = plan.source();
    const auto bytes = static_cast<std::size_t>(source.parameter_bytes);
    if (room < bytes)
      throw DeviceError(
          {.what = fmt::format("the parameters of {}", source.name),
           .why = fmt::format("they take {} bytes, and there is room for {}", bytes, room),
           .fix = "4096 bytes are enough for every kernel",
           .where = {}});
    if (!source.tensor_maps.empty() || source.persistent)
      throw DeviceError(
          {.what = fmt::format("binding {} for {}", source.name, kernel->target()),
           .why = "it has tensor maps, or blocks that take their tiles from a counter",
           .fix = "fc_kernel_launch, or a kernel for sm_80",
           .where = {}});
    const c::Arguments given({tensors, tensor_count}, {scalars, scalar_count});
    ParameterBlock block;
    const LaunchPlan::Bound bound = plan.bind(given.tensors, given.scalars, block);
    std::memcpy(parameters, block.bytes, bytes);
    *launch = {.entry = source.entry.c_str(),
               .grid = {bound.grid.x, bound.grid.y, bound.grid.z},
               .cluster = static_cast<std::uint32_t>(source.cluster),
               .threads = static_cast<std::uint32_t>(source.threads),
               .shared_bytes = static_cast<std::uint32_t>(source.shared_bytes),
               .parameter_bytes = static_cast<std::uint32_t>(bytes)};
  });
}

}  // extern "C"
