// Launches of a module on the fake driver: the order of its kernels, and what each is told.
#include "runtime/launchable_module.h"

#include <cstring>

#include <gmock/gmock.h>

#include "codegen/generate.h"
#include "dsl/error.h"
#include "tests/runtime/support/expectations.h"
#include "tests/runtime/support/loaded_kernel.h"
#include "tests/support/split_sum.h"

namespace flashcore {
namespace {

using test::fake_cuda;
using test::message_of;
using testing::HasSubstr;

class LaunchableModuleTest : public test::LoadedKernelTest {
 protected:
  LaunchableModuleTest() { fake_cuda().parameter_bytes = 32; }

  static std::vector<std::shared_ptr<const CompiledKernel>> kernels_of(const Module& module) {
    std::vector<std::shared_ptr<const CompiledKernel>> kernels;
    for (std::size_t i = 0; i < module.kernels().size(); ++i)
      kernels.push_back(
          compiled(generate(module.kernels()[i], test::sum_rows_schedule(i), find_target("sm_80")),
                   "sm_80", std::to_string(i)));
    return kernels;
  }
  static std::array<TensorView, 2> arrays(std::int64_t rows, std::int64_t cols) {
    return {TensorView::dense(reinterpret_cast<void*>(0x10000), DType::f32, {rows, cols}, 0),
            TensorView::dense(reinterpret_cast<void*>(0x20000), DType::f32, {rows}, 0)};
  }
  static const void* pointer(const test::FakeLaunch& launch, std::size_t which) {
    const void* value = nullptr;
    std::memcpy(&value, launch.parameters.data() + which * sizeof value, sizeof value);
    return value;
  }

  void launch_for(const char* target, int device, std::int64_t rows) {
    const Module sums = test::sum_rows();
    std::vector<std::shared_ptr<const CompiledKernel>> kernels;
    for (std::size_t i = 0; i < 2; ++i)
      kernels.push_back(
          compiled(generate(sums.kernels()[i], test::sum_rows_schedule(i), find_target(target)),
                   target, std::string(target) + std::to_string(i)));
    std::array<TensorView, 2> views = arrays(rows, 100);
    for (TensorView& view : views) view.device = device;
    GivenWorkspace large(memory(), 1 << 24);
    LaunchableModule(sums, kernels).launch(views, {}, nullptr, large);
  }

  LaunchableModule module{test::sum_rows(), kernels_of(test::sum_rows())};
  static void* memory() { return reinterpret_cast<void*>(0x30000); }
  GivenWorkspace workspace{memory(), 1 << 20};
};

TEST_F(LaunchableModuleTest, LaunchesItsKernelsInOrderOnTheStream) {
  const auto stream = reinterpret_cast<CudaStream>(0x77);
  module.launch(arrays(5, 100), {}, stream, workspace);
  ASSERT_EQ(fake_cuda().launches.size(), 2U);
  const test::FakeLaunch &first = fake_cuda().launches[0], &second = fake_cuda().launches[1];
  EXPECT_EQ(first.function, "sum_of_split");
  EXPECT_EQ(first.blocks, 2U);  // (100 + 63) // 64 splits of one tile of rows
  EXPECT_EQ(second.function, "sum_of_sums");
  EXPECT_EQ(second.blocks, 1U);
  EXPECT_EQ(first.stream, stream);
  EXPECT_EQ(second.stream, stream);
  EXPECT_EQ(pointer(first, 0), reinterpret_cast<void*>(0x10000));
  EXPECT_EQ(pointer(first, 1), memory());
  EXPECT_EQ(pointer(second, 0), memory());
  EXPECT_EQ(pointer(second, 1), reinterpret_cast<void*>(0x20000));
}

TEST_F(LaunchableModuleTest, KernelsMayStartBesideTheEndOfEarlierOnes) {
  for (const char* target : {"sm_80", "sm_90"}) {
    const bool is_early = target == std::string("sm_90");
    for (const int rows : {5, 2400}) {
      fake_cuda().launches.clear();
      launch_for(target, is_early ? test::hopper : test::ampere, rows);
      ASSERT_EQ(fake_cuda().launches.size(), 2U);
      for (const auto& launch : fake_cuda().launches)
        EXPECT_EQ(launch.early, is_early) << target << ", " << rows << " rows";
    }
  }
}

// Each of 108 multiprocessors has 228 KiB, of which CUDA reserves 1 KiB in each block. With a KiB less for each
// block, one block more than the share would fit.
TEST_F(LaunchableModuleTest, EarlyBlocksHaveRoomForTheirShareOnAMultiprocessor) {
  for (const auto& [rows, room] : {std::pair{5, 116736U}, {2400, 77824U}, {12800, 25600U}}) {
    fake_cuda().launches.clear();
    launch_for("sm_90", test::hopper, rows);
    const auto& last = fake_cuda().launches.at(1);
    const unsigned share = (last.blocks + 107) / 108;
    EXPECT_EQ(last.shared_bytes, room) << last.blocks << " blocks";
    EXPECT_LE(share * (room + 1024), 233472U);
    EXPECT_GT((share + 1) * (room + 1024), 233472U);
    EXPECT_LE((share + 1) * room, 233472U);
  }
  fake_cuda().launches.clear();
  launch_for("sm_80", test::ampere, 5);
  EXPECT_LT(fake_cuda().launches.at(1).shared_bytes, 4096U);
}

TEST_F(LaunchableModuleTest, LaunchesNothingWhereTheWorkspaceIsTooSmall) {
  EXPECT_EQ(module.bind(arrays(5, 100), {}).workspace_bytes, 256U);
  GivenWorkspace small(memory(), 255), elsewhere(reinterpret_cast<void*>(0x30010), 1 << 20);
  EXPECT_THAT(message_of<DeviceError>([&] { module.launch(arrays(5, 100), {}, nullptr, small); }),
              HasSubstr("it has 255 bytes at 0x30000, and the launch wants 256"));
  EXPECT_THROW(module.launch(arrays(5, 100), {}, nullptr, elsewhere), DeviceError);
  EXPECT_TRUE(fake_cuda().launches.empty());
}

// Which is what the copy engine wants of a tensor: 3 rows of 24 elements here.
TEST_F(LaunchableModuleTest, RowsOfWorkspacesBeginAtWholeChunks) {
  EXPECT_EQ(module.bind(arrays(21, 150), {}).workspace_bytes, 512U);
}

TEST_F(LaunchableModuleTest, LaunchesNothingWhereAnArgumentOfALaterKernelIsWrong) {
  auto wrong = arrays(5, 100);
  wrong[1].shape[0] = 4;
  EXPECT_THAT(message_of<SpecError>([&] { module.launch(wrong, {}, nullptr, workspace); }),
              HasSubstr("sum_rows"));
  EXPECT_TRUE(fake_cuda().launches.empty());
}

TEST_F(LaunchableModuleTest, PreparesEveryKernel) {
  module.prepare(0);
  EXPECT_EQ(fake_cuda().modules.size(), 2U);
  module.launch(arrays(5, 100), {}, nullptr, workspace);
  EXPECT_EQ(fake_cuda().modules.size(), 2U);
}

TEST_F(LaunchableModuleTest, WantsAListOfSchedulesForEachKernel) {
  const std::vector<std::vector<Schedule>> one(1);
  EXPECT_THAT(message_of<ScheduleError>(
                  [&] { (void)build_first_fitting(test::sum_rows(), one, find_target("sm_80")); }),
              HasSubstr("it has 2 kernels, and 1 lists of schedules are given"));
}

}  // namespace
}  // namespace flashcore
