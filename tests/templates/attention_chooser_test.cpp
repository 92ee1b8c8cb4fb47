// What launches of attention run in place of one kernel.
#include "templates/attention_chooser.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>

#include <gmock/gmock.h>

#include "dsl/json.h"
#include "templates/attention.h"

namespace flashcore {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::int64_t h200 = 132;
const Target& sm_90a() { return find_target("sm_90a"); }

AttentionSpec grouped(TensorLayout layout = TensorLayout::bhsd) {
  return {.head_dim = 128, .heads = 32, .kv_heads = 8, .mask = causal(), .layout = layout};
}
AttentionSpec of_f32() { return {.head_dim = 64, .dtype = DType::f32}; }

/// The kernels that a problem gets in place of one.
std::vector<std::string> kernels(const AttentionChooser& chooser, const AttentionProblem& problem) {
  std::vector<std::string> names;
  if (const auto number = chooser.find_alternative(problem, h200)) {
    const Alternative alternative = chooser.alternative(*number);
    EXPECT_EQ(alternative.schedules.size(), alternative.module.kernels().size());
    for (const Program& kernel : alternative.module.kernels()) names.push_back(kernel.name());
  }
  return names;
}

TEST(AttentionChooser, SplitsTheKeysOfFewRows) {
  const AttentionChooser chooser(grouped(), sm_90a());
  const auto split = ElementsAre("attention_decode_split", "attention_decode_combine");
  EXPECT_THAT(kernels(chooser, {1, 32, 1, 32768}), split);
  EXPECT_THAT(kernels(chooser, {1, 32, 1, 500}), IsEmpty());
  EXPECT_THAT(kernels(chooser, {16, 32, 4096, 4096}), IsEmpty());
}

// A few sequences have next to nothing to balance, and blocks of many rows keep equal splits.
TEST(AttentionChooser, BalancesTheSplitsOfSequencesThatMayDifferInLength) {
  AttentionSpec padded = grouped();
  padded.kv_lens = true;
  const AttentionChooser chooser(padded, sm_90a());
  const auto split = ElementsAre("attention_decode_split", "attention_decode_combine");
  const auto balanced =
      ElementsAre("attention_decode_plan", "attention_decode_split", "attention_decode_combine");
  EXPECT_THAT(kernels(chooser, {64, 32, 1, 8192}), balanced);
  EXPECT_THAT(kernels(chooser, {8, 32, 4, 2048}), balanced);
  EXPECT_THAT(kernels(chooser, {7, 32, 1, 8192}), split);
  EXPECT_THAT(kernels(chooser, {8, 32, 32, 32768}), split);
  const auto count = [&](LengthRange batch) {
    return chooser.all_alternatives({batch, {32, 32}, {1, 1}, {512, 8192}}).size();
  };
  EXPECT_EQ(count({1, 7}), 1U);
  EXPECT_EQ(count({8, 64}), 1U);
  EXPECT_EQ(count({1, 64}), 2U);
}

// Of a batch of which most sequences decode those have split keys, and the others a kernel of their own.
TEST(AttentionChooser, SplitsTheKeysOfSequencesThatDecodeBesideLongOnes) {
  AttentionSpec packed = grouped(TensorLayout::thd);
  packed.kv_lens = true, packed.page_size = 64;
  const AttentionChooser chooser(packed, sm_90a());
  const auto mixed = ElementsAre("attention_decode_plan", "attention_decode_split",
                                 "attention_decode_combine", "attention_forward_of_long");
  const auto problem = [](std::int64_t batch, std::int64_t all_rows, std::int64_t longest) {
    return AttentionProblem{batch, 32, (all_rows + batch - 1) / batch, 4096, longest};
  };
  EXPECT_THAT(kernels(chooser, problem(64, 2048 + 63, 2048)), mixed);
  EXPECT_THAT(kernels(chooser, problem(32, 512 + 31, 512)), mixed);
  EXPECT_THAT(kernels(chooser, problem(256, 4 * 512 + 252, 512)), mixed);
  // Too few that decode, none that is long, all that are, and nobody said it.
  EXPECT_THAT(kernels(chooser, problem(8, 2048 + 7, 2048)), IsEmpty());
  EXPECT_THAT(kernels(chooser, problem(64, 64, 1)), testing::SizeIs(3));
  EXPECT_THAT(kernels(chooser, problem(16, 16 * 500, 512)), IsEmpty());
  EXPECT_THAT(kernels(chooser, problem(64, 2048 + 63, 0)), testing::Not(testing::SizeIs(4)));
  // Contiguous keys of prompts alone are as many as their rows.
  const AttentionChooser contiguous(grouped(TensorLayout::thd), sm_90a());
  EXPECT_THAT(kernels(contiguous, {64, 32, 512, 512, 8192}), IsEmpty());
  EXPECT_THAT(kernels(contiguous, {64, 32, 33, 2048, 2048}), mixed);
  // With as many heads of keys as of queries blocks of their own read nothing twice.
  packed.kv_heads = 32;
  EXPECT_THAT(kernels(AttentionChooser(packed, sm_90a()), problem(32, 512 + 31, 512)), IsEmpty());
  // Where lengths are means, any batch that is large enough may have them.
  const auto numbers = chooser.all_alternatives({{1, 64}, {32, 32}, {1, 1}, {512, 8192}});
  EXPECT_TRUE(std::ranges::any_of(numbers, [&](std::size_t number) {
    return chooser.alternative(number).module.kernels().size() == 4;
  }));
}

// Whole keys take as long as the longest sequence.
TEST(AttentionChooser, SplitsTheKeysOfManySequencesWhereWholeOnesAreAsFast) {
  AttentionSpec spec{.head_dim = 128, .heads = 32, .kv_heads = 32};
  EXPECT_THAT(kernels(AttentionChooser(spec, sm_90a()), {64, 32, 1, 1024}), IsEmpty());
  spec.kv_lens = true;
  EXPECT_EQ(kernels(AttentionChooser(spec, sm_90a()), {64, 32, 1, 1024}).size(), 3U);
}

TEST(AttentionChooser, SplitsTheOperandsOfF32WhereManyRowsReadThem) {
  const AttentionChooser chooser(of_f32(), sm_90a());
  EXPECT_THAT(kernels(chooser, {1, 2, 4096, 130}),
              ElementsAre("split_q", "split_k", "split_v", "attention_forward_in_parts"));
  EXPECT_THAT(kernels(chooser, {1, 2, 4096, 70}), IsEmpty());
  EXPECT_THAT(kernels(chooser, {1, 2, 16, 4096}), IsEmpty());
  EXPECT_THAT(kernels(chooser, {70000, 2, 4096, 4096}), IsEmpty()) << "more than a grid has";
  AttentionSpec group = of_f32();
  group.heads = 32, group.kv_heads = 2;
  EXPECT_EQ(kernels(AttentionChooser(group, sm_90a()), {1, 32, 16, 4096}).size(), 4U)
      << "rows of a group";
}

TEST(AttentionChooser, HasNoneForOtherSpecsAndTargets) {
  AttentionSpec tf32 = of_f32();
  tf32.products = Products::tf32;
  EXPECT_FALSE(AttentionChooser(tf32, sm_90a()).has_alternatives());
  EXPECT_FALSE(AttentionChooser(of_f32(), find_target("sm_80")).has_alternatives());
  EXPECT_FALSE(AttentionChooser({.head_dim = 512}, sm_90a()).has_alternatives());
  EXPECT_TRUE(AttentionChooser({.head_dim = 128}, find_target("sm_80")).has_alternatives());
}

TEST(AttentionChooser, ReadsAProblemOffTheLengthsOfALaunch) {
  const auto number = [](const AttentionChooser& chooser, std::vector<std::int64_t> lengths) {
    return chooser.find_alternative(lengths, h200);
  };
  const AttentionChooser open({.head_dim = 128}, sm_90a()), fixed(grouped(), sm_90a());
  EXPECT_EQ(number(open, {1, 8, 1, 32768}), open.find_alternative({1, 8, 1, 32768}, h200));
  EXPECT_NE(number(open, {1, 8, 1, 32768}), std::nullopt);
  EXPECT_EQ(number(fixed, {1, 1, 32768}), fixed.find_alternative({1, 32, 1, 32768}, h200));
  const AttentionChooser packed(grouped(TensorLayout::thd), sm_90a());
  EXPECT_EQ(number(packed, {8, 12, 40000}), packed.find_alternative({8, 32, 2, 5000}, h200))
      << "the mean lengths";
}

TEST(AttentionChooser, TakesTheProgramsArguments) {
  std::vector<AttentionSpec> specs{grouped(), grouped(TensorLayout::bshd),
                                   grouped(TensorLayout::thd), of_f32()};
  for (const auto& [q_lens, kv_lens] : {std::pair(true, false), {false, true}, {true, true}}) {
    specs.push_back(grouped());
    specs.back().q_lens = q_lens, specs.back().kv_lens = kv_lens;
  }
  specs.push_back(attention_spec_from_json(R"json({
      "head_dim": 64, "heads": 8, "kv_heads": 2,
      "score": {"text": "score * strength + slopes[h] * (kv_idx - q_idx)",
                "tensors": [{"name": "slopes", "dtype": "f32", "rank": 1},
                            {"name": "strength", "dtype": "f32", "rank": 0}]}})json"));
  for (AttentionSpec spec : specs) {
    for (const bool lse : {false, true}) {
      spec.lse = lse;
      SCOPED_TRACE(to_json(spec));
      const Program program = attention_forward(spec);
      std::set<std::string> tensors, scalars;
      for (const auto& tensor : program.function().tensors) tensors.insert(tensor.name);
      for (const auto& scalar : program.function().parameters) scalars.insert(scalar.name);
      const AttentionChooser chooser(spec, sm_90a());
      const auto numbers = chooser.all_alternatives({{1, 8}, {1, 8}, {1, 9999}, {1, 9999}});
      EXPECT_FALSE(numbers.empty());
      for (const std::size_t number : numbers) {
        const Module module = chooser.alternative(number).module;
        for (const auto& tensor : module.tensors())
          EXPECT_TRUE(tensors.contains(tensor.name)) << tensor.name;
        for (const auto& scalar : module.parameters())
          EXPECT_TRUE(scalars.contains(scalar.name)) << scalar.name;
      }
    }
  }
}

TEST(AttentionChooser, ListsWhatProblemsOfARangeMayGet) {
  const AttentionChooser chooser(grouped(), sm_90a());
  const auto count = [&](LengthRange rows, LengthRange keys) {
    return chooser.all_alternatives({{1, 64}, {1, 64}, rows, keys}).size();
  };
  EXPECT_EQ(count({1, 4}, {1, 8192}), 1U);
  EXPECT_EQ(count({1, 16}, {1, 8192}), 3U);
  EXPECT_EQ(count({1, 4096}, {1, 8192}), 9U);
  EXPECT_EQ(count({1, 4096}, {1, 511}), 0U);
  const std::vector<std::size_t> all =
      chooser.all_alternatives({{1, 64}, {1, 64}, {1, 4096}, {1, 8192}});
  for (const std::int64_t rows : {1, 5, 16, 40, 100, 1000})
    for (const std::int64_t batch : {1, 7}) {
      if (const auto number = chooser.find_alternative({batch, 32, rows, 8192}, h200)) {
        EXPECT_THAT(all, testing::Contains(*number));
      }
    }
}

}  // namespace
}  // namespace flashcore
