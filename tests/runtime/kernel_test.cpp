#include "runtime/kernel.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include <gmock/gmock.h>

#include "dsl/error.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/memory.h"
#include "tests/runtime/support/expectations.h"
#include "tests/runtime/support/fake_cuda.h"
#include "tests/runtime/support/kernels.h"
#include "tests/runtime/support/timing.h"

namespace flashcore {
namespace {

using test::fake_cuda;
using test::message_of;
using testing::HasSubstr;

class LoadedKernelTest : public testing::Test {
 protected:
  LoadedKernelTest() {
    fake_cuda().clear_contexts();
    const auto keep = fake_cuda().clear_contexts;
    const auto push = fake_cuda().push_new_context;
    fake_cuda() = {};
    fake_cuda().clear_contexts = keep;
    fake_cuda().push_new_context = push;
    fake_cuda().parameter_bytes = 40;
  }

  // Of machine code that no other test has: kernels of equal code share what is loaded.
  static std::shared_ptr<const CompiledKernel> compiled(KernelSource source,
                                                        const char* architecture = "sm_80",
                                                        const std::string& variant = "") {
    const char* const test = testing::UnitTest::GetInstance()->current_test_info()->name();
    return CompiledKernel::from_cubin(std::move(source), architecture,
                                      {.bytes = fmt::format("\x7f{} {} {}", "ELF", test, variant),
                                       .resources = {.registers = 32}});
  }
  static std::unique_ptr<LoadedKernel> prepared(const std::string& variant) {
    auto loaded = std::make_unique<LoadedKernel>(compiled(test::scale_kernel(), "sm_80", variant));
    loaded->prepare(0);
    return loaded;
  }
  static std::array<TensorView, 2> rows(std::int64_t count, int device) {
    return {TensorView::dense(reinterpret_cast<void*>(0x1000), DType::f32, {count, 64}, device),
            TensorView::dense(reinterpret_cast<void*>(0x2000), DType::f32, {count, 64}, device)};
  }

  const std::array<ScalarValue, 1> factor{2.F};
  LoadedKernel kernel{compiled(test::scale_kernel())};
};

TEST_F(LoadedKernelTest, Launches) {
  const auto stream = reinterpret_cast<CudaStream>(0x77);
  kernel.launch(rows(5, 0), factor, stream);
  ASSERT_EQ(fake_cuda().launches.size(), 1U);
  const test::FakeLaunch& launch = fake_cuda().launches[0];
  EXPECT_EQ(launch.function, "scale");
  EXPECT_EQ(launch.blocks, 5U);
  EXPECT_EQ(launch.threads, 64U);
  EXPECT_EQ(launch.shared_bytes, 0U);
  EXPECT_EQ(launch.stream, stream);
  struct {
    std::uint64_t x = 0x1000, y = 0x2000;
    std::int64_t x_stride = 64, y_stride = 64;
    std::int32_t rows = 5;
    float factor = 2;
  } expected;
  EXPECT_EQ(std::memcmp(launch.parameters.data(), &expected, sizeof expected), 0);
}

TEST_F(LoadedKernelTest, LoadsOnceForEachContext) {
  fake_cuda().push_new_context(0);
  kernel.launch(rows(5, 0), factor);
  kernel.launch(rows(5, 0), factor);
  EXPECT_EQ(fake_cuda().calls["cuModuleLoadData"], 1);
  fake_cuda().push_new_context(0);
  kernel.launch(rows(5, 0), factor);
  EXPECT_EQ(fake_cuda().calls["cuModuleLoadData"], 2);
  EXPECT_EQ(fake_cuda().calls["cuDevicePrimaryCtxRetain"], 0);  // the caller's contexts did
}

TEST_F(LoadedKernelTest, ThreadsLoadOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { kernel.prepare(0); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fake_cuda().calls["cuModuleLoadData"], 1);
}

TEST_F(LoadedKernelTest, ThreadsOnTwoDevicesLaunchTogether) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, device = i % 2] {
      fake_cuda().push_new_context(device);
      for (int launch = 0; launch < 50; ++launch) kernel.launch(rows(device + 1, device), factor);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fake_cuda().launches.size(), 400U);
  EXPECT_EQ(fake_cuda().calls["cuModuleLoadData"], 8);
  for (const test::FakeLaunch& launch : fake_cuda().launches) {
    EXPECT_EQ(launch.blocks, static_cast<unsigned>(launch.device) + 1);
  }
}

