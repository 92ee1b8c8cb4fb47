#include "runtime/compiler_report.h"

#include <gmock/gmock.h>

namespace flashcore {
namespace {

constexpr std::string_view two_kernels =
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Function properties for helper\n"
    "ptxas         .     880 bytes stack frame, 1680 bytes spill stores, 1708 bytes spill loads\n"
    "ptxas info    : Used 32 registers, used 1 barriers, 880 bytes cumulative stack size, 368 "
    "bytes "
    "cmem[0]\n"
    "ptxas info    : Function properties for attention_forward\n"
    "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 168 registers, used 9 barriers, 1024 bytes smem, 552 bytes cmem[0]\n"
    "ptxas info    : Compile time = 68.221 ms\n";

TEST(CompilerReport, TakesTheKernelAskedFor) {
  const auto forward = read_compiler_report(two_kernels, "attention_forward");
  ASSERT_TRUE(forward);
  EXPECT_EQ(*forward, (Resources{.registers = 168,
                                 .stack_bytes = 0,
                                 .spill_store_bytes = 0,
                                 .spill_load_bytes = 0,
                                 .static_shared_bytes = 1024,
                                 .barriers = 9,
                                 .serialised = {}}));
  const auto helper = read_compiler_report(two_kernels, "helper");
  ASSERT_TRUE(helper);
  EXPECT_EQ(helper->registers, 32);
  EXPECT_EQ(helper->stack_bytes, 880);
  EXPECT_EQ(helper->spill_store_bytes, 1680);
  EXPECT_EQ(helper->spill_load_bytes, 1708);
}

TEST(CompilerReport, AbsentIsNotZero) {
  EXPECT_FALSE(read_compiler_report("", "attention_forward"));
  EXPECT_FALSE(read_compiler_report(two_kernels, "attention"));
  // The heading without the line of registers: a log cut short.
  EXPECT_FALSE(read_compiler_report(two_kernels.substr(0, 400), "attention_forward"));
}

TEST(CompilerReport, CollectsSerialisedProducts) {
  const std::string log =
      "ptxas info    : (C7517) warpgroup.wait is injected in around line 62\n"
      "ptxas info    : (C7517) warpgroup.wait is injected in around line 69\n"
      "ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are "
      "serialized\n"
      "ptxas info    : (C7999x) not one\n" +
      std::string(two_kernels);
  EXPECT_THAT(read_compiler_report(log, "attention_forward")->serialised,
              testing::ElementsAre(testing::HasSubstr("line 62"), testing::HasSubstr("(C7511)")));
}

}  // namespace
}  // namespace flashcore
