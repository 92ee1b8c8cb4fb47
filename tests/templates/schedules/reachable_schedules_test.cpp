// No problem of a range takes a schedule that is not among those listed for the range.
#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dsl/json.h"
#include "dsl/variants.h"
#include "templates/attention.h"
#include "templates/choice/attention_winners.h"
#include "templates/schedule_chooser.h"
#include "tests/templates/support/draw_lengths.h"

namespace flashcore {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

AttentionSpec draw_spec(DrawLengths& draw) {
  const std::vector<Mask> masks{full(),
                                causal(),
                                causal(Align::top_left),
                                sliding_window(100, 0),
                                documents({"ids", DType::i32, 2}),
                                documents({"ids", DType::i32, 2}) & causal(),
                                prefix(1000) | causal(),
                                chunked(512)};
  const std::vector<Score> scores{Score(), Score(), softcap(30), alibi({"slopes", DType::f32, 1}),
                                  relative_bias({"table", DType::f32, 2}, 128)};
  AttentionSpec spec;
  spec.head_dim = draw.one_of<int>({32, 64, 80, 96, 112, 128, 160, 192, 256});
  spec.dtype = draw.one_of<DType>({DType::bf16, DType::f16});
  spec.mask = draw.one_of(masks);
  spec.score = draw.one_of(scores);
  spec.lse = draw.number(0, 1) == 1;
  spec.kv_lens = draw.number(0, 4) == 0;
  if (draw.number(0, 4) == 0) spec.heads = static_cast<int>(draw.number(1, 64));
  if (draw.number(0, 8) == 0) spec.kv_len = static_cast<int>(draw.number(1, 9000));
  return spec;
}

TEST(ReachableSchedules, HoldThoseOfEveryProblemOfARange) {
  DrawLengths draw(1);
  int problems = 0;
  for (int round = 0; round < 200; ++round) {
    const AttentionSpec spec = draw_spec(draw);
    const Target& target =
        find_target(draw.one_of<const char*>({"sm_90a", "sm_90a", "sm_90a", "sm_80", "sm_75"}));
    const AttentionProblems range{.batch = draw.range(64),
                                  .heads = draw.range(64),
                                  .q_len = draw.range(1 << 17),
                                  .kv_len = draw.range(1 << 17)};
    const auto reachable = reachable_schedules(spec, target, range);
    EXPECT_EQ(reachable.front(), attention_schedules(spec, target));
    for (int i = 0; i < 50; ++i, ++problems) {
      const auto within = [&](const LengthRange& r) { return draw.length(r.least, r.most); };
      const AttentionProblem problem{.batch = within(range.batch),
                                     .heads = spec.heads ? spec.heads : within(range.heads),
                                     .q_len = within(range.q_len),
                                     .kv_len = spec.kv_len.value_or(within(range.kv_len))};
      const auto taken = attention_schedules(spec, target, problem);
      ASSERT_NE(std::find(reachable.begin(), reachable.end(), taken), reachable.end())
          << to_json(spec) << " on " << target.name << ": batch " << problem.batch << ", heads "
          << problem.heads << ", q_len " << problem.q_len << ", kv_len " << problem.kv_len;
    }
  }
  EXPECT_EQ(problems, 10000);
}

TEST(ScheduleChooser, ChoosesWhatAttentionSchedulesSays) {
  DrawLengths draw(4);
  for (int round = 0; round < 60; ++round) {
    const AttentionSpec spec = draw_spec(draw);
    const Target& target = find_target(draw.one_of<const char*>({"sm_90a", "sm_90a", "sm_80"}));
    const ScheduleChooser chooser(spec, target);
    for (int i = 0; i < 20; ++i) {
      const AttentionProblem problem{.batch = draw.length(1, 64),
                                     .heads = spec.heads ? spec.heads : draw.length(1, 64),
                                     .q_len = draw.length(1, 1 << 17),
                                     .kv_len = spec.kv_len.value_or(draw.length(1, 1 << 17))};
      ASSERT_EQ(chooser.schedules(chooser.choose(problem)),
                attention_schedules(spec, target, problem))
          << to_json(spec) << " on " << target.name << ": batch " << problem.batch << ", heads "
          << problem.heads << ", q_len " << problem.q_len << ", kv_len " << problem.kv_len;
    }
  }
}

TEST(ScheduleChooser, FindsWhatItChoosesAlsoAtASecondLaunch) {
  DrawLengths draw(6);
  const ScheduleChooser chooser({.head_dim = 64, .mask = causal()}, find_target("sm_90a"));
  std::vector<std::array<std::int64_t, 4>> launches;
  for (int i = 0; i < 2000; ++i)
    launches.push_back(
        {draw.length(1, 64), draw.length(1, 64), draw.length(1, 1 << 15), draw.length(1, 1 << 15)});
  for (int round = 0; round < 2; ++round)
    for (const auto& [batch, heads, q_len, kv_len] : launches)
      ASSERT_EQ(chooser.find(std::array{batch, heads, q_len, kv_len}),
                chooser.choose(AttentionProblem{batch, heads, q_len, kv_len}));
}

// 25 texts of 16384 rows, the longest of 3027: what is fastest for sequences of their mean length, blocks of 64 rows,
// takes 1.23 times as long as blocks of 128 (H200).
TEST(ScheduleChooser, TakesPackedSequencesForLongerOnesThanTheirMean) {
  AttentionSpec spec{.head_dim = 128, .mask = causal()};
  spec.layout = TensorLayout::thd;
  const ScheduleChooser chooser(spec, find_target("sm_90a"));
  constexpr std::int64_t rows = 16384;
  const auto found = [&](std::int64_t batch, std::int64_t keys, std::int64_t longest) {
    return chooser.find(std::array<std::int64_t, 5>{batch, 16, rows, keys, longest});
  };
  const std::size_t of_mean = chooser.choose({25, 16, 656, 656});
  EXPECT_EQ(found(25, rows, 3027), chooser.choose({9, 16, 1841, 1841}));
  EXPECT_NE(found(25, rows, 3027), of_mean);
  EXPECT_EQ(found(25, rows, 656), of_mean) << "equal lengths";
  EXPECT_EQ(found(25, rows, rows), of_mean) << "nobody says how long the longest is";
  EXPECT_EQ(found(25, 4 * rows, 3027), chooser.choose({25, 16, 656, 2622})) << "chunks of prompts";
  EXPECT_EQ(found(1, rows, rows), chooser.choose({1, 16, rows, rows})) << "one sequence";
  EXPECT_THAT(chooser.explain({25, 16, 656, 656, 3027}),
              HasSubstr("schedules for batch 9, 16 heads, 1841 query rows and 1841 keys, which "
                        "take about as long as the 25 packed sequences of up to 3027 rows"));
}

TEST(ScheduleChooser, ListsThoseOfPackedSequencesThatDifferInLength) {
  DrawLengths draw(9);
  int batches = 0;
  for (int round = 0; round < 60; ++round) {
    AttentionSpec spec = draw_spec(draw);
    spec.kv_lens = false, spec.kv_len = std::nullopt, spec.layout = TensorLayout::thd;
    const ScheduleChooser chooser(spec, find_target("sm_90a"));
    AttentionProblems range{.batch = draw.range(64), .heads = draw.range(64)};
    range.q_len = range.kv_len = draw.range(1 << 14);
    if (round % 2 == 0) {  // few enough problems that each of them is looked at
      range.batch.least = range.batch.most, range.heads.least = range.heads.most;
      range.q_len = range.kv_len = {.least = 1, .most = 45};
    }
    const std::vector<std::size_t> listed = chooser.choose_all(range);
    for (int i = 0; i < 50; ++i, ++batches) {
      const auto within = [&](const LengthRange& r) { return draw.length(r.least, r.most); };
      const std::int64_t batch = within(range.batch), mean = within(range.q_len),
                         longest = draw.length(mean, range.q_len.most);
      std::vector<std::int64_t> lengths{batch};
      if (!spec.heads) lengths.push_back(within(range.heads));
      lengths.insert(lengths.end(), {batch * mean, batch * mean, longest});
      ASSERT_THAT(listed, Contains(chooser.find(lengths)))
          << to_json(spec) << ": batch " << batch << ", mean " << mean << ", longest " << longest;
    }
  }
  EXPECT_EQ(batches, 3000);
}

TEST(ScheduleChooser, RemembersTheListOfWhatItPredicted) {
  const std::string table =
      R"([{"target": "sm_90a", "head_dim": 64, "mask": "causal", "heads": null,
      "q_len": 1024, "kv_len": 1024, "blocks": "many", "schedule": {"tiles": {"rows": 64, "cols": 64}}}])";
  const AttentionSpec spec{.head_dim = 64, .mask = causal()};
  const ScheduleChooser asked(spec, find_target("sm_90a"), table),
      fresh(spec, find_target("sm_90a"), table);
  DrawLengths draw(8);
  for (int i = 0; i < 2000; ++i) {
    const AttentionProblem problem{draw.length(1, 64), draw.length(1, 64), draw.length(1, 1 << 12),
                                   draw.length(1, 1 << 12)};
    (void)asked.predict_us(problem);
    const std::array lengths{problem.batch, problem.heads, problem.q_len, problem.kv_len};
    ASSERT_EQ(asked.find(lengths), fresh.choose(problem));
  }
  const AttentionProblem won{8, 64, 1000, 1000};
  (void)asked.predict_us(won);
  EXPECT_EQ(asked.schedules(asked.find(std::array<std::int64_t, 4>{8, 64, 1000, 1000}))
                .front()
                .tiles.at("rows"),
            64)
      << "that of the table, not the fastest by prediction";
}

