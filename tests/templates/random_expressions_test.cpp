// Random masks, scores and sinks over the whole expression language, in random specs under random
// schedules. Two things are held against each other each time: the kernel, run by the emulator,
// against the reference under the rule of all tests (tests/support/kernel_run.h); and the reference
// against attention written out here, with the expression evaluated from the tree that its text was
// printed from.
//
//   FLASHCORE_PROPERTY_CASES  how many launches, five of every spec (default 300)
//   FLASHCORE_PROPERTY_FIRST  the first of them (default 0)
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "dsl/json.h"
#include "runtime/reference/reference.h"
#include "templates/attention.h"
#include "tests/support/kernel_run.h"
#include "tests/templates/support/plain_attention.h"
#include "tests/templates/support/random_expression.h"

namespace flashcore {
namespace {

constexpr int shards = 4, launches_a_spec = 5;

int from_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::atoi(text) : otherwise;
}

struct Drawn {
  Draw draw;
  AttentionSpec spec;
  std::vector<CapturedValues> captured;
  PlainAttention plain;
  Schedule schedule;
  const Target* target = nullptr;

  explicit Drawn(unsigned number) : draw(number + 100000) {
    captured = draw_captured(draw, draw.between(0, 4));
    if (!draw.one_in(8)) {
      const RandomExpression mask = draw_mask_expression(draw, captured);
      spec.mask = Mask(mask.text(), mask.reads(captured));
      // Combined with one that ships, as texts are.
      const bool and_causal = draw.one_in(6), negated = draw.one_in(8);
      if (and_causal) spec.mask = spec.mask & causal(Align::top_left);
      if (negated) spec.mask = ~spec.mask;
      plain.visible = [=, elements = captured](const Site& site) {
        const bool sees =
            mask.at(site, elements) != 0 && (!and_causal || site.q_idx >= site.kv_idx);
        return sees != negated;
      };
    }
    if (!draw.one_in(8)) {
      const RandomExpression score = draw_score_expression(draw, captured);
      spec.score = Score(score.text(), score.reads(captured));
      plain.score = [=, elements = captured](const Site& site) { return score.at(site, elements); };
    }
    if (draw.one_in(5)) {
      const RandomExpression sink = draw_sink_expression(draw, captured);
      spec.sink = Sink(sink.text(), sink.reads(captured));
      plain.sink = [=, elements = captured](const Site& site) { return sink.at(site, elements); };
    }
    draw_spec();
    draw_schedule();
  }

  void draw_spec() {
    spec.dtype = draw.one_of<DType>({DType::f16, DType::bf16});
    spec.head_dim = draw.one_of<int>({16, 32, 40, 64});
    if (draw.one_in(4)) spec.head_dim_v = draw.one_of<int>({8, 16, 48});
    spec.layout = draw.one_of<TensorLayout>({TensorLayout::bhsd, TensorLayout::bshd});
    spec.lse = draw.one_in(2);
    if (draw.one_in(2)) {
      spec.kv_heads = draw.between(1, 2);
      spec.heads = spec.kv_heads * draw.between(1, 3);
    }
    if (draw.one_in(6)) spec.kv_len = draw.between(1, 130);
  }

  void draw_schedule() {
    const std::span<const Target> targets = all_targets();
    do
      target =
          &targets[static_cast<std::size_t>(draw.between(0, static_cast<int>(targets.size()) - 1))];
    while (target->capability < 80);
    schedule = Schedule{};
    if (draw.one_in(4)) return draw_warpgroups();
    schedule.warps_m = draw.one_of<int>({1, 2, 3, 4});
    schedule.tiles["rows"] = 16 * schedule.warps_m * (draw.one_in(5) ? 2 : 1);
    schedule.tiles["cols"] = 16 * draw.between(1, 4);
    schedule.stages = draw.between(1, 3);
    schedule.keep_operands = draw.one_in(3);
    schedule.staged_stores = !draw.one_in(3);
    schedule.peel_masks = draw.one_in(2);
    schedule.descending = draw.one_in(2);
    schedule.last_tiles_first = draw.one_in(2);
  }

  void draw_warpgroups() {
    target = &find_target("sm_90a");
    schedule.instruction = Instruction::wgmma;
    schedule.copy = CopyInstruction::tma;
    schedule.warps_m = draw.one_of<int>({4, 4, 8});
    schedule.tiles = {{"rows", 16 * schedule.warps_m}, {"cols", 16 * draw.between(1, 4)}};
    schedule.stages = draw.between(1, 3);
    schedule.staged_stores = !draw.one_in(3);
    schedule.peel_masks = draw.one_in(3);
    schedule.descending = draw.one_in(2);
    schedule.rescale_before_product = draw.one_in(2);
    schedule.rescale_before_wait = schedule.rescale_before_product && draw.one_in(2);
    schedule.lazy_scaling = draw.one_in(2);
    schedule.reduction_chains = draw.one_of<int>({1, 2, 4});
    schedule.sums_by_products = draw.one_in(3);
    schedule.ping_pong = schedule.warps_m > 4 && draw.one_in(2);
    schedule.persistent = draw.one_in(3);  // refused where the mask is scanned
    if (!schedule.persistent)
      schedule.positions_per_block = draw.one_of<int>({1, 2, 3});  // refused where it asks for h
    if (schedule.has_next_tiles()) schedule.outer_stages = draw.between(1, 2);
    schedule.end_aligned_tiles = draw.one_in(3);  // refused where rows look something up
  }

