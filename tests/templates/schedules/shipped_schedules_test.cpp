// The schedules that ship: one for every pair of head dimensions, right on the emulator for every
// size of shared memory, and, asked for with FLASHCORE_SLOW=1, a table of what NVRTC makes of them,
// in which nothing spills and nothing takes more than a second.
#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "codegen/why_not.h"
#include "dsl/json.h"
#include "runtime/compile.h"
#include "runtime/cuda/nvrtc.h"
#include "runtime/cuda/nvrtc_search.h"
#include "templates/attention.h"
#include "tests/templates/support/attention_run.h"
#include "tests/templates/support/random_expression.h"
#include "tests/templates/support/slow_tests.h"
#include "tests/templates/support/unfused.h"

namespace flashcore {
namespace {

/// Problems on both sides of what the rules ask: unknown, few blocks, short and many, long.
const AttentionProblem problems[] = {{},
                                     {.batch = 1, .heads = 4, .q_len = 500, .kv_len = 500},
                                     {.batch = 8, .heads = 16, .q_len = 1024, .kv_len = 1024},
                                     {.batch = 4, .heads = 16, .q_len = 2048, .kv_len = 2048},
                                     {.batch = 1, .heads = 16, .q_len = 16384, .kv_len = 16384}};

class ShippedSchedules : public testing::TestWithParam<int> {};

TEST_P(ShippedSchedules, GiveTheRightValues) {
  for (const char* target : {"sm_75", "sm_80", "sm_90", "sm_90a", "sm_120"}) {
    AttentionSpec spec;
    spec.head_dim = GetParam();
    spec.mask = causal();
    spec.lse = true;
    if (!find_target(target).bf16) spec.dtype = DType::f16;
    const KernelSource source =
        generate(attention_forward(spec), attention_schedule(spec, find_target(target)),
                 find_target(target));
    for (const AttentionInputs& in : {AttentionInputs{.q_len = 150, .kv_len = 200},
                                      AttentionInputs{.q_len = 70, .kv_len = 3}}) {
      SCOPED_TRACE(fmt::format("{}, {} queries and {} keys", target, in.q_len, in.kv_len));
      KernelRun run = attention_run(spec, in);
      try {
        const EmulationReport report = run.emulate(source);
        EXPECT_EQ(run.compare(), "");
        // Copies into rows that are not swizzled write the ends of two rows at once.
        if (spec.head_dim % 64 == 0) {
          EXPECT_EQ(report.banks.conflicts(), 0);
        }
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }
}

/// f32 by tf32, on targets of every size of shared memory.
TEST_P(ShippedSchedules, GiveTheRightValuesInFloat32) {
  for (const char* target : {"sm_80", "sm_86", "sm_90a", "sm_120"}) {
    AttentionSpec spec;
    spec.head_dim = GetParam();
    spec.dtype = DType::f32;
    spec.products = Products::tf32;
    spec.mask = causal();
    spec.lse = true;
    const Program program = attention_forward(spec);
    const std::vector<Schedule> schedules = attention_schedules(spec, find_target(target));
    EXPECT_FALSE(schedules.empty());
    for (const Schedule& schedule : schedules) {
      SCOPED_TRACE(fmt::format("{} with {}", target, to_json(schedule)));
      const KernelSource source = generate(program, schedule, find_target(target));
      for (const AttentionInputs& in : {AttentionInputs{.q_len = 150, .kv_len = 200},
                                        AttentionInputs{.q_len = 70, .kv_len = 3}}) {
        KernelRun run = attention_run(spec, in);
        const EmulationReport report = run.emulate(source);
        EXPECT_EQ(run.compare(), "");
        EXPECT_EQ(report.banks.conflicts(), 0);
      }
    }
  }
}

/// f32 in three bf16 parts.
TEST_P(ShippedSchedules, GiveTheRightValuesInFullFloat32) {
  for (const char* target : {"sm_80", "sm_86", "sm_90a"}) {
    AttentionSpec spec;
    spec.head_dim = GetParam();
    spec.dtype = DType::f32;
    spec.mask = causal();
    spec.lse = true;
    const Program program = attention_forward(spec);
    for (const Schedule& schedule : attention_schedules(spec, find_target(target))) {
      SCOPED_TRACE(fmt::format("{} with {}", target, to_json(schedule)));
      const KernelSource source = generate(program, schedule, find_target(target));
      for (const AttentionInputs& in : {AttentionInputs{.q_len = 150, .kv_len = 100},
                                        AttentionInputs{.q_len = 70, .kv_len = 3}}) {
        KernelRun run = attention_run(spec, in);
        const EmulationReport report = run.emulate(source);
        EXPECT_EQ(run.compare(), "");
        // In a panel of fewer than 64 columns the lanes of a warp write parts of more rows.
        if (spec.head_dim % 64 == 0) {
          EXPECT_EQ(report.banks.conflicts(), 0);
        }
      }
    }
  }
}

/// What sm_90a gets for launches of several sizes, and the safer schedules behind each.
TEST_P(ShippedSchedules, GiveTheRightValuesForEveryProblem) {
  const Target& target = find_target("sm_90a");
  AttentionSpec spec;
  spec.head_dim = GetParam();
  spec.lse = true;
  for (const Mask& mask : {full(), causal()}) {
    spec.mask = mask;
    const Program program = attention_forward(spec);
    std::vector<Schedule> schedules;
    for (const AttentionProblem& problem : problems)
      for (Schedule& schedule : attention_schedules(spec, target, problem))
        if (schedule.copy == CopyInstruction::tma &&
            std::find(schedules.begin(), schedules.end(), schedule) == schedules.end())
          schedules.push_back(std::move(schedule));
    EXPECT_GE(schedules.size(), 3u);
    for (const Schedule& schedule : schedules) {
      SCOPED_TRACE(to_json(schedule));
      try {
        const KernelSource source = generate(program, schedule, target);
        for (const AttentionInputs& in : {AttentionInputs{.heads = 2, .q_len = 130, .kv_len = 200},
                                          AttentionInputs{.q_len = 70, .kv_len = 3}}) {
          KernelRun run = attention_run(spec, in);
          (void)run.emulate(source);
          EXPECT_EQ(run.compare(), "");
        }
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(HeadDim, ShippedSchedules, testing::Values(64, 96, 128, 256));

// Without falling back: the first of them has room for keys and values of very different widths.
TEST(ShippedSchedules, FitEveryPairOfWidths) {
  std::vector<int> widths{8, 64, 72, 128, 136, 192, 232, 256};
  if (runs_slow_tests()) {
    widths.clear();
    for (int width = 8; width <= 256; width += 8) widths.push_back(width);
  }
  for (const Target& target : all_targets())
    for (const Mask& mask : {full(), causal()})
      for (const int d : widths)
        for (const int dv : widths) {
          AttentionSpec spec;
          spec.head_dim = d;
          spec.head_dim_v = dv;
          spec.mask = mask;
          if (!target.bf16) spec.dtype = DType::f16;
          const Program program = attention_forward(spec);
          std::vector<Schedule> seen;
          for (const AttentionProblem& problem : problems) {
            const Schedule schedule = attention_schedule(spec, target, problem);
            if (std::find(seen.begin(), seen.end(), schedule) != seen.end()) continue;
            seen.push_back(schedule);
            EXPECT_EQ(why_not(program, schedule, target), std::vector<std::string>{})
                << d << " and " << dv << " on " << target.name << " with " << to_json(schedule);
          }
        }
}

// Which blocks stay is decided by what the mask says, not by what it looks like.
TEST(ShippedSchedules, StayWhereTheMaskBoundsTheLoop) {
  const Target& target = find_target("sm_90a");
  const AttentionProblem large{.batch = 8, .heads = 16, .q_len = 4096, .kv_len = 4096};
  const Captured ids{"ids", DType::i32, 2};
  const std::pair<Mask, bool> masks[] = {
      {full(), true},
      {causal(), true},
      {causal(Align::top_left), true},
      {Mask("(kv_idx + (3)) * 2 <= q_idx"), true},
      {Mask("d = q_idx - kv_idx; (0 <= d) & (d < 512)"), true},
      {Mask("(kv_idx <= q_idx) & (q_idx < 100)"), false},  // a bound for rows is none for the loop
      {Mask("max(kv_idx, 3) <= q_idx"), false},
      {prefix(40) | causal(), false},
      {documents(ids) & causal(), false},
  };
  for (const auto& [mask, stays] : masks) {
    AttentionSpec spec;
    spec.head_dim = 128;
    spec.mask = mask;
    const Schedule schedule = attention_schedule(spec, target, large);
    EXPECT_EQ(schedule.persistent, stays) << mask.text;
    EXPECT_EQ(why_not(attention_forward(spec), schedule, target), std::vector<std::string>{})
        << mask.text;
  }
}

// Blocks that scan for their tiles scan once for two heads where there are blocks enough.
TEST(ShippedSchedules, ShareSurveys) {
  const Target& target = find_target("sm_90a");
  const Captured ids{"ids", DType::i32, 2};
  const auto heads_of_a_block = [&](int head_dim, const Mask& mask, int batch, int heads) {
    AttentionSpec spec;
    spec.head_dim = head_dim;
    spec.mask = mask;
    const Schedule schedule = attention_schedule(
        spec, target, {.batch = batch, .heads = heads, .q_len = 8192, .kv_len = 8192});
    EXPECT_EQ(schedule.grid_order, GridOrder::tiles_last) << mask.text;
    return schedule.positions_per_block;
  };
  for (const int head_dim : {64, 128})
    for (const Mask& mask :
         {documents(ids), documents(ids) & causal(), prefix(40) | causal(), chunked(500)}) {
      EXPECT_EQ(heads_of_a_block(head_dim, mask, 4, 16), 2) << mask.text;
      EXPECT_EQ(heads_of_a_block(head_dim, mask, 4, 15), 1) << "one head would be left over";
      EXPECT_EQ(heads_of_a_block(head_dim, mask, 1, 8), 1) << "too few blocks";
      const Mask by_head("(h < 3) | (" + mask.text + ")", mask.tensors);
      EXPECT_EQ(heads_of_a_block(head_dim, by_head, 4, 16), 1) << "nothing to share";
    }
}

// The time of a wave counts, not the speed of a block alone.
TEST(ShippedSchedules, HaveTilesThatFillTheWaves) {
  const Target& target = find_target("sm_90a");
  const auto rows = [&](int head_dim, int batch, int heads, int length, const Mask& mask = full()) {
    AttentionSpec spec;
    spec.head_dim = head_dim;
    spec.mask = mask;
    return attention_schedule(spec, target,
                              {.batch = batch, .heads = heads, .q_len = length, .kv_len = length})
        .tiles.at("rows");
  };
  EXPECT_EQ(rows(80, 4, 25, 4096), 192);
  EXPECT_EQ(rows(80, 1, 24, 2048), 192) << "384 of 128 rows are three waves, 264 of 192 are two";
  EXPECT_EQ(rows(64, 1, 32, 2048), 192) << "512 of 128 rows are four waves, 352 of 192 are three";
  EXPECT_EQ(rows(128, 4, 16, 4096), 128);
  EXPECT_EQ(rows(128, 1, 12, 2048), 192) << "192 of 128 rows are two waves, 132 of 192 are one";
  EXPECT_EQ(rows(64, 16, 16, 192, causal()), 64) << "small blocks, in many waves";
  for (const int head_dim : {64, 128, 256}) {
    EXPECT_EQ(rows(head_dim, 1, 1, 512), 64) << "few blocks, of few rows each";
    EXPECT_EQ(rows(head_dim, 1, 1, 512, causal()), 64);
  }
  AttentionSpec chunk{.head_dim = 128, .mask = causal()};
  EXPECT_EQ(attention_schedule(chunk, target, {1, 32, 512, 1 << 16}).tiles.at("rows"), 128)
      << "128 blocks of 128 rows on 132 multiprocessors are as good as one full wave";
}

// Where waves are few, tiles of a causal mask are not dealt out in advance.
TEST(ShippedSchedules, HaveADynamicSchedulerWhereWavesAreFew) {
  const Target& target = find_target("sm_90a");
  const auto order = [&](int head_dim, int batch, int heads, int length, const Mask& mask) {
    AttentionSpec spec;
    spec.head_dim = head_dim;
    spec.mask = mask;
    const Schedule schedule = attention_schedule(
        spec, target, {.batch = batch, .heads = heads, .q_len = length, .kv_len = length});
    EXPECT_TRUE(schedule.persistent);
    return schedule.tile_scheduler;
  };
  constexpr PersistentScheduler dynamic = PersistentScheduler::dynamic;
  for (const int head_dim : {128, 192, 256}) {
    EXPECT_EQ(order(head_dim, 1, 12, 2048, causal()), dynamic) << head_dim;
    EXPECT_EQ(order(head_dim, 2, 20, 1024, causal()), dynamic) << "320 blocks: 2.4 waves";
  }
  EXPECT_EQ(order(128, 8, 16, 2048, causal()), dynamic);
}

TEST(ShippedSchedules, FitEveryMaskAndScore) {
  const Target& target = find_target("sm_90a");
  int stay = 0;
  for (unsigned number = 0; number < 200; ++number) {
    Draw draw(number);
    AttentionSpec spec;
    spec.head_dim = draw.one_of<int>({64, 128, 256});
    const std::vector<CapturedValues> captured = draw_captured(draw, draw.between(0, 2));
    const RandomExpression mask = draw_mask_expression(draw, captured);
    spec.mask = Mask(mask.text(), mask.reads(captured));
    if (draw.one_in(3)) spec.mask = causal();
    if (draw.one_in(3)) {
      const RandomExpression score = draw_score_expression(draw, captured);
      spec.score = Score(score.text(), score.reads(captured));
    }
    const Schedule schedule = attention_schedule(
        spec, target, draw.one_of<AttentionProblem>({{}, problems[2], problems[4]}));
    stay += schedule.persistent;
    EXPECT_EQ(why_not(attention_forward(spec), schedule, target), std::vector<std::string>{})
        << spec.mask.text << "\n"
        << spec.score.text << "\n"
        << to_json(schedule);
  }
  EXPECT_GT(stay, 20);
}

TEST(ShippedSchedules, OfTheUnfusedBaseline) {
  AttentionSpec spec;
  spec.head_dim = 64;
  spec.mask = causal();
  const Target& target = find_target("sm_90");
  const std::map<std::string, std::int64_t> extents{{"B", 1}, {"H", 2}, {"Sq", 70}, {"Sk", 88}};
  const auto expect_right = [&](const Program& program, const Schedule& schedule,
                                std::vector<ScalarValue> scalars) {
    SCOPED_TRACE(program.name());
    KernelRun run(program, {.extents = extents, .scalars = std::move(scalars)});
    try {
      (void)run.emulate(generate(program, schedule, target));
      EXPECT_EQ(run.compare(), "");
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  };
  expect_right(unfused_scores(spec), unfused_scores_schedule(spec, target), {0.125});
  expect_right(unfused_softmax(spec), unfused_softmax_schedule(spec, target), {});
  expect_right(unfused_values(spec), unfused_values_schedule(spec, target), {});
}

TEST(ShippedSchedules, CompileInASecondWithoutSpills) {
  if (!runs_slow_tests()) GTEST_SKIP() << "minutes; FLASHCORE_SLOW=1 runs it";
  const Nvrtc nvrtc(find_nvrtc(NvrtcSearch::from_environment()));
  fmt::print("NVRTC {}\n{:>8} {:>7} {:>6} {:>8} {:>9} {:>7} {:>6} {:>6}\n", nvrtc.version().text(),
             "head_dim", "mask", "target", "threads", "registers", "shared", "spills", "ms");
  for (const int dim : {16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256})
    for (const bool is_causal : {false, true})
      for (const Target& target : all_targets()) {
        const std::vector<int>& known = nvrtc.architectures();
        if (std::find(known.begin(), known.end(), target.capability) == known.end()) continue;
        AttentionSpec spec;
        spec.head_dim = dim;
        if (is_causal) spec.mask = causal();
        if (!target.bf16) spec.dtype = DType::f16;
        const KernelSource source =
            generate(attention_forward(spec), attention_schedule(spec, target), target);
        // Time of the processor, which a busy machine does not stretch.
        const std::clock_t start = std::clock();
        const Cubin cubin = compile_cubin(nvrtc, source, std::string(target.name));
        const double ms = 1000. * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
        const int spills = cubin.resources.spill_store_bytes + cubin.resources.spill_load_bytes;
        fmt::print("{:>8} {:>7} {:>6} {:>8} {:>9} {:>7} {:>6} {:>6.0f}\n", dim,
                   is_causal ? "causal" : "full", target.name, source.threads,
                   cubin.resources.registers, source.shared_bytes, spills, ms);
        std::fflush(stdout);
        EXPECT_EQ(spills, 0) << dim << (is_causal ? " causal on " : " full on ") << target.name;
        EXPECT_LE(ms, 1000) << dim << (is_causal ? " causal on " : " full on ") << target.name;
      }
}

class ShippedSchedulesOfVariants : public testing::TestWithParam<int> {
 protected:
  /// Calls check(name of the spec, source of its kernel for a long problem) for masks with scores.
  template <class Check>
  static void for_each_variant(const Check& check) {
    const Captured ids{"ids", DType::i32, 1, true}, slopes{"slopes", DType::f32, 1, true},
        table{"table", DType::f32, 2, true}, visible{"visible", DType::i1, 2, true, true};
    const Mask dense("visible[q_idx, kv_idx]", {visible});
    const Mask masks[] = {full(),
                          causal(),
                          documents(ids),
                          documents(ids) & causal(),
                          chunked(1000),
                          prefix(1000) | causal(),
                          sliding_window(1023, 0),
                          dense,
                          dense & causal()};
    for (const DType dtype : {DType::bf16, DType::f16}) {
      const Captured biases{"bias", dtype, 3, true, true};
      for (const Mask& mask : masks)
        for (const Score& score :
             {Score{}, softcap(30), alibi(slopes), relative_bias(table, 8192), bias(biases)}) {
          AttentionSpec spec{.head_dim = GetParam(), .dtype = dtype, .mask = mask, .score = score};
          generate_one(spec, check);
          spec.lse = true;
          if (score.text == softcap(30).text) generate_one(spec, check);
        }
    }
  }

 private:
  template <class Check>
  static void generate_one(const AttentionSpec& spec, const Check& check) {
    const Target& target = find_target("sm_90a");
    const AttentionProblem problem{
        .batch = 2, .heads = 2048 / spec.head_dim, .q_len = 8192, .kv_len = 8192};
    const std::string name =
        fmt::format("{} {} [{}] [{}]{}", spec.head_dim, name_of(spec.dtype), spec.mask.text,
                    spec.score.text, spec.lse ? " with an LSE" : "");
    try {
      check(name,
            generate(attention_forward(spec), attention_schedule(spec, target, problem), target));
    } catch (const Error& error) {
      ADD_FAILURE() << name << ": " << error.what();
    }
  }
};

// A schedule that is refused costs a slower one.
TEST_P(ShippedSchedulesOfVariants, AreGeneratedAtTheFirstTry) {
  for_each_variant([](const std::string& name, const KernelSource& source) {
    EXPECT_GE(source.threads, 128) << name;
  });
}

// One that spills costs a second compile and smaller tiles.
TEST_P(ShippedSchedulesOfVariants, FitAtTheFirstTry) {
  if (!runs_slow_tests()) GTEST_SKIP() << "a minute; FLASHCORE_SLOW=1 runs it";
  const Nvrtc nvrtc(find_nvrtc(NvrtcSearch::from_environment()));
  for_each_variant([&](const std::string& name, const KernelSource& source) {
    const Resources found = compile_cubin(nvrtc, source, "sm_90a").resources;
    EXPECT_EQ(found.spill_store_bytes + found.spill_load_bytes, 0) << name;
  });
}

INSTANTIATE_TEST_SUITE_P(HeadDims, ShippedSchedulesOfVariants,
                         testing::Values(64, 80, 96, 112, 128, 144, 176, 192, 256),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace flashcore