// Each list is a kernel to compile before a range of problems is served.
TEST(ScheduleChooser, HasSchedulesForLargeBatchesOfASpecThatHasHeads) {
  const Target& target = find_target("sm_90a");
  for (const int head_dim : {32, 64, 128})
    for (const Mask& mask : {full(), causal()}) {
      const ScheduleChooser open({.head_dim = head_dim, .mask = mask}, target);
      const ScheduleChooser fixed({.head_dim = head_dim, .heads = 8, .kv_heads = 2, .mask = mask},
                                  target);
      for (const std::int64_t batch : {1, 25, 42, 64})
        for (const std::int64_t length : {128, 146, 380, 2048}) {
          const AttentionProblem problem{batch, 8, length, length};
          EXPECT_LT(fixed.predict_us(problem), 1.06 * open.predict_us(problem))
              << head_dim << ", " << mask.text << ", " << batch << ", " << length;
        }
    }
}

TEST(ScheduleChooser, HasFewListsForAllProblems) {
  const AttentionProblems all{{1, 1 << 16}, {1, 1 << 16}, {1, 1 << 20}, {1, 1 << 20}};
  for (const int head_dim : {32, 64, 80, 96, 128, 192, 256})
    for (const Mask& mask : {full(), causal(), sliding_window(100, 0)}) {
      const ScheduleChooser chooser({.head_dim = head_dim, .mask = mask}, find_target("sm_90a"));
      const std::size_t lists = chooser.choose_all(all).size();
      EXPECT_GT(lists, 1U) << head_dim;
      EXPECT_LE(lists, 16U) << head_dim << " " << mask.text;
    }
}

