// Which splits the sequences of a batch have: all keys are in one, as many splits as a launch has room for, and
// none much longer than the others where sequences differ in length.
#include "templates/decode_plan.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dsl/launch_number.h"
#include "tests/support/kernel_run.h"
#include "tests/support/program_kernels.h"

namespace flashcore {
namespace {

struct Plan {
  std::vector<std::int64_t> first, keys;  ///< of each sequence; and how many splits there are
  std::vector<std::int64_t> long_in_front, long_sequences, long_starts;
};

struct Launch {
  std::vector<double> kv_lens;
  int splits = 1;
  int head_blocks = 8, block_slots = 264, most_keys = 1 << 20;
  std::vector<double> q_lens = {};  ///< of packed sequences
  int most_rows = 0;                ///< of those that have splits, where others have none
};

DecodeSpec balanced(int page_size = 0) {
  return {.attention = {.head_dim = 128,
                        .heads = 32,
                        .kv_heads = 8,
                        .kv_lens = true,
                        .page_size = page_size},
          .balances = true};
}

/// On the emulator; differences to the reference are failures.
Plan plan(const Launch& launch, const DecodeSpec& spec = balanced()) {
  const Program program = attention_decode_plan(spec, split_costs(spec.attention, {}));
  const ProgramKernels kernels =
      generate_for(program, attention_decode_plan_schedules(find_target("sm_90a")),
                   find_target("sm_90a"), false);
  RunInputs in{.extents = {{"B", launch.kv_lens.size()}}, .values = {{"kv_lens", launch.kv_lens}}};
  for (const auto& [starts, lengths] :
       {std::pair("cu_seqlens_q", &launch.q_lens), {"cu_seqlens_k", &launch.kv_lens}}) {
    std::vector<double>& sums = in.values[starts] = {0};
    for (const double length : *lengths) sums.push_back(sums.back() + length);
  }
  const int longest = launch.most_rows ? 1 << 20 : 5;
  in.scalars.emplace_back(std::int32_t{longest});
  if (launch.most_rows) in.scalars.emplace_back(std::int32_t{launch.most_rows});
  for (const int scalar :
       {launch.most_keys, launch.head_blocks, 1, launch.block_slots, launch.splits})
    in.scalars.emplace_back(std::int32_t{scalar});
  KernelRun run(program, in);
  run.emulate(kernels.kernels.at(0).source);
  EXPECT_EQ(run.compare(), "");
  const auto whole = [&](std::string_view name) {
    const auto& tensors = program.function().tensors;
    const auto at = std::ranges::find(tensors, name, &ir::Tensor::name) - tensors.begin();
    if (at == std::ssize(tensors)) return std::vector<std::int64_t>();
    const std::vector<double> values = run.values(static_cast<std::size_t>(at));
    return std::vector<std::int64_t>(values.begin(), values.end());
  };
  return {whole("first_split"), whole("split_keys"), whole("long_in_front"),
          whole("long_sequences"), whole("long_starts")};
}

std::int64_t splits_of(const Plan& plan, std::size_t sequence) {
  return plan.first[sequence + 1] - plan.first[sequence];
}

TEST(DecodePlan, EveryKeyIsInOneSplit) {
  std::mt19937 draw(20261129);
  for (int round = 0; round < 60; ++round) {
    Launch launch;
    const std::size_t batch = 1 + draw() % 90;
    for (std::size_t b = 0; b < batch; ++b)
      launch.kv_lens.push_back(draw() % 4 ? draw() % 3000 : draw() % 100'000 * (draw() % 2));
    launch.splits = static_cast<int>(batch + 1 + draw() % 200);
    const Plan made = plan(launch);
    EXPECT_EQ(made.first[0], 0);
    EXPECT_LE(made.first[batch], launch.splits);
    for (std::size_t b = 0; b < batch; ++b) {
      const auto keys = static_cast<std::int64_t>(launch.kv_lens[b]), each = made.keys[b];
      EXPECT_EQ(each % keys_of_splits, 0);
      EXPECT_GE(splits_of(made, b), 1);
      EXPECT_GE(splits_of(made, b) * each, keys);
      EXPECT_LT((splits_of(made, b) - 1) * each, std::max<std::int64_t>(keys, 1));
    }
  }
}

TEST(DecodePlan, ALongSequenceHasManySplits) {
  Launch launch{.kv_lens = std::vector<double>(64, 1000), .splits = 64 + 99};
  launch.kv_lens[17] = 64'000;
  const Plan made = plan(launch);
  for (std::size_t b = 0; b < 64; ++b)
    if (b != 17) EXPECT_EQ(splits_of(made, b), 1) << b;
  EXPECT_GE(splits_of(made, 17), 16);
  EXPECT_LE(made.keys[17], 4096);
}

TEST(DecodePlan, SequencesOfOneLengthHaveSplitsOfOneLength) {
  for (const int keys : {1024, 4096, 10'000}) {
    const Plan made = plan({.kv_lens = std::vector<double>(5, keys), .splits = 5 + 99});
    // A third of a wave of the 33 blocks of a head at the least, and not all that there is room for.
    EXPECT_GE(made.first[5], 10) << keys;
    EXPECT_LE(made.first[5], 80) << keys;
    for (std::size_t b = 1; b < 5; ++b) EXPECT_EQ(splits_of(made, b), splits_of(made, 0)) << keys;
  }
}

TEST(DecodePlan, WithoutRoomEverySequenceHasOneSplit) {
  const Plan made = plan({.kv_lens = {5, 70'000, 0}, .splits = 3});
  EXPECT_EQ(made.first, (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_GE(made.keys[1], 70'000);
}

TEST(DecodePlan, SequencesWithoutKeysHaveASplitEach) {
  const Plan made = plan({.kv_lens = {0, 0, 0}, .splits = 100});
  EXPECT_EQ(made.first, (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(made.keys[1], keys_of_splits);
}

// What says how long they are differs, and plans do not.
TEST(DecodePlan, PackedSequencesHaveThePlansOfPaddedOnes) {
  DecodeSpec spec = balanced();
  const Launch launch{.kv_lens = {300, 9000, 0, 70, 2000}, .splits = 60, .q_lens = {1, 5, 1, 0, 2}};
  const Plan padded = plan(launch, spec);
  spec.attention.layout = TensorLayout::thd;
  spec.attention.page_size = 16;
  EXPECT_EQ(plan(launch, spec).first, padded.first);
  spec.attention.page_size = 0;
  spec.attention.kv_lens = false;
  EXPECT_EQ(plan(launch, spec).first, padded.first);
  // The last rows of a sequence see its last keys.
  spec.attention.mask = sliding_window(127, 0);
  const Plan near = plan({.kv_lens = {9000, 9000}, .splits = 60, .q_lens = {1, 5}}, spec);
  EXPECT_EQ(near.first, (std::vector<std::int64_t>{0, 1, 3}));
}

// Sequences with more than `most_rows` rows are listed for another kernel, with the end of all behind them.
TEST(DecodePlan, LongSequencesHaveNoSplits) {
  DecodeSpec spec = balanced();
  spec.attention.layout = TensorLayout::thd;
  spec.attention.kv_lens = false;
  spec.skips_long = true;
  const Plan made = plan({.kv_lens = {300, 9000, 0, 70, 2000},
                          .splits = 60,
                          .q_lens = {1, 500, 4, 5, 0},
                          .most_rows = 4},
                         spec);
  EXPECT_EQ(splits_of(made, 1), 0);
  EXPECT_EQ(splits_of(made, 3), 0);
  for (const std::size_t own : {0, 2, 4}) EXPECT_GE(splits_of(made, own), 1) << own;
  EXPECT_EQ(made.long_in_front, (std::vector<std::int64_t>{0, 0, 1, 1, 2, 2}));
  using testing::ElementsAre;
  EXPECT_THAT(std::span(made.long_sequences).first(3), ElementsAre(1, 3, 5));
  EXPECT_THAT(std::span(made.long_starts).first(3), ElementsAre(1, 505, 510));
  // None is long, and all are.
  const Plan none =
      plan({.kv_lens = {300, 9}, .splits = 9, .q_lens = {1, 4}, .most_rows = 4}, spec);
  EXPECT_EQ(none.long_in_front, (std::vector<std::int64_t>{0, 0, 0}));
  const Plan all =
      plan({.kv_lens = {300, 9}, .splits = 9, .q_lens = {50, 5}, .most_rows = 4}, spec);
  EXPECT_EQ(all.first, (std::vector<std::int64_t>{0, 0, 0}));
  EXPECT_THAT(std::span(all.long_starts).first(3), ElementsAre(0, 50, 55));
}

// Longer than any length that is tried.
TEST(DecodePlan, AVeryLongSequenceHasNoMoreSplitsThanThereIsRoomFor) {
  const Plan made = plan({.kv_lens = {20e6, 7}, .splits = 3, .most_keys = 1 << 25});
  EXPECT_LE(made.first[2], 3);
  EXPECT_GE(splits_of(made, 0) * made.keys[0], 20'000'000);
}

// Numbers of a module are few steps of whole numbers: what a launch has room for.
TEST(DecodePlan, ALaunchHasRoomForThreeWaves) {
  const Module module = attention_decode(balanced(64), 16);
  const auto number = [&](const char* name, std::int64_t batch, std::int64_t pages) {
    std::vector<std::string> names{"B", "Sq", "max_pages", "multiprocessors"};
    std::vector<std::int64_t> values{batch, 1, pages, 132};
    for (const auto& [own, text] : module.numbers()) {
      const std::int64_t value = NumberFormula({own, text}, names).evaluate(values);
      if (own == name) return value;
      names.push_back(own);
      values.push_back(value);
    }
    return std::int64_t{-1};
  };
  EXPECT_EQ(number("block_slots", 64, 2048), 264);
  EXPECT_EQ(number("head_blocks", 64, 2048), 8);
  EXPECT_EQ(number("splits", 64, 2048), 64 + 3 * 264 / 8);
  // No more than there are keys for.
  EXPECT_EQ(number("splits", 2, 8), 2 + 2 * 4);
}

}  // namespace
}  // namespace flashcore
