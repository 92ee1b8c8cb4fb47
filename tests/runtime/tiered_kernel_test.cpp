// Code that was compiled fast serves until the optimised is there.
#include "runtime/tiered_kernel.h"

#include <filesystem>

#include <gmock/gmock.h>

#include "dsl/error.h"
#include "runtime/cache/cache.h"
#include "runtime/compile_mode.h"
#include "runtime/log.h"
#include "tests/runtime/support/expectations.h"
#include "tests/runtime/support/loaded_kernel.h"

namespace flashcore {
namespace {

using test::fake_cuda;
using test::message_of;
using testing::HasSubstr;

class TieredKernelTest : public test::LoadedKernelTest {
 protected:
  void SetUp() override {
    FLASHCORE_REQUIRE_NVRTC();
    set_compile_mode(CompileMode::tiered);
  }
  void TearDown() override { set_compile_mode(std::nullopt); }

  // Of a text that no cache has.
  static KernelSource fresh(KernelSource source) {
    source.body += fmt::format("\n// {} {}", getpid(), ++made);
    return source;
  }

  inline static int made = 0;
};

TEST_F(TieredKernelTest, TheFastCodeServesAndTheOptimisedTakesItsPlace) {
  const KernelSource source = fresh(test::scale_kernel());
  const auto tiered = TieredKernel::build(source, "sm_80");
  const auto fast = tiered->compiled();
  EXPECT_FALSE(tiered->is_optimised());
  EXPECT_FALSE(fast->is_optimised());
  tiered->launch(rows(5, 0), factor);
  const int loads = fake_cuda().calls["cuModuleLoadData"];

  tiered->wait_until_optimised();
  EXPECT_TRUE(tiered->is_optimised());
  tiered->launch(rows(5, 0), factor);
  EXPECT_EQ(fake_cuda().calls["cuModuleLoadData"], loads + 1);
  EXPECT_EQ(fake_cuda().launches.size(), 2U);

  // It is the code of a process that compiles nothing fast, and it is what the cache keeps.
  const auto again = TieredKernel::build(source, "sm_80");
  EXPECT_TRUE(again->is_optimised());
  EXPECT_TRUE(again->compiled()->from_cache());
  EXPECT_EQ(again->compiled()->cubin(), tiered->compiled()->cubin());
  EXPECT_NE(again->compiled()->cubin(), fast->cubin());
  again->wait_until_optimised();
}

TEST_F(TieredKernelTest, NothingIsLoadedDuringACapture) {
  const KernelSource source = fresh(test::scale_kernel());
  const auto tiered = TieredKernel::build(source, "sm_80");
  tiered->prepare(0);
  while (CompiledKernel::find(source, "sm_80") == nullptr) usleep(10'000);
  usleep(100'000);
  fake_cuda().capture_status = 1;
  EXPECT_NO_THROW(tiered->launch(rows(5, 0), factor));
  EXPECT_FALSE(tiered->is_optimised());
  fake_cuda().capture_status = 0;
  tiered->launch(rows(5, 0), factor);
  EXPECT_TRUE(tiered->is_optimised());
  fake_cuda().capture_status = 1;  // the launch above has loaded it
  EXPECT_NO_THROW(tiered->launch(rows(5, 0), factor));
  EXPECT_EQ(fake_cuda().launches.size(), 3U);
}

TEST_F(TieredKernelTest, CodeThatDoesNotFitIsReplacedByASaferSchedules) {
  const KernelSource safer = fresh(test::scale_kernel());
  const auto tiered = TieredKernel::build(
      fresh(test::spilling_kernel()), "sm_80",
      {[]() -> KernelSource { throw ScheduleError({.what = "no", .why = "tile"}); },
       [] { return fresh(test::spilling_kernel()); }, [&] { return safer; }});
  EXPECT_FALSE(tiered->is_optimised());
  tiered->wait_until_optimised();
  EXPECT_EQ(tiered->compiled()->source()->body, safer.body);
}

TEST_F(TieredKernelTest, WhereNoneFitsTheFastCodeServesOn) {
  std::string warning;
  set_log_hook([&](LogLevel level, std::string_view text) {
    if (level == LogLevel::warn) warning = text;
  });
  const auto tiered = TieredKernel::build(fresh(test::spilling_kernel()), "sm_80");
  EXPECT_THAT(message_of<CompileError>([&] { tiered->wait_until_optimised(); }),
              HasSubstr("spills registers"));
  EXPECT_FALSE(tiered->is_optimised());
  tiered->launch(rows(5, 0), factor);
  tiered->launch(rows(5, 0), factor);
  set_log_hook({});
  EXPECT_THAT(warning, HasSubstr("stays as it was compiled fast"));
  EXPECT_EQ(fake_cuda().launches.size(), 2U);
}

TEST_F(TieredKernelTest, WarpsThatHandRegistersOnWaitForTheOptimisedCode) {
  KernelSource source = fresh(test::scale_kernel());
  source.split_registers = 640;
  EXPECT_TRUE(TieredKernel::build(source, "sm_90a")->is_optimised());
}

TEST_F(TieredKernelTest, AKernelMayEndBeforeItsCompile) {
  for (int i = 0; i < 4; ++i) (void)TieredKernel::build(fresh(test::scale_kernel()), "sm_80");
}

TEST_F(TieredKernelTest, OtherModesCompileOnce) {
  set_compile_mode(CompileMode::allow);
  EXPECT_TRUE(TieredKernel::build(fresh(test::scale_kernel()), "sm_80")->is_optimised());
  set_compile_mode(CompileMode::forbid);
  EXPECT_THROW((void)TieredKernel::build(fresh(test::scale_kernel()), "sm_80"), CacheMissError);
}

TEST(CompileModes, HaveNames) {
  for (const char* name : {"allow", "warn", "tiered", "eager", "forbid"})
    EXPECT_EQ(name_of(compile_mode_named(name)), name);
  EXPECT_EQ(message_of<CacheError>([] { (void)compile_mode_named("never"); }),
            "the compile mode \"never\"\n  why: there is no such mode\n"
            "  try: allow, warn, tiered, eager or forbid");
}

}  // namespace
}  // namespace flashcore