TEST_F(LoadedKernelTest, EqualKernelsLoadOnce) {
  for (int i = 0; i < 100; ++i) {
    prepared("equal")->launch(rows(5, 0), factor);  // one after the other
  }
  std::vector<std::unique_ptr<LoadedKernel>> together;
  for (int i = 0; i < 100; ++i) together.push_back(prepared("equal"));
  EXPECT_EQ(fake_cuda().calls["cuModuleLoadData"], 1);
  EXPECT_EQ(fake_cuda().launches.size(), 100U);

  fake_cuda().capture_status = 1;
  EXPECT_NO_THROW(LoadedKernel(compiled(test::scale_kernel(), "sm_80", "equal"))
                      .launch(rows(5, 0), factor));  // loaded already
}

TEST_F(LoadedKernelTest, OneCodeUnderOtherPromisesIsLoadedApart) {
  KernelSource other = test::scale_kernel();
  other.min_blocks = 2;
  kernel.prepare(0);
  LoadedKernel(compiled(other)).prepare(0);
  EXPECT_EQ(fake_cuda().calls["cuModuleLoadData"], 2);
}

TEST_F(LoadedKernelTest, UnusedCodeIsUnloadedBeyondABound) {
  fake_cuda().push_new_context(0);
  constexpr auto bound = static_cast<int>(LoadedCode::max_unused);
  kernel.prepare(0);
  LoadedKernel equal(compiled(test::scale_kernel()));
  prepared("0");
  prepared("1");
  prepared("0");  // now the later one
  for (int i = 2; i < bound; ++i) prepared(std::to_string(i));
  EXPECT_EQ(fake_cuda().calls["cuModuleUnload"], 0);
  prepared("one more")->launch(rows(5, 0), factor);  // still in use while it is loaded
  EXPECT_EQ(fake_cuda().calls["cuModuleUnload"], 0);
  prepared("two more");
  EXPECT_EQ(fake_cuda().calls["cuModuleUnload"], 1);
  const int loads = fake_cuda().calls["cuModuleLoadData"];
  prepared("0");
  EXPECT_EQ(fake_cuda().calls["cuModuleLoadData"], loads);
  prepared("1");
  EXPECT_EQ(fake_cuda().calls["cuModuleLoadData"], loads + 1);

  for (int i = 0; i < 3 * bound; ++i) prepared(fmt::format("later {}", i));
  const int all = fake_cuda().calls["cuModuleLoadData"];
  equal.launch(rows(5, 0), factor);
  EXPECT_EQ(fake_cuda().calls["cuModuleLoadData"], all);
}

// A graph keeps the function, and may be run when the kernel is long gone.
TEST_F(LoadedKernelTest, CapturedCodeStays) {
  fake_cuda().push_new_context(0);
  {
    const auto captured = prepared("captured");
    fake_cuda().capture_status = 1;
    captured->launch(rows(5, 0), factor);
    fake_cuda().capture_status = 0;
  }
  for (std::size_t i = 0; i < 3 * LoadedCode::max_unused; ++i) prepared(std::to_string(i));
  const int loads = fake_cuda().calls["cuModuleLoadData"];
  prepared("captured");
  EXPECT_EQ(fake_cuda().calls["cuModuleLoadData"], loads);
}

