#include "dsl/error.h"
#include "runtime/cuda/device.h"
#include "runtime/kernel.h"
#include "runtime/last_launch.h"
#include "runtime/profiler_range.h"

namespace flashcore {

bool is_captured(const Driver& driver, CudaStream stream) {
  int status = 0;
  return driver.cuStreamIsCapturing(stream, &status) != 0 || status != 0;
}

LoadedKernel::LoadedKernel(std::shared_ptr<const CompiledKernel> compiled)
    : compiled_(std::move(compiled)),
      plan_(compiled_->source()),
      code_(LoadedCode::shared_by(*compiled_)) {}

void LoadedKernel::prepare(int device) {
  const Driver& driver = Driver::get();
  const ContextGuard context(driver, device);
  code_->find_or_load(*compiled_, context.id(), device, nullptr);
}

void LoadedKernel::launch(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
                          CudaStream stream) {
  // The steady state: the thread's context is the tensors' and has the code.
  if (const Driver* driver = code_->driver(); driver != nullptr && !tensors.empty()) {
    unsigned long long context = 0;
    if (driver->cuCtxGetId(nullptr, &context) == 0) {
      const LoadedCode::InContext* loaded = code_->find(context);
      if (loaded != nullptr && loaded->device == tensors[0].device) {
        LastLaunch& last = LastLaunch::of(plan_);
        const LaunchPlan::Bound& bound = last.bind(plan_, *driver, tensors, scalars, loaded->zeros);
        if (bound.grid.count() > 0) run(*driver, *loaded, bound, last.block, stream);
        return;
      }
    }
  }
  launch_in_other_context(tensors, scalars, stream);
}

// On a block of its own: loading code tells hooks, and these may launch kernels.
void LoadedKernel::launch_in_other_context(std::span<const TensorView> tensors,
                                           std::span<const ScalarValue> scalars,
                                           CudaStream stream) {
  ParameterBlock block;
  const LaunchPlan::Bound bound = plan_.bind(tensors, scalars, block);
  if (bound.grid.count() == 0) return;
  if (bound.device < 0) {
    throw DeviceError(
        {.what = fmt::format("{}: the tensors lie in CPU memory", plan_.source().name),
         .why = fmt::format("this kernel was compiled for {}", compiled_->architecture()),
         .fix = "move them to a GPU, or run the kernel in the emulator",
         .where = {}});
  }
  const Driver& driver = Driver::get();
  const ContextGuard context(driver, bound.device);
  const LoadedCode::InContext& loaded =
      code_->find_or_load(*compiled_, context.id(), bound.device, stream);
  plan_.encode_maps(driver, tensors, loaded.zeros, block);
  run(driver, loaded, bound, block, stream);
}

void LoadedKernel::run(const Driver& driver, const LoadedCode::InContext& loaded,
                       const LaunchPlan::Bound& bound, ParameterBlock& block,
                       CudaStream stream) const {
  const ProfilerRange range(plan_.source().name.c_str());
  // Asked at every launch: a graph that holds the function is known by nothing else. The default stream
  // cannot be captured.
  const bool captured = stream != nullptr && is_captured(driver, stream);
  if (captured) loaded.captured.store(true, std::memory_order_relaxed);
  if (plan_.claims_tiles()) {
    const TileCounters& counters = loaded.counters;
    plan_.set_tile_counter(
        captured ? counters.of_captured_launch(driver, stream) : counters.of_stream(driver, stream),
        block);
  }
  void* parameters[] = {block.bytes};
  const KernelSource& source = plan_.source();
  const GridSize grid = plan_.resident(bound.grid, loaded.blocks);
  const auto threads = static_cast<unsigned>(source.threads);
  int result = 0;
  if (source.waits_for_kernels && driver.can_start_early(captured)) {
    const LaunchAttribute early{.id = LaunchAttribute::programmatic_stream_serialization,
                                .value = {.allowed = 1}};
    const LaunchConfiguration configuration{
        .grid = {grid.x, grid.y, grid.z},
        .block = {threads, 1, 1},
        .shared_bytes = loaded.spread.shared_bytes(grid.count()),
        .stream = stream,
        .attributes = &early,
        .attribute_count = 1};
    result = driver.cuLaunchKernelEx(&configuration, loaded.function, parameters, nullptr);
  } else {
    result = driver.cuLaunchKernel(loaded.function, grid.x, grid.y, grid.z, threads, 1, 1,
                                   static_cast<unsigned>(source.shared_bytes), stream, parameters,
                                   nullptr);
  }
  if (result != 0) [[unlikely]] {
    driver.fail(result,
                fmt::format("{} cannot be launched with {} blocks of {} threads and {} bytes of "
                            "shared memory",
                            source.name, grid.count(), source.threads, source.shared_bytes));
  }
}

}  // namespace flashcore
