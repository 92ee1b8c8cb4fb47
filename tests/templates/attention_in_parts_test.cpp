// Attention of f32 whose operands other kernels have split: every schedule on the emulator, and one
// for every head dim. tests/python/test_in_parts.py runs the kernels together.
#include "templates/attention_in_parts.h"

#include <set>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "codegen/why_not.h"
#include "dsl/error.h"
#include "dsl/variants.h"
#include "tests/support/kernel_run.h"

namespace flashcore {
namespace {

AttentionSpec spec_of(int head_dim, int value_dim = 0) {
  AttentionSpec spec{.head_dim = head_dim, .mask = causal()};
  if (value_dim) spec.head_dim_v = value_dim;
  spec.dtype = DType::f32;
  return spec;
}

const Target& hopper() { return find_target("sm_90a"); }

TEST(AttentionInParts, IsForSplitProductsOnWgmma) {
  EXPECT_TRUE(can_attend_in_parts(spec_of(64), hopper()));
  EXPECT_FALSE(can_attend_in_parts(spec_of(64), find_target("sm_90")));
  AttentionSpec other = spec_of(64);
  other.products = Products::tf32;
  EXPECT_FALSE(can_attend_in_parts(other, hopper()));
  EXPECT_FALSE(can_attend_in_parts(AttentionSpec{.head_dim = 64}, hopper()));
}

TEST(AttentionInParts, IsRightUnderEverySchedule) {
  for (const auto& [dim, value_dim] : {std::pair{64, 64}, {104, 40}, {200, 136}, {256, 256}}) {
    const AttentionSpec spec = spec_of(dim, value_dim);
    const Program program = attention_forward_in_parts(spec);
    const auto lists = attention_in_parts_schedules(spec, hopper());
    for (const Schedule& schedule : lists.back()) {
      SCOPED_TRACE(fmt::format("{} and {}, {} rows, {} keys", dim, value_dim,
                               schedule.tiles.at("rows"), schedule.tiles.at("cols")));
      KernelRun run(program, {.extents = {{"B", 1}, {"H", 1}, {"Sq", 150}, {"Sk", 203}},
                              .scalars = {ScalarValue(0.1F)}});
      try {
        (void)run.emulate(generate(program, schedule, hopper()));
        EXPECT_EQ(run.compare(), "");
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }
}

TEST(AttentionInParts, EveryHeadDimHasASchedule) {
  for (int dim = 8; dim <= 256; dim += 8)
    for (const int value_dim : {dim, 264 - dim}) {
      const AttentionSpec spec = spec_of(dim, value_dim);
      const auto lists = attention_in_parts_schedules(spec, hopper());
      const Module module = attention_in_parts(spec);
      ASSERT_EQ(lists.size(), module.kernels().size());
      for (std::size_t i = 0; i < lists.size(); ++i) {
        ASSERT_FALSE(lists[i].empty()) << dim << " and " << value_dim;
        for (const Schedule& schedule : lists[i])
          EXPECT_TRUE(why_not(module.kernels()[i], schedule, hopper()).empty())
              << dim << " and " << value_dim;
      }
    }
}

/// The parts of a tensor, and of the halves of wide values.
std::set<std::string> workspaces(const AttentionSpec& spec) {
  const Module module = attention_in_parts(spec);
  return {module.workspaces().begin(), module.workspaces().end()};
}

TEST(AttentionInParts, WideValuesComeInHalves) {
  EXPECT_EQ(workspaces(spec_of(128)),
            (std::set<std::string>{"q_high", "q_middle", "q_low", "k_high", "k_middle", "k_low",
                                   "v_high", "v_middle", "v_low"}));
  EXPECT_EQ(workspaces(spec_of(64, 136)).count("v_right_low"), 1U);
  EXPECT_EQ(value_columns(spec_of(64, 136)), 72);  // the last columns of the right half are zeros
}

}  // namespace
}  // namespace flashcore