// What was loaded in a context went with it; its handles mean nothing any more.
TEST_F(LoadedKernelTest, OtherContextsAreLeftAlone) {
  fake_cuda().push_new_context(0);
  for (std::size_t i = 0; i < LoadedCode::max_unused; ++i) prepared(std::to_string(i));
  const std::set<void*> before = fake_cuda().modules;
  fake_cuda().push_new_context(0);
  for (std::size_t i = 0; i < 3 * LoadedCode::max_unused; ++i) prepared(fmt::format("later {}", i));
  EXPECT_GT(fake_cuda().calls["cuModuleUnload"], 0);
  EXPECT_TRUE(std::includes(fake_cuda().modules.begin(), fake_cuda().modules.end(), before.begin(),
                            before.end()));
}

TEST_F(LoadedKernelTest, ThreadsShareAndUnloadTogether) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      fake_cuda().push_new_context(0);
      for (int i = 0; i < 200; ++i) {
        LoadedKernel one(
            compiled(test::scale_kernel(), "sm_80", std::to_string((i * 7 + t) % 150)));
        one.launch(rows(5, 0), factor);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fake_cuda().launches.size(), 1600U);
  EXPECT_LE(fake_cuda().calls["cuModuleUnload"], fake_cuda().calls["cuModuleLoadData"]);
}

TEST_F(LoadedKernelTest, WhatCannotBeUsedIsUnloadedAtOnce) {
  fake_cuda().failures["cuModuleGetFunction"] = 500;
  EXPECT_THROW(kernel.prepare(0), DeviceError);
  EXPECT_EQ(fake_cuda().calls["cuModuleUnload"], 1);
}

TEST_F(LoadedKernelTest, StreamsWaitForAnother) {
  const auto stream = [](std::uintptr_t handle) { return reinterpret_cast<CudaStream>(handle); };
  fake_cuda().waiting_streams.clear();
  order_streams(Driver::get(), stream(7), stream(7));
  EXPECT_THAT(fake_cuda().waiting_streams, testing::IsEmpty());
  order_streams(Driver::get(), stream(7), stream(9));
  EXPECT_THAT(fake_cuda().waiting_streams, testing::ElementsAre(stream(9)));
}

TEST_F(LoadedKernelTest, AnAddressTellsItsDevice) {
  fake_cuda().device_of_pointers = 1;
  EXPECT_EQ(device_of(Driver::get(), 0x1000), 1);
  fake_cuda().failures["cuPointerGetAttribute"] = 1;
  EXPECT_EQ(device_of(Driver::get(), 0x1000), current_device(Driver::get()));
}

TEST_F(LoadedKernelTest, SwitchesToTheDeviceOfTheTensors) {
  fake_cuda().push_new_context(0);
  kernel.launch(rows(5, 1), factor);
  kernel.launch(rows(5, 0), factor);
  kernel.launch(rows(5, 1), factor);
  std::vector<int> devices;
  for (const test::FakeLaunch& launch : fake_cuda().launches) devices.push_back(launch.device);
  EXPECT_THAT(devices, testing::ElementsAre(1, 0, 1));
  EXPECT_EQ(current_device(Driver::get()), 0);  // and back
  EXPECT_EQ(fake_cuda().calls["cuModuleLoadData"], 2);
}

TEST_F(LoadedKernelTest, NothingToDoTouchesNothing) {
  kernel.launch(rows(0, 0), factor);
  EXPECT_TRUE(fake_cuda().launches.empty());
  EXPECT_EQ(fake_cuda().calls["cuModuleLoadData"], 0);
}

TEST_F(LoadedKernelTest, CaptureNeedsALoadedKernel) {
  fake_cuda().capture_status = 1;
  EXPECT_EQ(message_of<Error>([&] { kernel.launch(rows(5, 0), factor); }),
            "scale is not loaded and the stream is being captured\n"
            "  why: loading code is not allowed during the capture of a graph\n"
            "  try: call prepare(), or launch it once, before the capture begins");
  fake_cuda().capture_status = 0;
  fake_cuda().failures["cuStreamIsCapturing"] =
      906;  // another stream captures, ours is the legacy one
  EXPECT_THAT(message_of<Error>([&] { kernel.launch(rows(5, 0), factor); }),
              HasSubstr("the stream is being captured"));

  fake_cuda().failures.clear();
  kernel.prepare(0);
  fake_cuda().capture_status = 1;
  EXPECT_NO_THROW(kernel.launch(rows(5, 0), factor));
}

