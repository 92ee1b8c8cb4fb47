// Blocks that add to the same elements, atomically and in order; kernels that start beside the end
// of another. Each run is that of a generated module, with a line of a kernel left out to see that
// it is missed.
#include <numeric>
#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "dsl/error.h"
#include "runtime/emulator/emulated_module.h"
#include "runtime/reference/evaluate_module.h"
#include "tests/support/column_sums.h"

namespace flashcore {
namespace {

using testing::HasSubstr;

struct Change {
  std::string kernel, from, to;
};

/// Fails where a change changes nothing.
EmulatedModule emulated(const Module& module, const char* target, const Change& change = {},
                        bool last_tiles_first = false) {
  std::vector<std::shared_ptr<const KernelSource>> sources;
  for (const Program& kernel : module.kernels()) {
    Schedule schedule = test::column_sums_schedule(kernel);
    schedule.last_tiles_first = last_tiles_first;
    KernelSource source = generate(kernel, schedule, find_target(target));
    if (kernel.name() == change.kernel) {
      const std::string body = std::regex_replace(source.body, std::regex(change.from), change.to);
      EXPECT_NE(body, source.body) << source.body;
      source.body = body;
    }
    sources.push_back(std::make_shared<const KernelSource>(std::move(source)));
  }
  return EmulatedModule::build(module, sources);
}

struct Arrays {
  Arrays(std::int64_t rows, std::int64_t cols)
      : x(static_cast<std::size_t>(rows * cols)), y(static_cast<std::size_t>(cols), NAN) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1.F / static_cast<float>(1 + i % 997);
    views = {TensorView::dense(x.data(), DType::f32, {rows, cols}, cpu_device),
             TensorView::dense(y.data(), DType::f32, {cols}, cpu_device)};
  }
  std::vector<float> x, y;
  std::vector<TensorView> views;
};

void expect_sums(const Module& module, const EmulatedModule& kernels, std::int64_t rows,
                 std::int64_t cols) {
  Arrays arrays(rows, cols);
  (void)kernels.run(arrays.views, {});
  const std::vector<ReferenceOutput> expected =
      evaluate(module, arrays.views, {}, emulated_multiprocessors);
  ASSERT_EQ(expected.size(), 1U);
  for (std::size_t i = 0; i < arrays.y.size(); ++i)
    EXPECT_NEAR(arrays.y[i], expected[0].values[i], 1e-5) << rows << "x" << cols << " column " << i;
}

TEST(Accumulation, AddsWhatTheReferenceDoes) {
  for (const char* target : {"sm_80", "sm_90", "sm_90a"})
    for (const bool in_order : {false, true})
      for (const bool below_diagonal : {false, true})
        for (const bool last_tiles_first : {false, true}) {
          const Module module = test::column_sums(in_order, below_diagonal);
          const EmulatedModule kernels = emulated(module, target, {}, last_tiles_first);
          for (const auto& [rows, cols] : {std::pair{100, 70}, {40, 200}, {1, 1}})
            expect_sums(module, kernels, rows, cols);
        }
}

TEST(Accumulation, AddsToOutputsOfTheCaller) {
  for (const char* target : {"sm_80", "sm_90a"})
    for (const bool in_order : {false, true}) {
      const Module module = test::column_sums_added(in_order);
      const EmulatedModule kernels = emulated(module, target);
      Arrays arrays(100, 70);
      std::iota(arrays.y.begin(), arrays.y.end(), 1.F);
      std::vector<std::int32_t> turns(100);
      arrays.views.push_back(TensorView::dense(turns.data(), DType::i32, {100}, cpu_device));
      if (!in_order) arrays.views.pop_back();
      const std::vector<ReferenceOutput> expected =
          evaluate(module, arrays.views, {}, emulated_multiprocessors);
      EXPECT_EQ(arrays.y[69], 70) << "the reference writes no memory of the caller";
      (void)kernels.run(arrays.views, {});
      const auto sums = std::ranges::find(expected, "sums", &ReferenceOutput::name);
      ASSERT_NE(sums, expected.end());
      for (std::size_t i = 0; i < arrays.y.size(); ++i)
        EXPECT_NEAR(arrays.y[i], sums->values[i], 1e-4) << target << " column " << i;
    }
}

TEST(Accumulation, InOrderIsTheSameInEveryRun) {
  const EmulatedModule kernels = emulated(test::column_sums(true), "sm_90");
  std::vector<float> first;
  for (int run = 0; run < 5; ++run) {
    Arrays arrays(500, 64);
    (void)kernels.run(arrays.views, {});
    if (run == 0) first = arrays.y;
    EXPECT_EQ(arrays.y, first);
  }
}

/// What a run says of a kernel in which something is left out.
std::string complaint_about(bool in_order, const Change& change, const char* target = "sm_90",
                            bool last_tiles_first = false) {
  const EmulatedModule kernels =
      emulated(test::column_sums(in_order), target, change, last_tiles_first);
  Arrays arrays(100, 70);
  try {
    (void)kernels.run(arrays.views, {});
  } catch (const EmulatorError& error) {
    return error.what();
  }
  return "nothing";
}

TEST(Accumulation, NobodyAddsOutOfTurn) {
  EXPECT_THAT(complaint_about(true, {"add_rows", R"(if \(.*fc::wait_turn\(.*\);)", ""}),
              HasSubstr("addition out of turn"));
  // A note in front of what it says.
  EXPECT_THAT(
      complaint_about(true,
                      {"add_rows", R"((// store sums[^]*?)fc::barrier\(\);(\n.*release_turn.*\n))",
                       "$2$1fc::barrier();\n"}),
      HasSubstr("addition out of turn"));
}

TEST(Accumulation, ATurnThatIsNotPassedOnIsADeadlock) {
  const std::string message =
      complaint_about(true, {"add_rows", R"(if \(thread == 0\) fc::release_turn\(.*\);)", ""});
  EXPECT_THAT(message, HasSubstr("deadlock in kernel add_rows, block 1"));
  EXPECT_THAT(message, HasSubstr("threads 0-63 wait at wait_turn"));
  EXPECT_THAT(message,
              HasSubstr("block 1 waits until turns[0] of extents [100] is 32, and it is 0"));
}

TEST(Accumulation, WaitingForALaterBlockIsADeadlock) {
  // Blocks from the last tile of rows on, whose turns come from the first one on.
  const std::string message = complaint_about(
      true, {"add_rows", R"(if \(\w+ > 0\) (fc::wait_turn\(turns_at\w* \+ \w+) - 16)",
             "if (rows_begin + 16 < p.R) $1 + 16"});
  EXPECT_THAT(message, HasSubstr("deadlock"));
  EXPECT_THAT(message, HasSubstr("waits until turns["));
}

TEST(DependentLaunch, KernelsWaitBeforeTheyTouchTensors) {
  EXPECT_EQ(complaint_about(false, {"", "", ""}), "nothing");
  for (const char* kernel : {"no_sums_yet", "add_rows", "take_sums"})
    EXPECT_THAT(complaint_about(false, {kernel, R"(fc::wait_for_kernels\(\);\n)", ""}),
                HasSubstr("early access in kernel " + std::string(kernel)));
}

TEST(DependentLaunch, AKernelWaitsBeforeItLetsTheNextOneStart) {
  EXPECT_THAT(
      complaint_about(
          false,
          {"add_rows", R"((fc::wait_for_kernels\(\);\s*)(fc::launch_dependents\(\);))", "$2\n$1"}),
      HasSubstr("the next kernel may start while those launched before this one still run"));
}

TEST(DependentLaunch, IsWhatATargetOfferingItGets) {
  for (const char* target : {"sm_80", "sm_90", "sm_90a", "sm_120"}) {
    const Module module = test::column_sums(false);
    for (std::size_t i = 0; i < 3; ++i) {
      const Program& kernel = module.kernels()[i];
      const KernelSource source =
          generate(kernel, test::column_sums_schedule(kernel), find_target(target));
      const bool offers = find_target(target).dependent_launch;
      EXPECT_EQ(source.waits_for_kernels, offers) << target << kernel.name();
      EXPECT_EQ(source.body.find("wait_for_kernels") != std::string::npos, offers);
      EXPECT_EQ(source.body.find("launch_dependents") != std::string::npos, offers);
    }
  }
}

}  // namespace
}  // namespace flashcore
