// Modules without a GPU, against the reference: what a launch hands to each kernel.
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "dsl/error.h"
#include "runtime/emulator/emulated_module.h"
#include "runtime/reference/evaluate_module.h"
#include "tests/support/split_sum.h"

namespace flashcore {
namespace {

using testing::HasSubstr;

EmulatedModule emulated(const Module& module) {
  std::vector<std::shared_ptr<const KernelSource>> sources;
  for (std::size_t i = 0; i < module.kernels().size(); ++i)
    sources.push_back(std::make_shared<const KernelSource>(
        generate(module.kernels()[i], test::sum_rows_schedule(i), find_target("sm_80"))));
  return EmulatedModule::build(module, sources);
}

struct Arrays {
  Arrays(std::int64_t rows, std::int64_t cols)
      : x(static_cast<std::size_t>(rows * cols)), y(static_cast<std::size_t>(rows), NAN) {
    std::iota(x.begin(), x.end(), 1.F);
    views = {TensorView::dense(x.data(), DType::f32, {rows, cols}, cpu_device),
             TensorView::dense(y.data(), DType::f32, {rows}, cpu_device)};
  }
  std::vector<float> x, y;
  std::vector<TensorView> views;
};

TEST(EmulatedModule, ComputesWhatTheReferenceDoes) {
  const Module module = test::sum_rows();
  const EmulatedModule kernels = emulated(module);
  for (const auto& [rows, cols] : {std::pair{5, 1}, {5, 64}, {1, 100}, {40, 1000}, {0, 7}}) {
    Arrays arrays(rows, cols);
    (void)kernels.run(arrays.views, {});
    const std::vector<ReferenceOutput> expected =
        evaluate(module, arrays.views, {}, emulated_multiprocessors);
    ASSERT_EQ(expected.size(), 1U);
    EXPECT_EQ(expected[0].name, "y");
    for (std::size_t i = 0; i < arrays.y.size(); ++i)
      EXPECT_NEAR(arrays.y[i], expected[0].values[i], 1e-6 * expected[0].values[i])
          << rows << "x" << cols << " row " << i;
  }
}

TEST(EmulatedModule, NumbersAreThoseOfTheLaunch) {
  const EmulatedModule kernels = emulated(test::sum_rows());
  Arrays arrays(5, 1000);
  const ModulePlan::Bound few = kernels.plan().bind(arrays.views, {}, 4);
  EXPECT_EQ(kernels.plan().number(few, 0), 8);
  EXPECT_EQ(kernels.plan().number(few, 1), 128);
  EXPECT_EQ(few.workspace_bytes, 256U);  // 8 x 5 floats, rounded up
  const ModulePlan::Bound many = kernels.plan().bind(arrays.views, {}, 132);
  EXPECT_EQ(kernels.plan().number(many, 0), 16);
}

TEST(EmulatedModule, ArgumentsAreCheckedBeforeAnythingRuns) {
  const EmulatedModule kernels = emulated(test::sum_rows());
  Arrays arrays(5, 100);
  arrays.views[1].shape[0] = 6;  // not the rows of x; only the second kernel has y
  try {
    (void)kernels.run(arrays.views, {});
    FAIL() << "accepted";
  } catch (const SpecError& error) {
    EXPECT_THAT(error.complaint().what, HasSubstr("sum_rows"));
    EXPECT_THAT(error.complaint().what + error.complaint().why, HasSubstr("y"));
  }
  EXPECT_THROW((void)kernels.run(std::span(arrays.views).first(1), {}), SpecError);
}

/// y[i] = x[i] + added for the rows in front of `cut`, or those from there on.
Program add_to_part(const char* name, bool front, double added) {
  ProgramBuilder b(name);
  const Extent R("R");
  const Axis rows = b.parallel_tiles("rows", R);
  const Tensor x = b.input("x", DType::f32, {R}), y = b.output("y", DType::f32, {R});
  const Tile cut = b.scalar("cut", DType::i32);
  if (front)
    b.segment(rows, 0, cut);
  else
    b.segment(rows, cut, length(x, 0));
  store(y(rows), load(x(rows)) + static_cast<float>(added));
  return b.finish();
}

TEST(EmulatedModule, KernelsStoreOtherElementsOfOneTensor) {
  ModuleBuilder m("parts");
  m.several_writers("y");
  m.kernel(add_to_part("front", true, 1));
  m.kernel(add_to_part("back", false, 2));
  const Module module = m.finish();
  std::vector<std::shared_ptr<const KernelSource>> sources;
  for (const Program& kernel : module.kernels())
    sources.push_back(std::make_shared<const KernelSource>(
        generate(kernel, {.tiles = {{"rows", 16}}}, find_target("sm_80"))));
  const EmulatedModule kernels = EmulatedModule::build(module, sources);
  std::vector<float> x(40, 5), y(40, NAN);
  const std::vector<TensorView> views{TensorView::dense(x.data(), DType::f32, {40}, cpu_device),
                                      TensorView::dense(y.data(), DType::f32, {40}, cpu_device)};
  const std::vector<ScalarValue> scalars{std::int32_t{23}};
  (void)kernels.run(views, scalars);
  const std::vector<ReferenceOutput> expected =
      evaluate(module, views, scalars, emulated_multiprocessors);
  ASSERT_EQ(expected.size(), 1U);
  for (std::size_t i = 0; i < y.size(); ++i) {
    EXPECT_EQ(y[i], i < 23 ? 6 : 7) << i;
    EXPECT_EQ(expected[0].values[i], y[i]) << i;
  }
}

}  // namespace
}  // namespace flashcore