// A counter serves one launch at a time: launches of one stream follow each other, those of a graph
// may not.
TEST_F(LoadedKernelTest, EveryStreamDrawsFromACounterOfItsOwn) {
  LoadedKernel drawing(compiled(test::drawing_kernel()));
  fake_cuda().parameter_bytes = 48;
  const auto counter_of = [&](std::uintptr_t stream) {
    drawing.launch(rows(5, 0), factor, reinterpret_cast<CudaStream>(stream));
    std::int32_t counter = -1;
    std::memcpy(&counter, fake_cuda().launches.back().parameters.data() + 40, sizeof counter);
    return counter;
  };
  EXPECT_EQ(counter_of(0x70), 1);
  EXPECT_EQ(counter_of(0x80), 2);
  EXPECT_EQ(counter_of(0x70), 1);
  fake_cuda().capture_status = 1;
  EXPECT_EQ(counter_of(0x70), 0);
  EXPECT_EQ(counter_of(0x90), 0);
  fake_cuda().capture_status = 0;
  EXPECT_EQ(counter_of(0x80), 2);
  {
    LoadedKernel equal(compiled(test::drawing_kernel()));  // the counters are the code's
    equal.launch(rows(5, 0), factor, reinterpret_cast<CudaStream>(0xa0));
  }
  fake_cuda().streams_before = 1000;  // 0x80 was destroyed, with a launch that still runs
  EXPECT_EQ(counter_of(0x80), 4);
  fake_cuda().failures["cuStreamGetId"] = 1;
  EXPECT_EQ(counter_of(0x80), 0);
}

TEST_F(LoadedKernelTest, StreamsBeyondTheLastCounterGetNone) {
  StreamCounters counters;
  for (std::uintptr_t stream = 1; stream <= StreamCounters::counters; ++stream)
    EXPECT_EQ(counters.counter_for(Driver::get(), reinterpret_cast<CudaStream>(stream)), stream);
  EXPECT_EQ(counters.counter_for(Driver::get(), reinterpret_cast<CudaStream>(0x1000)), 0);
  EXPECT_EQ(counters.counter_for(Driver::get(), reinterpret_cast<CudaStream>(7)), 7);
}

TEST_F(LoadedKernelTest, AsksForLargeSharedMemory) {
  LoadedKernel large(compiled(test::attention_like_kernel()));
  large.prepare(0);
  EXPECT_EQ(fake_cuda().function_attributes, (std::map<int, int>{{8, 65536}}));
  EXPECT_EQ(large.compiled().resources().dynamic_shared_bytes, 65536);
}

TEST_F(LoadedKernelTest, RefusesTooMuchSharedMemory) {
  KernelSource source = test::attention_like_kernel();
  source.shared_bytes = 149504;
  LoadedKernel large(compiled(source));
  EXPECT_EQ(message_of<DeviceError>([&] { large.prepare(test::ampere_with_little_shared_memory); }),
            "attention_like cannot run on GPU 3 (Fake GPU, sm_80)\n"
            "  why: it needs 149504 bytes of shared memory a block, the GPU allows 101376\n"
            "  try: a schedule with smaller tiles or fewer stages");
}

TEST_F(LoadedKernelTest, RefusesAnotherArchitecture) {
  LoadedKernel hopper(compiled(test::scale_kernel(), "sm_90a"));
  EXPECT_EQ(message_of<DeviceError>([&] { hopper.launch(rows(5, 0), factor); }),
            "scale cannot run on GPU 0 (Fake GPU, sm_80)\n"
            "  why: it was compiled for sm_90a\n"
            "  try: compile it for sm_80 as well");
}

TEST_F(LoadedKernelTest, RefusesCpuMemoryAndUnknownDevices) {
  EXPECT_THAT(message_of<Error>([&] { kernel.launch(rows(5, cpu_device), factor); }),
              HasSubstr("run the kernel in the emulator"));
  kernel.launch(rows(5, 0), factor);
  EXPECT_THROW(kernel.launch(rows(5, cpu_device), factor), DeviceError);  // loaded or not
  fake_cuda().clear_contexts();
  EXPECT_THAT(message_of<DeviceError>([&] { kernel.prepare(7); }), HasSubstr("GPU 7"));
}

