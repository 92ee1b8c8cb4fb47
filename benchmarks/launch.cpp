// What a launch costs the host in C++: FlashCore's checks and packing beside a bare cuLaunchKernel
// of the same kernel with parameters that are ready.
//
//   launch [repetitions]
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "codegen/generate.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/shared_library.h"
#include "runtime/kernel.h"
#include "templates/attention.h"

namespace {

using namespace flashcore;

constexpr int calls = 100;  // few enough that the launch queue never fills

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

int measure(int repetitions) {
  const Driver& driver = Driver::get();
  const int device = current_device(driver);
  const ContextGuard context(driver, device);
  const DeviceInfo info = device_info(driver, device);
  const Target& target = target_for_device(info.major, info.minor);
  const AttentionSpec spec{.head_dim = 64};
  const auto compiled = CompiledKernel::build(
      generate(attention_forward(spec), attention_schedule(spec, target), target),
      std::string(target.name));
  LoadedKernel kernel(compiled);
  kernel.prepare(device);

  DeviceMemory memory(8 * 64 * 64 * 2);
  const auto tensor = [&](int index) {
    return TensorView::dense(static_cast<std::byte*>(memory.data()) + index * 64 * 64 * 2,
                             DType::bf16, {1, 1, 64, 64}, device);
  };
  const std::array tensors{tensor(0), tensor(1), tensor(2), tensor(3)};
  const std::array elsewhere{tensor(4), tensor(5), tensor(6), tensor(7)};
  const std::array scalars{ScalarValue(0.125F)};

  ParameterBlock block;
  const LaunchPlan::Bound bound = kernel.plan().bind(tensors, scalars, block);
  kernel.plan().encode_maps(driver, tensors, /*zeros=*/0, block);  // no tensor is empty
  const GridSize grid = kernel.plan().resident(
      bound.grid,
      static_cast<std::uint32_t>(info.multiprocessors * compiled->source()->min_blocks));
  void* parameters[] = {block.bytes};
  CudaModule module = nullptr;
  CudaFunction function = nullptr;
  driver.check(driver.cuModuleLoadData(&module, compiled->cubin().data()), "cuModuleLoadData");
  driver.check(driver.cuModuleGetFunction(&function, module, compiled->source()->entry.c_str()),
               "cuModuleGetFunction");
  const auto shared = static_cast<unsigned>(compiled->source()->shared_bytes);
  const auto threads = static_cast<unsigned>(compiled->source()->threads);
  constexpr int max_dynamic_shared_bytes = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
  driver.check(driver.cuFuncSetAttribute(function, max_dynamic_shared_bytes,
                                         compiled->source()->shared_bytes),
               "cuFuncSetAttribute");
  const SharedLibrary libcuda = SharedLibrary::open("libcuda.so.1");
  const auto synchronize = reinterpret_cast<int (*)()>(libcuda.symbol("cuCtxSynchronize"));

  const auto microseconds = [&](auto&& action) {
    synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) action();
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    return time.count() / calls;
  };
  const auto bare = [&] {
    driver.check(driver.cuLaunchKernel(function, grid.x, grid.y, grid.z, threads, 1, 1, shared,
                                       nullptr, parameters, nullptr),
                 "cuLaunchKernel");
  };
  const auto ours = [&] { kernel.launch(tensors, scalars); };
  bool other = false;
  const auto moved = [&] { kernel.launch((other = !other) ? elsewhere : tensors, scalars); };
  const auto bind = [&] {
    kernel.plan().bind(tensors, scalars, block);
    kernel.plan().encode_maps(driver, tensors, /*zeros=*/0, block);
  };

  std::array<std::vector<double>, 4> times;
  for (int i = 0; i < repetitions + 2; ++i) {
    // The contenders take turns; the first two rounds are the warm-up.
    std::array<double, 4> now{};
    const auto measure_one = [&](int which) {
      now[which] = which == 0   ? microseconds(bare)
                   : which == 1 ? microseconds(ours)
                   : which == 2 ? microseconds(moved)
                                : microseconds(bind);
    };
    for (int which = 0; which < 4; ++which) measure_one(i % 2 == 0 ? which : 3 - which);
    if (i < 2) continue;
    for (int which = 0; which < 4; ++which) times[which].push_back(now[which]);
  }
  std::printf("%s on %s, microseconds a call, median of %d batches of %d\n",
              compiled->source()->name.c_str(), std::string(target.name).c_str(), repetitions,
              calls);
  constexpr std::array names{"cuLaunchKernel", "LoadedKernel::launch, same tensors",
                             "LoadedKernel::launch, other addresses",
                             "checking and packing other shapes"};
  for (int which = 0; which < 4; ++which)
    std::printf("  %-38s %6.3f\n", names[which], median(times[which]));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string why;
  if (!gpu_is_available(&why)) {
    std::fprintf(stderr, "this benchmark needs an NVIDIA GPU: %s\n", why.c_str());
    return 1;
  }
  try {
    return measure(argc > 1 ? std::atoi(argv[1]) : 500);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
