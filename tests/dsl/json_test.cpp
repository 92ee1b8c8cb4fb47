#include "dsl/json.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dsl/error.h"

namespace flashcore {
namespace {

using testing::HasSubstr;

template <class Failure, class Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const Failure& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Json, KeepsEveryFieldOfASpec) {
  const AttentionSpec spec{.head_dim = 128,
                           .head_dim_v = 64,
                           .heads = 32,
                           .kv_heads = 8,
                           .dtype = DType::f16,
                           .mask = causal(Align::top_left),
                           .score = alibi({"slopes", DType::f64, 1, /*unit_stride=*/true}),
                           .layout = TensorLayout::bshd,
                           .lse = true,
                           .deterministic = false,
                           .batch = 2,
                           .q_len = 1000};
  const AttentionSpec back = attention_spec_from_json(to_json(spec));
  EXPECT_EQ(back.head_dim, 128);
  EXPECT_EQ(back.head_dim_v, 64);
  EXPECT_EQ(back.heads, 32);
  EXPECT_EQ(back.kv_heads, 8);
  EXPECT_EQ(back.dtype, DType::f16);
  EXPECT_EQ(back.mask, causal(Align::top_left));
  EXPECT_EQ(back.score, alibi({"slopes", DType::f64, 1, /*unit_stride=*/true}));
  EXPECT_EQ(back.layout, TensorLayout::bshd);
  EXPECT_TRUE(back.lse);
  EXPECT_FALSE(back.deterministic);
  EXPECT_EQ(back.batch, 2);
  EXPECT_EQ(back.q_len, 1000);
  EXPECT_EQ(back.kv_len, std::nullopt);
  EXPECT_EQ(to_json(back), to_json(spec));
}

TEST(Json, KeepsThePromisesOfACapturedTensor) {
  const AttentionSpec spec{
      .score = bias({"bias", DType::f16, 2, /*unit_stride=*/true, /*aligned_rows=*/true})};
  EXPECT_EQ(attention_spec_from_json(to_json(spec)).score, spec.score);
}

TEST(Json, KeepsEveryFieldOfASchedule) {
  const Schedule schedule{.tiles = {{"rows", 64}, {"cols", 32}},
                          .warps_m = 2,
                          .warps_n = 2,
                          .keep_operands = true,
                          .staged_stores = false,
                          .last_tiles_first = true,
                          .grid_order = GridOrder::tiles_last,
                          .blocks_per_processor = 2,
                          .stages = 3,
                          .descending = false};
  EXPECT_EQ(schedule_from_json(to_json(schedule)), schedule);
}

TEST(Json, AbsentFieldsKeepTheirDefaults) {
  const Schedule schedule = schedule_from_json(R"({"stages": 4})");
  Schedule expected;
  expected.stages = 4;
  EXPECT_EQ(schedule, expected);
}

TEST(Json, NamesEveryWrongField) {
  const std::string message = message_of<ScheduleError>(
      [] { schedule_from_json(R"({"stage": 4, "warps_m": "four", "grid_order": "random"})"); });
  EXPECT_THAT(message, HasSubstr("stage: no such field"));
  EXPECT_THAT(message, HasSubstr("warps_m: expected a whole number"));
  EXPECT_THAT(message, HasSubstr(R"("random" is not one of tiles_first, tiles_last)"));
  EXPECT_THAT(message, HasSubstr("the fields are tiles, warps_m"));
}

TEST(Json, RenamedFieldsAndValuesAreRefusedByTheirNewNames) {
  const std::string message = message_of<ScheduleError>([] {
    schedule_from_json(
        R"({"alternate": true, "loop_blocks": 2, "scale_late": true, "tile_order": "counter",
            "tile_scheduler": "rounds", "grid_order": "sections", "copy": "counter"})");
  });
  for (const char* expected :
       {"alternate: it is called ping_pong now", "loop_blocks: it is called cluster_splits now",
        "scale_late: it is called rescale_before_product now",
        "tile_order: it is called tile_scheduler now",
        R"(tile_scheduler: "rounds": it is called serpentine now)",
        R"(grid_order: "sections": it is called grouped now)",
        R"("counter" is not one of cp_async)"})
    EXPECT_THAT(message, HasSubstr(expected));
}

TEST(Json, RefusesWhatIsNoSpec) {
  EXPECT_THAT(message_of<SpecError>([] { attention_spec_from_json("[1"); }),
              HasSubstr("not a JSON object"));
  EXPECT_THAT(message_of<SpecError>([] { attention_spec_from_json(R"({"kind": "softmax"})"); }),
              HasSubstr(R"(its kind is "softmax")"));
  EXPECT_THAT(
      message_of<SpecError>([] { attention_spec_from_json(R"({"mask": {"tensors": []}})"); }),
      HasSubstr(R"(mask: {"tensors":[]} has the wrong type)"));
}

TEST(Json, NumbersThatDoNotFitAreRefused) {
  for (const char* number : {"4294967298", "2147483648", "-2147483649", "18446744073709551615"}) {
    EXPECT_THAT(message_of<ScheduleError>(
                    [&] { schedule_from_json(fmt::format(R"({{"stages": {}}})", number)); }),
                HasSubstr(fmt::format("stages: {} does not fit", number)));
    EXPECT_THAT(message_of<SpecError>(
                    [&] { attention_spec_from_json(fmt::format(R"({{"q_len": {}}})", number)); }),
                HasSubstr(fmt::format("q_len: {} does not fit", number)));
    EXPECT_THAT(message_of<ScheduleError>([&] {
                  schedule_from_json(fmt::format(R"({{"tiles": {{"rows": {}}}}})", number));
                }),
                HasSubstr("does not fit"));
  }
  EXPECT_EQ(schedule_from_json(R"({"stages": 2147483647})").stages, 2147483647);
}

TEST(Json, DeepTextIsRefused) {
  for (const char* open : {"[", "{\"tiles\":"}) {
    std::string text = "{\"tiles\": ";
    for (int i = 0; i < 200000; ++i) text += open;
    EXPECT_THAT(message_of<ScheduleError>([&] { schedule_from_json(text); }),
                HasSubstr("its brackets nest more than 64 deep"));
  }
  // Brackets in a text nest nothing.
  const std::string brackets(1000, '(');
  const AttentionSpec spec{.mask = Mask(brackets + "[[{{\"\\" + brackets)};
  EXPECT_EQ(attention_spec_from_json(to_json(spec)).mask, spec.mask);
}

}  // namespace
}  // namespace flashcore