TEST_F(LoadedKernelTest, TellsWhatTheDriverSays) {
  kernel.prepare(0);
  fake_cuda().failures["cuLaunchKernel"] = 701;
  const std::string launch = message_of<Error>([&] { kernel.launch(rows(5, 0), factor); });
  EXPECT_THAT(launch,
              HasSubstr("scale cannot be launched with 5 blocks of 64 threads and 0 bytes"));
  EXPECT_THAT(launch, HasSubstr("CUDA_ERROR_FAKE (701): as the test asked"));
  EXPECT_THAT(launch, HasSubstr("fewer threads, registers or bytes of shared memory"));

  fake_cuda().failures["cuModuleLoadData"] = 209;
  LoadedKernel other(compiled(test::scale_kernel(), "sm_80", "other"));
  EXPECT_THAT(
      message_of<DeviceError>([&] { other.prepare(0); }),
      testing::AllOf(HasSubstr("cannot be loaded on GPU 0 (Fake GPU, sm_80) by a driver for "
                               "CUDA 13.0"),
                     HasSubstr("with an NVRTC of the driver's CUDA version or older")));
  fake_cuda().failures.clear();
  EXPECT_NO_THROW(other.prepare(0));  // a failure is not remembered
}

TEST_F(LoadedKernelTest, BudgetHoldsForKeptCodeToo) {
  EXPECT_THROW(CompiledKernel::from_cubin(test::scale_kernel(), "sm_80",
                                          {.bytes = "", .resources = {.spill_load_bytes = 4}}),
               CompileError);
}

TEST_F(LoadedKernelTest, IsFast) {
  fake_cuda().push_new_context(0);
  LoadedKernel attention(compiled(test::attention_like_kernel()));
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<void*>(address); };
  const std::array<TensorView, 4> tensors{
      TensorView::dense(at(0x10000), DType::bf16, {2, 8, 100, 64}, 0),
      TensorView::dense(at(0x20000), DType::bf16, {2, 8, 300, 64}, 0),
      TensorView::dense(at(0x30000), DType::bf16, {2, 8, 100, 64}, 0),
      TensorView::dense(at(0x40000), DType::f32, {2, 8, 100}, 0)};
  attention.prepare(0);
  fake_cuda().recording = false;
  const double time = test::fastest_nanoseconds([&] { attention.launch(tensors, factor); });
  fmt::print("launch beside the driver's own work: {:.0f} ns\n", time);
  EXPECT_LT(time, test::limit_in_release(1000));
}

class MappedKernelTest : public LoadedKernelTest {
 protected:
  MappedKernelTest() { fake_cuda().parameter_bytes = 448; }
  static std::array<TensorView, 3> tensors(std::int64_t queries, std::int64_t keys,
                                           std::uintptr_t address = 0x10000) {
    const auto at = [&](std::uintptr_t offset) {
      return reinterpret_cast<void*>(address + offset);
    };
    return {TensorView::dense(at(0), DType::bf16, {2, 8, queries, 128}, test::hopper),
            TensorView::dense(at(0x10000), DType::bf16, {2, 8, keys, 128}, test::hopper),
            TensorView::dense(at(0x20000), DType::bf16, {2, 8, queries, 128}, test::hopper)};
  }
  static test::FakeTensorMap map(int index) {
    test::FakeTensorMap map;
    std::memcpy(&map, fake_cuda().launches.back().parameters.data() + 128 * index, sizeof map);
    return map;
  }
  static int encoded() { return std::exchange(fake_cuda().calls["cuTensorMapEncodeTiled"], 0); }

  LoadedKernel mapped{compiled(test::mapped_kernel(), "sm_90a")};
};

