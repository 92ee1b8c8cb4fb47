#include "dsl/error.h"
#include "runtime/cuda/device.h"
#include "runtime/kernel.h"
#include "runtime/log.h"
#include "runtime/no_fork.h"

namespace flashcore {
namespace {

// CUfunction_attribute: dynamic shared memory beyond 48 KiB has to be asked for.
constexpr int attribute_dynamic_shared_bytes = 8;
constexpr int shared_bytes_without_asking = 48 * 1024;

}  // namespace

LoadedKernel::LoadedKernel(std::shared_ptr<const CompiledKernel> compiled)
    : compiled_(std::move(compiled)), plan_(compiled_->source()) {}

LoadedKernel::~LoadedKernel() { delete head_.load(); }

const LoadedKernel::InContext* LoadedKernel::find(std::uint64_t context) const {
  const InContext* at = head_.load(std::memory_order_acquire);
  while (at != nullptr && at->context != context) at = at->next.get();
  return at;
}

void LoadedKernel::prepare(int device) {
  const Driver& driver = Driver::get();
  const ContextGuard context(driver, device);
  find_or_load(context.id(), device, nullptr);
}

void LoadedKernel::launch(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
                          CudaStream stream) {
  ParameterBlock block;
  const LaunchPlan::Bound bound = plan_.bind(tensors, scalars, block);
  if (bound.grid.count() == 0) return;
  // The steady state: the thread's context is the tensors' and has the code.
  if (const Driver* driver = driver_.load(std::memory_order_acquire)) {
    unsigned long long context = 0;
    if (driver->cuCtxGetId(nullptr, &context) == 0) {
      const InContext* loaded = find(context);
      if (loaded != nullptr && loaded->device == bound.device) {
        run(*driver, *loaded, bound, tensors, block, stream);
        return;
      }
    }
  }
  launch_in_other_context(bound, tensors, block, stream);
}

void LoadedKernel::launch_in_other_context(const LaunchPlan::Bound& bound,
                                           std::span<const TensorView> tensors,
                                           ParameterBlock& block, CudaStream stream) {
  if (bound.device < 0) {
    throw DeviceError(
        {.what = fmt::format("{}: the tensors lie in CPU memory", plan_.source().name),
         .why = fmt::format("this kernel was compiled for {}", compiled_->architecture()),
         .fix = "move them to a GPU, or run the kernel in the emulator",
         .where = {}});
  }
  const Driver& driver = Driver::get();
  const ContextGuard context(driver, bound.device);
  const InContext& loaded = find_or_load(context.id(), bound.device, stream);
  run(driver, loaded, bound, tensors, block, stream);
}

void LoadedKernel::run(const Driver& driver, const InContext& loaded,
                       const LaunchPlan::Bound& bound, std::span<const TensorView> tensors,
                       ParameterBlock& block, CudaStream stream) const {
  plan_.encode_maps(driver, tensors, loaded.zeros, block);
  if (plan_.draws_tiles())
    plan_.set_tile_counter(loaded.counters.counter_for(driver, stream), block);
  void* parameters[] = {block.bytes};
  const KernelSource& source = plan_.source();
  const GridSize grid = plan_.resident(bound.grid, loaded.blocks);
  const int result = driver.cuLaunchKernel(
      loaded.function, grid.x, grid.y, grid.z, static_cast<unsigned>(source.threads), 1, 1,
      static_cast<unsigned>(source.shared_bytes), stream, parameters, nullptr);
  if (result != 0) [[unlikely]] {
    driver.fail(result,
                fmt::format("{} cannot be launched with {} blocks of {} threads and {} bytes of "
                            "shared memory",
                            source.name, grid.count(), source.threads, source.shared_bytes));
  }
}

// Loading is not allowed while a stream captures, and the driver would say so only in a code that
// ends the capture.
void LoadedKernel::refuse_capture(CudaStream stream) const {
  int status = 0;
  const int result = Driver::get().cuStreamIsCapturing(stream, &status);
  if (result == 0 && status == 0) return;
  throw DeviceError({.what = fmt::format("{} is not loaded and the stream is being captured",
                                         plan_.source().name),
                     .why = "loading code is not allowed during the capture of a graph",
                     .fix = "call prepare(), or launch it once, before the capture begins",
                     .where = {}});
}

const LoadedKernel::InContext& LoadedKernel::find_or_load(std::uint64_t context, int device,
                                                          CudaStream stream) {
  if (const InContext* known = find(context)) return *known;
  const LogDeferral messages_after_the_lock;
  const NoFork whole;
  const std::lock_guard lock(mutex_);
  if (const InContext* known = find(context)) return *known;
  refuse_capture(stream);
  auto loaded = std::make_unique<InContext>();
  loaded->context = context;
  loaded->device = device;
  load(*loaded);
  loaded->next.reset(head_.load());
  head_.store(loaded.release(), std::memory_order_release);
  driver_.store(&Driver::get(), std::memory_order_release);
  return *head_.load();
}

void LoadedKernel::load(InContext& into) const {
  const Driver& driver = Driver::get();
  const KernelSource& source = plan_.source();
  const DeviceInfo info = device_info(driver, into.device);
  const std::string where =
      fmt::format("GPU {} ({}, {})", into.device, info.name, info.architecture());
  const auto refuse = [&](std::string why, std::string fix) {
    throw DeviceError({.what = fmt::format("{} cannot run on {}", source.name, where),
                       .why = std::move(why),
                       .fix = std::move(fix),
                       .where = {}});
  };
  if (!runs_on(compiled_->architecture(), info)) {
    refuse(fmt::format("it was compiled for {}", compiled_->architecture()),
           fmt::format("compile it for {} as well", info.architecture()));
  }
  if (source.shared_bytes > info.shared_per_block) {
    refuse(fmt::format("it needs {} bytes of shared memory a block, the GPU allows {}",
                       source.shared_bytes, info.shared_per_block),
           "a schedule with smaller tiles or fewer stages");
  }
  const std::string what =
      fmt::format("{} cannot be loaded on {} by a driver for CUDA {}.{}", source.name, where,
                  driver.version() / 1000, driver.version() % 1000 / 10);
  CudaModule module = nullptr;
  driver.check(driver.cuModuleLoadData(&module, compiled_->cubin().data()), what);
  driver.check(driver.cuModuleGetFunction(&into.function, module, source.name.c_str()), what);
  if (source.shared_bytes > shared_bytes_without_asking) {
    driver.check(driver.cuFuncSetAttribute(into.function, attribute_dynamic_shared_bytes,
                                           source.shared_bytes),
                 what);
  }
  into.blocks = static_cast<std::uint32_t>(info.multiprocessors * source.min_blocks);
  if (!source.tensor_maps.empty()) {
    // Here, because a capture would not allow it at a launch; kept like the code itself.
    const std::array<std::byte, TensorMaps::tensor_alignment> zeros{};
    driver.check(driver.cuMemAlloc_v2(&into.zeros, zeros.size()), what);
    driver.check(driver.cuMemcpyHtoD_v2(into.zeros, zeros.data(), zeros.size()), what);
  }
  log_message(LogLevel::debug, "loaded {} on {}", source.name, where);
}

}  // namespace flashcore