  int draw_length(int tile) {
    switch (draw.between(0, 5)) {
      case 0:
        return draw.one_of<int>({0, 1, 1, 2});
      case 1:
        return tile * draw.between(1, 2) + draw.between(-1, 1);
      default:
        return draw.between(1, 130);
    }
  }

  RunInputs draw_launch(const Program& program, unsigned seed) {
    RunInputs in;
    in.extents = {{"B", draw.between(1, 2)},
                  {"H", spec.heads ? spec.heads : draw.between(1, 2)},
                  {"Sq", draw_length(schedule.tiles["rows"])},
                  {"Sk", spec.kv_len ? *spec.kv_len : draw_length(schedule.tiles["cols"])}};
    in.scalars = {1 / std::sqrt(static_cast<double>(spec.head_dim))};
    if (draw.one_in(6)) in.spread = {{"q", 12}};
    if (draw.one_in(3)) in.row_gap = 8;
    in.gathered_step = draw.one_in(3) ? 3 : 1;
    in.seed = seed;
    for (const ir::Tensor& tensor : program.function().tensors)
      for (const CapturedValues& one : captured) {
        if (one.tensor.name != tensor.name) continue;
        in.values[tensor.name] = one.values;
        for (std::size_t d = 0; d < tensor.dims.size(); ++d)
          in.extents[tensor.dims[d].name] = one.shape[d];
      }
    return in;
  }

  [[nodiscard]] std::string text() const {
    return fmt::format(
        "mask [{}]\n  score [{}]\n  sink [{}]\n  {} head_dim {} head_dim_v {} heads {} kv_heads {} "
        "layout {} lse {} "
        "kv_len {}\n  on {} with {}",
        spec.mask.text, spec.score.text, spec.sink.text, name_of(spec.dtype), spec.head_dim,
        spec.value_dim(), spec.heads, spec.kv_heads, name_of(spec.layout), spec.lse,
        spec.kv_len.value_or(-1), target->name, to_json(schedule));
  }
};

class RandomExpressions : public testing::TestWithParam<int> {};

TEST_P(RandomExpressions, MatchTheReferenceAndTheReferenceTheirMeaning) {
  const int first = from_environment("FLASHCORE_PROPERTY_FIRST", 0) / launches_a_spec;
  const int specs =
      (from_environment("FLASHCORE_PROPERTY_CASES", 300) + launches_a_spec - 1) / launches_a_spec;
  int ran = 0, refused = 0;
  for (int number = first; number < first + specs; ++number) {
    if (number % shards != GetParam()) continue;
    Drawn drawn(static_cast<unsigned>(number));
    SCOPED_TRACE(
        fmt::format("FLASHCORE_PROPERTY_FIRST={} FLASHCORE_PROPERTY_CASES=5 test_templates "
                    "--gtest_filter='*RandomExpressions*'\n  {}",
                    number * launches_a_spec, drawn.text()));
    try {
      EXPECT_EQ(check(drawn.spec), std::vector<std::string>{});
      const Program program = attention_forward(drawn.spec);
      KernelSource source;
      try {
        source = generate(program, drawn.schedule, *drawn.target);
      } catch (const ScheduleError&) {
        ++refused;
        continue;
      }
      for (int launch = 0; launch < launches_a_spec; ++launch) {
        const RunInputs in =
            drawn.draw_launch(program, static_cast<unsigned>(number * 16 + launch));
        SCOPED_TRACE(fmt::format("B {} H {} Sq {} Sk {} spread {}", in.extents.at("B"),
                                 in.extents.at("H"), in.extents.at("Sq"), in.extents.at("Sk"),
                                 in.spread.empty() ? 1 : in.spread.at("q")));
        KernelRun run(program, in);
        const EmulationReport report = run.emulate(source);
        EXPECT_EQ(run.compare(), "");
        for (const OutputCoverage& output : report.outputs) {
          EXPECT_EQ(output.unwritten, 0) << output.name;
          EXPECT_EQ(output.rewritten, 0) << output.name;
        }
        const auto exact =
            evaluate(program.function(), run.views(), in.scalars, {Precision::exact});
        EXPECT_EQ(drawn.plain.compare(drawn.spec, run, in.scalars[0].f32(), exact), "");
        ++ran;
      }
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
  RecordProperty("ran", ran);
  RecordProperty("refused", refused);
  if (ran + refused >= 8) {
    EXPECT_GT(ran, refused * launches_a_spec);
  }
}

INSTANTIATE_TEST_SUITE_P(Shard, RandomExpressions, testing::Range(0, shards));

}  // namespace
}  // namespace flashcore