TEST_F(MappedKernelTest, TellsTheDriverOfTensors) {
  auto views = tensors(100, 300);
  views[1].strides = {8 * 300 * 128, 128, 8 * 128, 1};  // k stored as [batch, seq, heads, dim]
  mapped.launch(views, {});
  const test::FakeTensorMap k = map(1);
  EXPECT_EQ(k.address, views[1].data);
  EXPECT_EQ(k.rank, 4);
  EXPECT_EQ(k.type, 9);  // CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
  EXPECT_THAT(k.extents, testing::ElementsAre(128, 300, 8, 2, 0));
  EXPECT_THAT(k.strides, testing::ElementsAre(2 * 8 * 128, 2 * 128, 2 * 8 * 300 * 128, 0));
  EXPECT_THAT(k.box, testing::ElementsAre(64, 96, 1, 1, 0));
  EXPECT_EQ(k.interleave, 0);
  EXPECT_EQ(k.swizzle, 3);    // 128 bytes
  EXPECT_EQ(k.promotion, 3);  // 256 bytes
  EXPECT_EQ(k.fill, 0);       // zeros
}

TEST_F(MappedKernelTest, NarrowBoxesHaveNarrowSwizzles) {
  KernelSource source = test::mapped_kernel();
  source.tensors[0].dtype = DType::f16;
  source.tensor_maps[0].width = 16;
  source.tensor_maps[1].width = 32;
  LoadedKernel narrow(compiled(source, "sm_90a"));
  auto views = tensors(100, 300);
  views[0].dtype = DType::f16;
  narrow.launch(views, {});
  EXPECT_EQ(map(0).type, 6);  // CU_TENSOR_MAP_DATA_TYPE_FLOAT16
  EXPECT_EQ(map(0).swizzle, 1);
  EXPECT_EQ(map(1).swizzle, 2);
  EXPECT_EQ(map(1).box[0], 32);
}

TEST_F(MappedKernelTest, AThreadKeepsTheLastMaps) {
  const auto in_a_new_thread = [](const auto& work) { std::thread(work).join(); };
  (void)encoded();
  in_a_new_thread([&] {
    mapped.launch(tensors(90, 310), {});
    EXPECT_EQ(encoded(), 3);
    for (int i = 0; i < 10; ++i) {
      mapped.launch(tensors(90, 310), {});
      mapped.launch(tensors(90, 311), {});
      mapped.launch(tensors(90, 312), {});
    }
    EXPECT_EQ(encoded(), 2);  // of k
    EXPECT_EQ(map(1).extents[1], 312U);
    mapped.launch(tensors(90, 311), {});
    EXPECT_EQ(map(1).extents[1], 311U);
    for (std::uintptr_t other = 1; other < 100; ++other)
      mapped.launch(tensors(90, 311, other << 20), {});  // more than are kept
    mapped.launch(tensors(90, 311), {});
    EXPECT_EQ(map(0).address, reinterpret_cast<void*>(0x10000));
    EXPECT_GT(encoded(), 250);
  });
  in_a_new_thread([&] { mapped.launch(tensors(90, 311), {}); });
  EXPECT_EQ(encoded(), 3);
}

TEST_F(MappedKernelTest, AnEmptyTensorIsOneOfZeros) {
  auto views = tensors(100, 0);
  views[1].data = nullptr;
  mapped.launch(views, {});
  const test::FakeTensorMap k = map(1);
  ASSERT_NE(k.address, nullptr);
  EXPECT_EQ(*static_cast<std::uint16_t*>(k.address), 0);
  EXPECT_THAT(k.extents, testing::ElementsAre(1, 1, 1, 1, 0));
  EXPECT_THAT(k.strides, testing::ElementsAre(16, 16, 16, 0));
  EXPECT_EQ(fake_cuda().calls["cuMemAlloc_v2"], 1);
  mapped.launch(tensors(0, 300), {});
  EXPECT_EQ(fake_cuda().launches.size(), 1U);
}

