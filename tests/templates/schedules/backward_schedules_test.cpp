// Which schedules the programs of the backward pass have, and whether the compiler takes the first of each
// without spilling: otherwise a slower one is taken, and nobody sees it.
#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "dsl/json.h"
#include "runtime/compile.h"
#include "runtime/cuda/nvrtc.h"
#include "runtime/cuda/nvrtc_search.h"
#include "templates/attention_backward.h"
#include "tests/templates/support/slow_tests.h"

namespace flashcore {
namespace {

bool is_dynamic(const Schedule& s) {
  return s.persistent && s.tile_scheduler == PersistentScheduler::dynamic;
}

/// How many of a program's schedules have the dynamic tile scheduler.
long dynamic_ones(std::string_view program, const AttentionSpec& spec,
                  const char* target = "sm_90a") {
  return std::ranges::count_if(attention_backward_schedules(program, spec, find_target(target)),
                               is_dynamic);
}

// Static blocks of a causal mask took 1.2 times as long with 16k keys.
TEST(BackwardSchedules, GroupHeadsForL2UnderTheDynamicTileScheduler) {
  for (const int head_dim : {96, 128, 192, 256}) {
    const AttentionSpec spec{.head_dim = head_dim, .mask = causal()};
    const Schedule first =
        attention_backward_schedules("attention_backward_queries", spec, find_target("sm_90a"))[0];
    EXPECT_TRUE(is_dynamic(first)) << head_dim;
    EXPECT_EQ(first.grid_order, GridOrder::grouped) << head_dim;
    EXPECT_TRUE(first.last_tiles_first) << head_dim;
  }
}

TEST(BackwardSchedules, AreStaticWhereNoRegisterHoldsTheNumberOfATile) {
  const Captured ids{.name = "ids", .dtype = DType::i32, .rank = 1};
  const AttentionSpec specs[] = {{.head_dim = 64, .mask = documents(ids)},
                                 {.head_dim = 64, .mask = causal(), .score = softcap(30)},
                                 {.head_dim = 64, .mask = causal(), .kv_lens = true},
                                 {.head_dim = 64, .layout = TensorLayout::thd}};
  for (const AttentionSpec& spec : specs)
    for (const char* program : {"attention_backward_keys", "attention_backward_queries"})
      EXPECT_EQ(dynamic_ones(program, spec), 0) << program << ' ' << spec.mask.text;
  EXPECT_EQ(dynamic_ones("attention_backward_keys", {.head_dim = 128, .mask = causal()}), 0);
  EXPECT_EQ(dynamic_ones("attention_backward_keys", {.head_dim = 64}, "sm_80"), 0);
}

// A compiler that would get it wrong is refused, and the next of the list is compiled.
TEST(BackwardSchedules, ThatKeepOperandsAreFollowedByOnesThatDoNot) {
  for (const int head_dim : {32, 64, 80, 96}) {
    const std::vector<Schedule> schedules = attention_backward_schedules(
        "attention_backward_keys", {.head_dim = head_dim, .mask = causal()}, find_target("sm_90a"));
    const auto kept = std::ranges::find_if(schedules, &Schedule::keep_operands);
    ASSERT_NE(kept, schedules.end()) << head_dim;
    EXPECT_FALSE(kept[1].keep_operands) << head_dim;
    EXPECT_TRUE(is_dynamic(kept[1])) << head_dim;
  }
}

// 64 sequences of 256 rows, causal, took 1.28 times as long in blocks that have a multiprocessor to themselves.
TEST(BackwardSchedules, OfPackedSequencesHaveSeveralBlocksOnAMultiprocessor) {
  for (const int head_dim : {32, 64, 80, 96}) {
    const AttentionSpec spec{.head_dim = head_dim, .mask = causal(), .layout = TensorLayout::thd};
    for (const char* program : {"attention_backward_keys", "attention_backward_queries"}) {
      const Schedule first =
          attention_backward_schedules(program, spec, find_target("sm_90a"), /*length=*/1024)[0];
      EXPECT_GE(first.blocks_per_processor, 2) << program << ' ' << head_dim;
      EXPECT_EQ(first.consumer_threads(), 128) << program << ' ' << head_dim;
    }
  }
}

// With vectors that threads load, and tiles that leave registers for them, the gradients of packed sequences
// took up to 27 % longer.
TEST(BackwardSchedules, LoadVectorsOfPackedSequencesWithTheirTiles) {
  for (const int head_dim : {32, 64, 96, 128, 192})
    for (const Mask& mask : {full(), causal()}) {
      const AttentionSpec packed{.head_dim = head_dim, .mask = mask, .layout = TensorLayout::thd};
      const AttentionSpec padded{.head_dim = head_dim, .mask = mask, .q_lens = true};
      for (const AttentionSpec& spec : {packed, padded}) {
        const Schedule first =
            attention_backward_schedules("attention_backward_keys", spec, find_target("sm_90a"))[0];
        EXPECT_TRUE(first.load_vectors) << head_dim << ' ' << mask.text;
      }
    }
}

// Small tiles read L2 twice as often: at head_dim 64, full, 16k rows took 5 % longer in them.
TEST(BackwardSchedules, OfLongSequencesHaveTilesOfTwoWarpgroups) {
  const struct {
    const char* program;
    AttentionSpec spec;
    std::int64_t longest;  // in tiles of one warpgroup
  } cases[]{{"attention_backward_queries", {.head_dim = 64}, 4096},
            {"attention_backward_keys", {.head_dim = 128, .mask = causal()}, 512}};
  for (const auto& [program, spec, longest] : cases) {
    const auto first = [&](std::int64_t length) {
      return attention_backward_schedules(program, spec, find_target("sm_90a"), length)[0];
    };
    EXPECT_EQ(first(longest).consumer_threads(), 128) << program;
    EXPECT_EQ(first(longest + 1).consumer_threads(), 256) << program;
    EXPECT_EQ(first(longest + 1), first(any_length)) << program;
    EXPECT_TRUE(std::ranges::count(backward_length_bounds(), longest)) << program;
  }
  EXPECT_EQ(backward_length_bounds().back(), any_length);
}

TEST(BackwardSchedules, SayFromWhichLengthsFiveProductsAreFaster) {
  const Target &hopper = find_target("sm_90a"), &ampere = find_target("sm_80");
  AttentionSpec spec{.head_dim = 64};
  EXPECT_FALSE(adding_lengths(spec, hopper)) << "the order of additions is fixed";
  spec.deterministic = false;
  EXPECT_FALSE(adding_lengths(spec, ampere));
  ASSERT_TRUE(adding_lengths(spec, hopper));
  EXPECT_EQ(adding_lengths(spec, hopper)->longer, 513);
  spec.mask = causal();
  ASSERT_TRUE(adding_lengths(spec, hopper));
  EXPECT_EQ(adding_lengths(spec, hopper)->longer, 4097);
  spec.layout = TensorLayout::thd;  // where the copy engine does not add dQ
  EXPECT_FALSE(adding_lengths(spec, hopper));
}

// What is compiled in their place is slower.
TEST(BackwardSchedules, OfFiveProductsFitAtTheFirstTry) {
  const Nvrtc nvrtc(find_nvrtc(NvrtcSearch::from_environment()));
  const Target& target = find_target("sm_90a");
  for (const Score& score : {Score(), alibi({"slopes", DType::f32, 1}), softcap(30)})
    for (const Mask& mask : {full(), causal()}) {
      const AttentionSpec spec{
          .head_dim = 64, .mask = mask, .score = score, .deterministic = false};
      ASSERT_TRUE(adding_lengths(spec, target)) << score.text << ' ' << mask.text;
      const Program keys = attention_backward_adding_keys(spec);
      const Schedule first =
          attention_backward_schedules(keys.name(), spec, target, any_length).front();
      const Resources found =
          compile_cubin(nvrtc, generate(keys, first, target), "sm_90a").resources;
      EXPECT_EQ(found.spill_store_bytes + found.spill_load_bytes, 0)
          << score.text << ' ' << mask.text;
    }
}

// At head_dim 40 and 2k rows, full, the backward pass took 1.27 to 1.34 times as long in tiles of one warpgroup.
TEST(BackwardSchedules, OfHeadDimsThatEndWithinASectorHaveTilesOfTwoWarpgroups) {
  const auto threads = [](int head_dim) {
    return attention_backward_schedules("attention_backward_queries", {.head_dim = head_dim},
                                        find_target("sm_90a"), /*length=*/2048)[0]
        .consumer_threads();
  };
  EXPECT_EQ(threads(40), 256);
  EXPECT_EQ(threads(56), 256);
  EXPECT_EQ(threads(64), 128);
}

// A first call would compile a schedule that the compiler has refused once more.
TEST(BackwardSchedules, AreListedOnce) {
  const AttentionSpec softcapped{.head_dim = 160, .mask = causal(), .score = softcap(30)};
  const AttentionSpec packed{.head_dim = 192, .mask = causal(), .layout = TensorLayout::thd};
  for (const AttentionSpec& spec : {softcapped, packed})
    for (const char* program : {"attention_backward_keys", "attention_backward_values"}) {
      const std::vector<Schedule> all =
          attention_backward_schedules(program, spec, find_target("sm_90a"));
      for (auto s = all.begin(); s != all.end(); ++s)
        EXPECT_EQ(std::find(s + 1, all.end(), *s), all.end()) << program << ' ' << to_json(*s);
    }
}

/// By head_dim.
class BackwardSchedulesOf : public testing::TestWithParam<int> {};

TEST_P(BackwardSchedulesOf, FitAtTheFirstTry) {
  const bool always = GetParam() == 64 || GetParam() == 128;  // the most common ones
  if (!always && !runs_slow_tests()) GTEST_SKIP() << "half a minute; FLASHCORE_SLOW=1 runs it";
  const Nvrtc nvrtc(find_nvrtc(NvrtcSearch::from_environment()));
  if (nvrtc.version() < NvrtcVersion{13, 1}) GTEST_SKIP() << "keeps no operands of wgmma";
  const Target& target = find_target("sm_90a");
  std::vector<AttentionSpec> specs{{.mask = causal(), .score = softcap(30)},
                                   {.mask = documents({"ids", DType::i32, 2}) & causal()}};
  for (const Mask& mask : {full(), causal(), sliding_window(100, 0)}) {
    specs.push_back({.mask = mask});
    specs.push_back({.mask = mask, .layout = TensorLayout::thd});
  }
  std::set<std::string> compiled;  // some programs are the same for several specs
  for (AttentionSpec& spec : specs) {
    spec.head_dim = GetParam();
    const Module module = attention_backward(spec);
    for (const Program& program : module.kernels()) {
      for (const std::int64_t length : backward_length_bounds()) {
        const Schedule first =
            attention_backward_schedules(program.name(), spec, target, length).front();
        if (!compiled.insert(program.text() + to_json(first)).second) continue;
        const Resources found =
            compile_cubin(nvrtc, generate(program, first, target), "sm_90a").resources;
        EXPECT_EQ(found.spill_store_bytes + found.spill_load_bytes, 0)
            << fmt::format("{} [{}] {}", program.name(), spec.mask.text, to_json(first));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(HeadDims, BackwardSchedulesOf,
                         testing::Values(32, 40, 64, 80, 88, 96, 112, 128, 160, 192, 256),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace flashcore
