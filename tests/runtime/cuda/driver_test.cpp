#include "runtime/cuda/driver.h"

#include <filesystem>
#include <utility>

#include <gmock/gmock.h>

#include "dsl/error.h"
#include "tests/runtime/support/expectations.h"
#include "tests/runtime/support/fake_cuda.h"
#include "tests/runtime/support/kernels.h"
#include "tests/runtime/support/processes.h"

namespace flashcore {
namespace {

using test::fake_cuda;
using test::message_of;
using testing::AllOf;
using testing::HasSubstr;

class DriverTest : public testing::Test {
 protected:
  DriverTest() { fake_cuda().failures.clear(); }
  static std::string refusal(const std::string& library) {
    return message_of<DeviceError>([&] { Driver driver(library); });
  }
};

TEST_F(DriverTest, Missing) {
  EXPECT_THAT(
      refusal("/nowhere/libcuda.so.1"),
      AllOf(HasSubstr("kernels cannot run on a GPU here"), HasSubstr("/nowhere/libcuda.so.1"),
            HasSubstr("docker run --gpus all"), HasSubstr("the emulator")));
}

TEST_F(DriverTest, AnotherLibrary) {
  EXPECT_THAT(refusal("libm.so.6"), HasSubstr("libm.so.6 has no function cuInit"));
}

TEST_F(DriverTest, NoDevice) {
  fake_cuda().failures["cuInit"] = 100;
  EXPECT_THAT(refusal(test::fake_cuda_file()),
              AllOf(HasSubstr("the driver does not start: CUDA_ERROR_FAKE (100)"),
                    HasSubstr("CUDA_VISIBLE_DEVICES"), HasSubstr("work without a GPU")));
  fake_cuda().failures.clear();
  const auto gpus = std::exchange(fake_cuda().gpus, {});
  EXPECT_THAT(refusal(test::fake_cuda_file()), HasSubstr("the driver sees no GPU"));
  fake_cuda().gpus = gpus;
}

TEST_F(DriverTest, TooOld) {
  fake_cuda().version = 11080;
  EXPECT_THAT(refusal(test::fake_cuda_file()),
              HasSubstr("the driver supports CUDA 11.8, 12.0 is needed"));
  fake_cuda().version = 13000;
}

TEST_F(DriverTest, GraphsOfOlderDriversHoldNoLaunchesThatStartEarly) {
  for (const int version : {12000, 12020, 12030, 13000}) {
    fake_cuda().version = version;
    const Driver driver(test::fake_cuda_file());
    EXPECT_TRUE(driver.can_start_early(/*captured=*/false)) << version;
    EXPECT_EQ(driver.can_start_early(/*captured=*/true), version >= 12030) << version;
  }
}

TEST_F(DriverTest, AvailabilityIsAQuestionNotAnError) {
  const auto asked = [](const std::string& library) {
    return test::run_worker({"gpu"}, {{"FLASHCORE_LIBCUDA", library}}).output;
  };
  EXPECT_EQ(asked(test::fake_cuda_file()), "available\n");
  EXPECT_THAT(asked("/nowhere/libcuda.so.1"), HasSubstr("kernels cannot run on a GPU here"));
}

TEST_F(DriverTest, StubOfTheToolkit) {
  const char* const stub = "/usr/local/cuda/lib64/stubs/libcuda.so";
  if (!std::filesystem::exists(stub)) GTEST_SKIP() << "no toolkit";
  EXPECT_THAT(refusal(stub), HasSubstr("stub"));
}

}  // namespace
}  // namespace flashcore