TEST(ScheduleChooser, ReadsAProblemOffTheLengthsThatASpecLeavesOpen) {
  const Target& target = find_target("sm_90a");
  const auto lengths = [](std::initializer_list<std::int64_t> given) {
    return std::vector<std::int64_t>(given);
  };
  const auto numbers = [](const AttentionProblem& problem) {
    return std::array{problem.batch, problem.heads, problem.q_len, problem.kv_len};
  };
  const ScheduleChooser open({.head_dim = 64}, target);
  EXPECT_EQ(open.extents(), (std::vector<std::string>{"B", "H", "Sq", "Sk"}));
  EXPECT_EQ(numbers(open.problem_of(lengths({2, 3, 40, 500}))),
            (std::array<std::int64_t, 4>{2, 3, 40, 500}));
  EXPECT_EQ(open.describe(lengths({2, 3, 40, 500})), "40 query rows and 500 keys");
  EXPECT_EQ(open.preparation(lengths({2, 3, 40, 500})),
            "kernel.prepare(lengths=500, q_lengths=40)");
  const ScheduleChooser fixed({.head_dim = 64, .heads = 8, .kv_heads = 2, .kv_len = 77}, target);
  EXPECT_EQ(fixed.extents(), (std::vector<std::string>{"B", "Sq"}));
  EXPECT_EQ(numbers(fixed.problem_of(lengths({2, 40}))),
            (std::array<std::int64_t, 4>{2, 8, 40, 77}));
  const ScheduleChooser packed({.head_dim = 64, .layout = TensorLayout::thd}, target);
  EXPECT_EQ(packed.extents(), (std::vector<std::string>{"B", "H", "Tq", "Tk", "max_q_len"}));
  EXPECT_EQ(numbers(packed.problem_of(lengths({3, 4, 100, 301, 50}))),
            (std::array<std::int64_t, 4>{3, 4, 34, 101}))
      << "the mean lengths";
  EXPECT_EQ(packed.problem_of(lengths({3, 4, 100, 301, 50})).longest_q_len, 50);
  EXPECT_EQ(packed.problem_of(lengths({3, 4, 100, 301, 100})).longest_q_len, 0) << "nobody said it";
  const ScheduleChooser paged(
      {.head_dim = 64, .layout = TensorLayout::thd, .kv_lens = true, .page_size = 16}, target);
  EXPECT_EQ(paged.extents(), (std::vector<std::string>{"B", "H", "Tq", "max_pages", "max_q_len"}));
  EXPECT_EQ(numbers(paged.problem_of(lengths({3, 4, 100, 20, 50}))),
            (std::array<std::int64_t, 4>{3, 4, 34, 320}))
      << "as many keys as there is room for";
}

