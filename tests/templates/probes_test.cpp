// Probes show what the kernel computes, and change nothing: the probed kernel writes the same
// bytes, and what its probes hold is what the reference makes of the program, tile by tile as the
// schedule cuts it.
#include "dsl/probes.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "runtime/reference/reference.h"
#include "templates/attention.h"
#include "tests/templates/support/attention_run.h"

namespace flashcore {
namespace {

struct Probed {
  const char* name;
  AttentionSpec spec;
  AttentionInputs in;
  Schedule schedule;
};

void PrintTo(const Probed& one, std::ostream* out) { *out << one.name; }

Schedule small(int warps = 2, bool peel = false) {
  Schedule schedule;
  schedule.tiles = {{"rows", 16 * warps}, {"cols", 32}};
  schedule.warps_m = warps;
  schedule.peel_masks = peel;
  return schedule;
}

Mask every_third() {
  return Mask([](const ScoreSite& s) { return (s.query_index + s.key_index) % 3 == 0; });
}

const Probed cases[] = {
    {"full", {.head_dim = 64}, {.heads = 2, .kv_heads = 2, .q_len = 64, .kv_len = 96}, small()},
    {"odd_lengths", {.head_dim = 40}, {.q_len = 37, .kv_len = 75}, small()},
    {"causal",
     {.head_dim = 64, .mask = causal()},
     {.batch = 2, .q_len = 100, .kv_len = 100},
     small()},
    {"causal_peeled",
     {.head_dim = 64, .mask = causal()},
     {.q_len = 130, .kv_len = 170},
     small(2, true)},
    {"causal_more_queries_than_keys",
     {.head_dim = 32, .mask = causal(), .lse = true},
     {.q_len = 90, .kv_len = 41},
     small()},
    {"not_affine", {.head_dim = 64, .mask = every_third()}, {.q_len = 50, .kv_len = 70}, small()},
    {"grouped_bshd",
     {.head_dim = 64,
      .head_dim_v = 32,
      .heads = 4,
      .kv_heads = 2,
      .dtype = DType::f16,
      .mask = causal(Align::top_left),
      .layout = TensorLayout::bshd},
     {.batch = 2, .heads = 4, .kv_heads = 2, .q_len = 65, .kv_len = 99, .row_gap = 8},
     small(1)},
    {"constant_lengths",
     {.head_dim = 64, .mask = causal(), .q_len = 64, .kv_len = 128},
     {.q_len = 64, .kv_len = 128},
     small(4)},
    {"no_keys", {.head_dim = 64, .mask = causal()}, {.q_len = 20, .kv_len = 0}, small()},
};

std::size_t tensor_of(const Program& program, const std::string& name) {
  const auto& tensors = program.function().tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].name == name) return i;
  ADD_FAILURE() << "no tensor " << name;
  return 0;
}

class Probes : public testing::TestWithParam<Probed> {
 protected:
  /// Runs the kernel with probes of `names`, checks that it does the rest as ever, and keeps the
  /// values.
  void run(const std::vector<std::string>& names) {
    const Probed& one = GetParam();
    const Target& target = find_target("sm_80");
    const Program plain = attention_forward(one.spec);
    const Program program = with_probes(plain, names);
    KernelRun expected = attention_run(one.spec, one.in), probed(program, inputs_of(one));
    (void)expected.emulate(generate(plain, one.schedule, target));
    ir::Function scheduled;
    const KernelSource source =
        generate(program, one.schedule, target, [&](std::string_view pass, const ir::Function& f) {
          if (pass == "mask_tails") scheduled = f;
        });
    const EmulationReport report = probed.emulate(source);
    for (const OutputCoverage& output : report.outputs) EXPECT_EQ(output.rewritten, 0);
    for (std::size_t i = 0; i < plain.function().tensors.size(); ++i)
      EXPECT_EQ(probed.values(i), expected.values(i)) << plain.function().tensors[i].name;

    const ReferenceOptions by_tile{Precision::exact, Tiling::scheduled};
    const ReferenceOptions rounded{Precision::storage, Tiling::scheduled};
    const std::vector<TensorView> views = probed.views();
    const std::vector<ScalarValue> scale = inputs_of(one).scalars;
    const auto exact = evaluate(scheduled, views, scale, by_tile);
    const auto stored = evaluate(scheduled, views, scale, rounded);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      if (!exact[i].name.starts_with("probe_")) continue;
      Seen& seen = seen_.emplace_back();
      seen.name = exact[i].name;
      seen.unwritten = *source.tensors[tensor_of(program, seen.name)].unwritten;
      seen.got = probed.values(tensor_of(program, seen.name));
      seen.want = exact[i].values;
      seen.rounded = stored[i].values;
    }
  }

  struct Seen {
    std::string name;
    double unwritten = 0;
    std::vector<double> got, want, rounded;

    /// Differences from the reference, where the kernel wrote at all if `visited_only`.
    [[nodiscard]] std::string compare(bool visited_only = false) const {
      double allowed = 1e-5;
      for (std::size_t i = 0; i < want.size(); ++i)
        if (std::isfinite(want[i]))
          allowed =
              std::max(allowed, 2 * std::abs(rounded[i] - want[i]) + 2e-6 * std::abs(want[i]));
      if (got.size() != want.size()) return "the sizes differ";
      for (std::size_t i = 0; i < want.size(); ++i) {
        if (visited_only && std::isnan(got[i])) continue;
        if (!(got[i] == want[i]) && !(std::abs(got[i] - want[i]) <= allowed))
          return fmt::format("{}[{}] is {} and should be {}", name, i, got[i], want[i]);
      }
      return "";
    }
    [[nodiscard]] std::size_t missing() const {
      return static_cast<std::size_t>(
          std::count_if(got.begin(), got.end(), [](double x) { return std::isnan(x); }));
    }
  };

  static RunInputs inputs_of(const Probed& one) {
    return {.extents = {{"B", one.in.batch},
                        {"H", one.in.heads},
                        {"Sq", one.in.q_len},
                        {"Sk", one.in.kv_len}},
            .scalars = {1 / std::sqrt(static_cast<double>(one.spec.head_dim))},
            .row_gap = one.in.row_gap,
            .seed = one.in.seed};
  }

  std::vector<Seen> seen_;
};

TEST_P(Probes, ShowScoresAndProbs) {
  run({"scores", "probs"});
  ASSERT_EQ(seen_.size(), 2u);
  EXPECT_EQ(seen_[0].name, "probe_scores");
  EXPECT_EQ(seen_[1].name, "probe_probs");
  EXPECT_EQ(seen_[0].compare(), "");
  EXPECT_EQ(seen_[1].compare(), "");
  if (!GetParam().spec.mask.is_full()) {
    EXPECT_EQ(seen_[0].unwritten, -INFINITY);
    EXPECT_EQ(seen_[1].unwritten, 0);
  }
}

TEST_P(Probes, ShowWhatIsKnownAfterTheLoop) {
  run({"row_sum", "out", "row_max"});
  for (const Seen& seen : seen_) EXPECT_EQ(seen.compare(), "");
}

TEST_P(Probes, OneAtATime) {
  run({"probs"});
  EXPECT_EQ(seen_.at(0).compare(), "");
}

INSTANTIATE_TEST_SUITE_P(All, Probes, testing::ValuesIn(cases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace flashcore
