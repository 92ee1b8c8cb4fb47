// Every mask, score and sink that ships, in both dtypes and at the lengths where loops begin and
// end, against its definition: kernel against reference, and reference against attention written
// out.
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "runtime/reference/reference.h"
#include "templates/attention.h"
#include "tests/support/kernel_run.h"
#include "tests/templates/support/plain_attention.h"

namespace flashcore {
namespace {

struct Lengths {
  const char* name;
  int q_len, kv_len;
  bool nothing_visible = false;
};

const Lengths lengths[] = {{"whole_tiles", 64, 96},          {"odd", 45, 83},
                           {"longer_than_keys", 70, 31},     {"one_row", 1, 77},
                           {"no_visible_key", 33, 50, true}, {"no_keys", 20, 0}};

/// A tensor and its elements.
struct Given {
  std::vector<CapturedValues> tensors;
  [[nodiscard]] double at(std::size_t tensor, const std::vector<int>& index) const {
    return tensors[tensor].at({index.begin(), index.end()});
  }
};

Given given(const std::vector<CapturedValues>& tensors) { return {tensors}; }

CapturedValues tensor(const char* name, DType dtype, std::vector<std::int64_t> shape,
                      const std::function<double(int)>& element) {
  CapturedValues made{{name, dtype, static_cast<int>(shape.size())}, shape, {}};
  std::int64_t count = 1;
  for (std::int64_t size : shape) count *= size;
  for (int i = 0; i < count; ++i) made.values.push_back(element(i));
  return made;
}

struct Variant {
  const char* name;
  AttentionSpec spec;
  PlainAttention plain;
  Given given = {};
};

void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

Variant masked(const char* name, Mask mask, std::function<bool(const Site&)> visible,
               Given given = {}) {
  Variant variant{name, {}, {}, std::move(given)};
  variant.spec.mask = std::move(mask);
  variant.plain.visible = std::move(visible);
  return variant;
}
Variant scored(const char* name, Score score, std::function<double(const Site&)> meaning,
               Given given = {}) {
  Variant variant{name, {}, {}, std::move(given)};
  variant.spec.score = std::move(score);
  variant.plain.score = std::move(meaning);
  return variant;
}

int diagonal(const Site& s) { return s.q_idx + s.kv_len - s.q_len; }

std::vector<Variant> variants() {
  const Given ids = given({tensor("ids", DType::i32, {100}, [](int i) { return i / 23; })});
  const Given by_batch = given(
      {tensor("ids", DType::i64, {2, 100}, [](int i) { return i % 100 / (i < 100 ? 17 : 40); })});
  const Given two =
      given({tensor("q_ids", DType::u8, {2, 80}, [](int i) { return i % 80 / 11; }),
             tensor("kv_ids", DType::i16, {2, 100}, [](int i) { return i % 100 / 13; })});
  const Given prefixes =
      given({tensor("lengths", DType::i32, {2}, [](int i) { return 37 - 30 * i; })});
  const Given slopes =
      given({tensor("slopes", DType::f32, {2}, [](int i) { return 0.25 / (1 << i); })});
  const Given table =
      given({tensor("table", DType::bf16, {2, 41}, [](int i) { return (i * 7 % 31 - 15) / 8.0; })});
  const auto bias_of = [](std::vector<std::int64_t> shape) {
    return given({tensor("added", DType::f16, std::move(shape),
                         [](int i) { return (i * 13 % 37 - 18) / 8.0; })});
  };
  const Given bias2 = bias_of({70, 96}), bias3 = bias_of({2, 70, 96}),
              bias4 = bias_of({2, 2, 70, 96});
  const Given logits =
      given({tensor("logits", DType::bf16, {2}, [](int i) { return 1.5 - 3 * i; })});
  const auto first = [](const Given& g) { return g.tensors[0].tensor; };

  std::vector<Variant> all{
      masked("full", full(), [](const Site&) { return true; }),
      masked("causal", causal(), [](const Site& s) { return s.kv_idx <= diagonal(s); }),
      masked("causal_top_left", causal(Align::top_left),
             [](const Site& s) { return s.kv_idx <= s.q_idx; }),
      masked("window", sliding_window(20, 5),
             [](const Site& s) {
               return s.kv_idx >= diagonal(s) - 20 && s.kv_idx <= diagonal(s) + 5;
             }),
      masked("window_to_the_left", sliding_window(9, 0, Align::top_left),
             [](const Site& s) { return s.kv_idx >= s.q_idx - 9 && s.kv_idx <= s.q_idx; }),
      masked("window_open_left", sliding_window(-1, 3),
             [](const Site& s) { return s.kv_idx <= diagonal(s) + 3; }),
      masked("window_open_right", sliding_window(12, -1),
             [](const Site& s) { return s.kv_idx >= diagonal(s) - 12; }),
      masked("prefix_or_causal", prefix(25) | causal(),
             [](const Site& s) { return s.kv_idx < 25 || s.kv_idx <= diagonal(s); }),
      masked(
          "prefix_by_batch", prefix(first(prefixes)),
          [=](const Site& s) { return s.kv_idx < prefixes.at(0, {s.b}); }, prefixes),
      masked(
          "documents", documents(first(ids)),
          [=](const Site& s) { return ids.at(0, {s.q_idx}) == ids.at(0, {s.kv_idx}); }, ids),
      masked(
          "documents_by_batch_and_causal", documents(first(by_batch)) & causal(Align::top_left),
          [=](const Site& s) {
            return by_batch.at(0, {s.b, s.q_idx}) == by_batch.at(0, {s.b, s.kv_idx}) &&
                   s.kv_idx <= s.q_idx;
          },
          by_batch),
      masked(
          "documents_of_two", documents(first(two), two.tensors[1].tensor),
          [=](const Site& s) {
            return two.at(0, {s.b, s.q_idx}) == two.at(1, {s.b, s.kv_idx});
          },
          two),
      masked("chunked", chunked(24), [](const Site& s) { return s.q_idx / 24 == s.kv_idx / 24; }),
      masked("dilated", dilated(3), [](const Site& s) { return (s.q_idx - s.kv_idx) % 3 == 0; }),
      masked("dilated_in_a_window", dilated(2) & sliding_window(30, 30),
             [](const Site& s) {
               return (s.q_idx - s.kv_idx) % 2 == 0 && std::abs(s.kv_idx - diagonal(s)) <= 30;
             }),
      masked("not_causal", ~causal(Align::top_left),
             [](const Site& s) { return s.kv_idx > s.q_idx; }),
      scored(
          "alibi", alibi(first(slopes)),
          [=](const Site& s) { return s.score + slopes.at(0, {s.h}) * (s.kv_idx - diagonal(s)); },
          slopes),
      scored("softcap", softcap(4), [](const Site& s) { return 4 * std::tanh(s.score / 4); }),
      // All scores are a small part of the cap, and some warps' are: each has arithmetic of its
      // own.
      scored("softcap_far_above", softcap(60),
             [](const Site& s) { return 60 * std::tanh(s.score / 60); }),
      // Bounded closely enough for softmax to subtract a constant.
      scored("softcap_bounded", softcap(50),
             [](const Site& s) { return 50 * std::tanh(s.score / 50); }),
      scored("softcap_above_some", softcap(15),
             [](const Site& s) { return 15 * std::tanh(s.score / 15); }),
      scored(
          "relative_bias", relative_bias(first(table), 20),
          [=](const Site& s) {
            return s.score + table.at(0, {s.h, s.kv_idx - s.q_idx + 20});
          },
          table),
      scored(
          "bias_of_positions", bias(first(bias2)),
          [=](const Site& s) {
            return s.score + bias2.at(0, {s.q_idx, s.kv_idx});
          },
          bias2),
      scored(
          "bias_by_head", bias(first(bias3)),
          [=](const Site& s) {
            return s.score + bias3.at(0, {s.h, s.q_idx, s.kv_idx});
          },
          bias3),
      scored(
          "bias_by_batch_and_head", bias(first(bias4)),
          [=](const Site& s) {
            return s.score + bias4.at(0, {s.b, s.h, s.q_idx, s.kv_idx});
          },
          bias4),
  };
  Variant sink = masked(
      "sinks", full(), [](const Site&) { return true; }, logits);
  sink.spec.sink = sinks(first(logits));
  sink.plain.sink = [=](const Site& s) { return logits.at(0, {s.h}); };
  all.push_back(sink);
  Variant softcapped =
      masked("softcap_and_causal", causal(), [](const Site& s) { return s.kv_idx <= diagonal(s); });
  softcapped.spec.score = softcap(30);
  softcapped.plain.score = [](const Site& s) { return 30 * std::tanh(s.score / 30); };
  all.push_back(softcapped);
  // What the mask hides is no product, but made of one in the same breath as the mask.
  Variant softcap_sum = masked(
      "softcap_of_a_bias_and_causal", causal(),
      [](const Site& s) { return s.kv_idx <= diagonal(s); }, bias2);
  softcap_sum.spec.score = bias(first(bias2));
  softcap_sum.spec.score.text =
      fmt::format("sum = {}; 20.0 * tanh(sum / 20.0)", softcap_sum.spec.score.text);
  softcap_sum.plain.score = [=](const Site& s) {
    return 20 * std::tanh((s.score + bias2.at(0, {s.q_idx, s.kv_idx})) / 20);
  };
  all.push_back(softcap_sum);
  // The mask stands behind the score, and asks for a distance that the score has made.
  Variant distance =
      masked("distance_in_mask_and_score",
             Mask("q_idx - kv_idx <= 8 * (h + 1) | kv_idx <= q_idx & q_idx // 4 == kv_idx // 4"),
             [](const Site& s) {
               const bool near = s.kv_idx <= s.q_idx && s.q_idx / 4 == s.kv_idx / 4;
               return s.q_idx - s.kv_idx <= 8 * (s.h + 1) || near;
             });
  distance.spec.score = Score("20.0 * tanh(score / 20.0) - log(1 + abs(q_idx - kv_idx))");
  distance.plain.score = [](const Site& s) {
    return 20 * std::tanh(s.score / 20) - std::log(1 + std::abs(s.q_idx - s.kv_idx));
  };
  all.push_back(distance);
  // A choice between scores runs where it is made at all, and so does the tanh that no other tile
  // asks for.
  Variant near = masked("tanh_of_most_keys", Mask("kv_idx <= q_idx"),
                        [](const Site& s) { return s.kv_idx <= s.q_idx; });
  near.spec.score =
      Score("where(kv_idx < h + 3, sqrt(abs(score) + 1.5), tanh(score / (abs(score) + 0.5)))");
  near.plain.score = [](const Site& s) {
    return s.kv_idx < s.h + 3 ? std::sqrt(std::abs(s.score) + 1.5)
                              : std::tanh(s.score / (std::abs(s.score) + 0.5));
  };
  all.push_back(near);
  Variant together = masked(
      "alibi_window_and_sinks", sliding_window(40, 0),
      [](const Site& s) { return s.kv_idx >= diagonal(s) - 40 && s.kv_idx <= diagonal(s); },
      given({slopes.tensors[0], logits.tensors[0]}));
  together.spec.score = alibi(first(slopes));
  together.plain.score = [=](const Site& s) {
    return s.score + slopes.at(0, {s.h}) * (s.kv_idx - diagonal(s));
  };
  together.spec.sink = sinks(first(logits));
  together.plain.sink = [=](const Site& s) { return logits.at(0, {s.h}); };
  all.push_back(together);
  return all;
}

class Variants : public testing::TestWithParam<Variant> {
 protected:
  void run(DType dtype, const Schedule& schedule, const char* target = "sm_80") {
    Variant variant = GetParam();
    variant.spec.head_dim = 32;
    variant.spec.dtype = dtype;
    variant.spec.lse = true;
    for (const bool nothing_visible : {false, true}) {
      AttentionSpec spec = variant.spec;
      PlainAttention plain = variant.plain;
      if (nothing_visible) {
        spec.mask = spec.mask & Mask("kv_idx < 0");
        plain.visible = [](const Site&) { return false; };
      }
      const Program program = attention_forward(spec);
      const KernelSource source = generate(program, schedule, find_target(target));
      for (const Lengths& one : lengths) {
        if (one.nothing_visible != nothing_visible) continue;
        SCOPED_TRACE(one.name);
        RunInputs in{.extents = {{"B", 2}, {"H", 2}, {"Sq", one.q_len}, {"Sk", one.kv_len}},
                     .scalars = {1 / std::sqrt(32.)}};
        for (const ir::Tensor& declared : program.function().tensors)
          for (const CapturedValues& values : variant.given.tensors) {
            if (values.tensor.name != declared.name) continue;
            in.values[declared.name] = values.values;
            for (std::size_t d = 0; d < declared.dims.size(); ++d)
              in.extents[declared.dims[d].name] = values.shape[d];
          }
        KernelRun run(program, in);
        const EmulationReport report = run.emulate(source);
        EXPECT_EQ(run.compare(), "");
        for (const OutputCoverage& output : report.outputs)
          EXPECT_EQ(output.unwritten, 0) << output.name;
        const auto exact =
            evaluate(program.function(), run.views(), in.scalars, {Precision::exact});
        EXPECT_EQ(plain.compare(spec, run, in.scalars[0].f32(), exact), "");
      }
    }
  }
};

Schedule small_tiles() {
  Schedule schedule;
  schedule.tiles = {{"rows", 32}, {"cols", 16}};
  schedule.warps_m = 2;
  return schedule;
}

TEST_P(Variants, AreTheirDefinitionInBf16) { run(DType::bf16, small_tiles()); }
TEST_P(Variants, AreTheirDefinitionInF16) {
  Schedule schedule = small_tiles();
  schedule.peel_masks = true;
  run(DType::f16, schedule);
}
TEST_P(Variants, AreTheirDefinitionOnHopper) {
  Schedule schedule;
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  schedule.tiles = {{"rows", 64}, {"cols", 16}};
  run(DType::bf16, schedule, "sm_90a");
}

INSTANTIATE_TEST_SUITE_P(All, Variants, testing::ValuesIn(variants()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace flashcore
