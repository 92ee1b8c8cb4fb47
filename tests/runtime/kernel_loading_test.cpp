// When code is loaded and unloaded, who shares it, and where it cannot run.

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "dsl/error.h"
#include "tests/runtime/support/expectations.h"
#include "tests/runtime/support/loaded_kernel.h"

namespace flashcore {
namespace {

using test::fake_cuda;
using test::LoadedKernelTest;
using test::message_of;
using testing::HasSubstr;

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
    captured->launch(rows(5, 0), factor, reinterpret_cast<CudaStream>(0x70));
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

TEST_F(LoadedKernelTest, BudgetHoldsForKeptCodeToo) {
  EXPECT_THROW(CompiledKernel::from_cubin(test::scale_kernel(), "sm_80",
                                          {.bytes = "", .resources = {.spill_load_bytes = 4}}),
               CompileError);
}

}  // namespace
}  // namespace flashcore
