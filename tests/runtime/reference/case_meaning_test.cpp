// The programs of tests/cases keep their meaning: evaluated before and after the pass on random
// arrays.
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "dsl/ir/parse.h"
#include "tests/codegen/pass_cases.h"
#include "tests/runtime/reference/arrays.h"

namespace flashcore {
namespace {

using namespace testing_support;

/// Tile by tile where the text says how long tiles are.
ReferenceOptions options_for(const ir::Function& f) {
  bool cut = true;
  for (const ir::Axis& axis : f.axes) {
    const bool tiled =
        axis.kind == ir::AxisKind::tiles || axis.kind == ir::AxisKind::parallel_tiles;
    cut = cut && (!tiled || axis.tile > 0);
  }
  return cut ? in_tiles : ReferenceOptions{};
}

/// Of the extents that a text names.
std::int64_t extent_of(const std::string& name, std::int64_t rows, std::int64_t columns) {
  if (name == "M") return rows;
  return name == "B" || name == "H" ? 3 : columns;
}

std::vector<Array> random_arrays(const ir::Function& f, std::int64_t rows, std::int64_t columns) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal(-1);  // so that a zero where -inf belongs shows
  std::vector<Array> arrays;
  for (const ir::Tensor& tensor : f.tensors) {
    std::vector<std::int64_t> shape;
    std::int64_t elements = 1;
    for (const Extent& dim : tensor.dims) {
      shape.push_back(dim.of(extent_of(dim.name, rows, columns)));
      elements *= shape.back();
    }
    std::vector<double> values;
    for (std::int64_t i = 0; i < elements && !tensor.output; ++i)
      values.push_back(tensor.dtype == DType::i32 ? static_cast<double>(random() % 4)
                                                  : normal(random));
    arrays.emplace_back(tensor.dtype, shape, values);
  }
  return arrays;
}

void expect_same(const ReferenceOutput& got, const ReferenceOutput& wanted) {
  for (std::size_t i = 0; i < wanted.values.size(); ++i) {
    const double a = got.values[i], b = wanted.values[i];
    const bool same =
        a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= 1e-10 * (1 + std::abs(b));
    ASSERT_TRUE(same) << got.name << " element " << i << ": " << a << ", not " << b;
  }
}

std::vector<std::string> files_of_passes() {
  std::vector<std::string> files = case_files();
  std::erase_if(files, [](const std::string& file) { return !find_pass(file); });
  return files;
}

class CaseMeaning : public testing::TestWithParam<std::string> {};

TEST_P(CaseMeaning, IsKept) {
  const Pass* pass = find_pass(GetParam());
  int number = 0, compared = 0;
  for (const PassCase& one : read_cases(GetParam())) {
    SCOPED_TRACE("case " + std::to_string(++number) + " of " + GetParam() + ".fc");
    if (!one.expected || one.expected->starts_with("//")) continue;  // the pass refuses it
    ir::Function before = ir::parse(one.input);
    ir::Function after = before;
    const Schedule schedule = one.schedule();
    pass->run(after, {schedule, one.target()});
    // Rounds that may come in any order mean what they mean in the one that was chosen.
    for (std::size_t i = 0; i < before.ops.size(); ++i)
      if (before.ops[i].unordered) before.ops[i].descending = after.ops[i].descending;
    // Only mask_tails has to do with tails; what comes after it reads programs without any.
    const bool tails = pass->name == "mask_tails";
    std::vector<Array> arrays = random_arrays(before, tails ? 70 : 128, tails ? 45 : 96);
    std::vector<TensorView> views;
    for (Array& array : arrays) views.push_back(array.view());
    std::vector<ScalarValue> scalars;
    for (const ir::Parameter& parameter : before.parameters)
      scalars.push_back(parameter.dtype == DType::i32 ? ScalarValue(1) : ScalarValue(0.37f));
    const auto wanted =
        evaluate(before, views, scalars, tails ? ReferenceOptions{} : options_for(before));
    const auto got = evaluate(after, views, scalars, options_for(after));
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) expect_same(got[i], wanted[i]);
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

INSTANTIATE_TEST_SUITE_P(Text, CaseMeaning, testing::ValuesIn(files_of_passes()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace flashcore