TEST_F(MappedKernelTest, TellsWhyThereIsNoMap) {
  // Of addresses that no other test has: a thread keeps its maps.
  auto views = tensors(100, 320, 0x7770000);
  views[1].strides[1] = 0;
  fake_cuda().failures["cuTensorMapEncodeTiled"] = 1;
  for (int i = 0; i < 2; ++i) {  // what failed is not kept
    EXPECT_EQ(message_of<Error>([&] { mapped.launch(views, {}); }),
              "mapped: the driver makes no tensor map of q\n"
              "  why: CUDA_ERROR_FAKE (1): as the test asked; its shape is [2, 8, 100, 128], its "
              "strides are [102400, 12800, 128, 1] elements\n"
              "  try: a contiguous copy, or a schedule with copy = cp_async");
  }
  std::swap(views[0].strides, views[1].strides);
  std::swap(views[0].shape[2], views[1].shape[2]);
  views[2].shape[2] = 320;
  EXPECT_THAT(message_of<Error>([&] { mapped.launch(views, {}); }),
              HasSubstr("[327680, 0, 128, 1] elements; dimension 1 has stride 0\n"));
}

TEST_F(MappedKernelTest, PersistentBlocksFillTheGpu) {
  KernelSource source = test::mapped_kernel();
  source.persistent = true;
  source.min_blocks = 2;
  LoadedKernel persistent(compiled(source, "sm_90a"));
  persistent.launch(tensors(100, 300), {});
  EXPECT_EQ(fake_cuda().launches.back().blocks, 16U);
  persistent.launch(tensors(12800, 300), {});  // 1600 tiles, 108 multiprocessors
  EXPECT_EQ(fake_cuda().launches.back().blocks, 216U);
  EXPECT_EQ(fake_cuda().launches.back().rows_of_blocks, 1U);
}

TEST_F(MappedKernelTest, IsFast) {
  fake_cuda().push_new_context(test::hopper);
  mapped.prepare(test::hopper);
  fake_cuda().recording = false;
  const auto one = tensors(100, 300), other = tensors(90, 200);
  const double same = test::fastest_nanoseconds([&] { mapped.launch(one, {}); });
  const double taking_turns = test::fastest_nanoseconds([&] {
    mapped.launch(one, {});
    mapped.launch(other, {});
  });
  fmt::print("launch with three kept tensor maps: {:.0f} ns, taking turns {:.0f} ns\n", same,
             taking_turns / 2);
  EXPECT_LT(same, test::limit_in_release(1000));
  EXPECT_LT(taking_turns, test::limit_in_release(2000));
}

TEST_F(LoadedKernelTest, DeviceMemoryGoesThereAndBack) {
  DeviceMemory memory(8);
  const std::array<std::int32_t, 2> sent{3, 4};
  std::array<std::int32_t, 2> received{};
  memory.upload(std::as_bytes(std::span(sent)));
  memory.download(std::as_writable_bytes(std::span(received)));
  EXPECT_EQ(received, sent);
  std::array<std::byte, 9> large{};
  EXPECT_THAT(message_of<DeviceError>([&] { memory.upload(large); }),
              HasSubstr("upload of 9 bytes\n  why: the allocation has 8"));
}

TEST(RunsOn, FollowsTheRulesOfBinaryCompatibility) {
  const DeviceInfo ada{.major = 8, .minor = 9}, hopper{.major = 9, .minor = 0};
  EXPECT_TRUE(runs_on("sm_80", ada));
  EXPECT_TRUE(runs_on("sm_89", ada));
  EXPECT_FALSE(runs_on("sm_89", DeviceInfo{.major = 8, .minor = 6}));
  EXPECT_FALSE(runs_on("sm_80", hopper));
  EXPECT_TRUE(runs_on("sm_90a", hopper));
  EXPECT_FALSE(runs_on("sm_100a", DeviceInfo{.major = 10, .minor = 3}));
  EXPECT_TRUE(runs_on("sm_100f", DeviceInfo{.major = 10, .minor = 3}));
  EXPECT_TRUE(runs_on("sm_120", DeviceInfo{.major = 12, .minor = 1}));
  EXPECT_FALSE(runs_on("fastest", hopper));
}

}  // namespace
}  // namespace flashcore