TEST(ReachableSchedules, OfOneProblemAreItsOwn) {
  DrawLengths draw(2);
  for (int round = 0; round < 300; ++round) {
    AttentionSpec spec = draw_spec(draw);
    const AttentionProblem problem{.batch = draw.length(1, 64),
                                   .heads = spec.heads ? spec.heads : draw.length(1, 64),
                                   .q_len = draw.length(1, 20000),
                                   .kv_len = spec.kv_len.value_or(draw.length(1, 20000))};
    const auto one = [](std::int64_t number) { return LengthRange{number, number}; };
    const Target& target = find_target("sm_90a");
    const auto reachable = reachable_schedules(spec, target,
                                               {.batch = one(problem.batch),
                                                .heads = one(problem.heads),
                                                .q_len = one(problem.q_len),
                                                .kv_len = one(problem.kv_len)});
    const auto taken = attention_schedules(spec, target, problem);
    EXPECT_EQ(reachable.back(), taken);
    EXPECT_LE(reachable.size(), 2u);
  }
}

// What was measured goes before what ships, for the problems that it was measured for and no other.
TEST(ReachableSchedules, HoldThoseOfATableBesides) {
  const AttentionSpec spec{.head_dim = 64};
  const Target& target = find_target("sm_90a");
  Schedule measured = attention_schedule(spec, target);
  measured.tiles["cols"] = 48;
  const std::string table =
      R"([{"target": "sm_90a", "head_dim": 64, "kv_len": 1024, "schedule": )" + to_json(measured) +
      "}]";
  const auto begins_with = [&](const AttentionProblems& range) {
    const auto lists = reachable_schedules(spec, target, range, table);
    return std::count_if(lists.begin(), lists.end(),
                         [&](const auto& list) { return list.front() == measured; });
  };
  const LengthRange many{.least = 8, .most = 64};
  ScheduleChooser chooser(spec, target, table);
  const auto first_for = [&](std::int64_t keys) {
    return chooser.schedules(chooser.choose({16, 16, 2000, keys})).front();
  };
  EXPECT_EQ(first_for(900), measured);
  EXPECT_EQ(first_for(1025), attention_schedule(spec, target, {16, 16, 2000, 1025}));
  EXPECT_EQ(first_for(1024), measured);
  EXPECT_GE(begins_with({many, many, {1000, 5000}, {600, 900}}), 1);
  EXPECT_GE(begins_with({many, many, {1000, 5000}, {1, 100000}}), 1);
  EXPECT_EQ(begins_with({many, many, {1000, 5000}, {1025, 100000}}), 0);
  EXPECT_EQ(begins_with({many, many, {1000, 5000}, {1, 896}}), 0);
}

}  // namespace
}  // namespace flashcore
