// A mask bounds the loop over keys exactly: a block visits the tiles that hold something visible,
// and masks those of them that hold something hidden. The kernel is made to count its own
// iterations and to write the counts where it would write lse.
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "templates/attention.h"
#include "tests/templates/support/attention_run.h"
#include "tests/templates/support/round_counts.h"

namespace flashcore {
namespace {

constexpr int rows = 32, cols = 16;

struct Bounded {
  const char* name;
  Mask mask;
  /// The mask once more, on numbers.
  bool (*visible)(int q, int k, int q_len, int k_len);
};

void PrintTo(const Bounded& mask, std::ostream* out) { *out << mask.name; }

Mask window(int left, int right) {
  return Mask([=](const ScoreSite& s) {
    const Tile at = s.query_index + (s.key_length - s.query_length);
    return s.key_index >= at - left && s.key_index <= at + right;
  });
}

const Bounded masks[] = {
    {"full", full(), [](int, int, int, int) { return true; }},
    {"causal", causal(), [](int q, int k, int n, int m) { return q + m - n >= k; }},
    {"causal_top_left", causal(Align::top_left), [](int q, int k, int, int) { return q >= k; }},
    {"window_20_3", window(20, 3),
     [](int q, int k, int n, int m) { return k >= q + m - n - 20 && k <= q + m - n + 3; }},
    {"window_0_0", window(0, 0), [](int q, int k, int n, int m) { return k == q + m - n; }},
    {"window_60_40", window(60, 40),
     [](int q, int k, int n, int m) { return k >= q + m - n - 60 && k <= q + m - n + 40; }},
    {"steep", Mask([](const ScoreSite& s) { return s.query_index * 2 > s.key_index; }),
     [](int q, int k, int, int) { return 2 * q > k; }},
    {"from_17", Mask([](const ScoreSite& s) { return s.key_index >= 17; }),
     [](int, int k, int, int) { return k >= 17; }},
    {"nothing", Mask([](const ScoreSite& s) { return s.key_index < 0; }),
     [](int, int, int, int) { return false; }},
};

Counts expected(const Bounded& mask, int block, int q_len, int k_len) {
  Counts counts;
  for (int tile = 0; tile * cols < k_len; ++tile) {
    bool some = false, all = tile * cols + cols <= k_len;
    for (int q = block * rows; q < std::min(q_len, block * rows + rows); ++q)
      for (int k = tile * cols; k < std::min(k_len, tile * cols + cols); ++k) {
        const bool sees = mask.visible(q, k, q_len, k_len);
        some = some || sees;
        all = all && sees;
      }
    counts.visited += some ? 1 : 0;
    counts.masked += some && !all ? 1 : 0;
  }
  return counts;
}

class LoopBounds : public testing::TestWithParam<Bounded> {};

TEST_P(LoopBounds, AreExact) {
  const Bounded& mask = GetParam();
  AttentionSpec spec;
  spec.head_dim = 16;
  spec.lse = true;
  spec.mask = mask.mask;
  Schedule schedule;
  schedule.tiles = {{"rows", rows}, {"cols", cols}};
  schedule.warps_m = 2;
  for (const bool descending : {false, true}) {
    schedule.descending = descending;
    // A loop that is known to visit no tile has no masks.
    const bool is_masked = std::string_view(mask.name) != "nothing";
    const KernelSource source =
        counting(generate(attention_forward(spec), schedule, find_target("sm_90")), is_masked);
    for (const auto& [q_len, k_len] : std::vector<std::pair<int, int>>{{1, 1},
                                                                       {1, 90},
                                                                       {75, 90},
                                                                       {90, 75},
                                                                       {97, 33},
                                                                       {33, 97},
                                                                       {64, 64},
                                                                       {40, 16},
                                                                       {40, 0}}) {
      KernelRun run = attention_run(spec, {.q_len = q_len, .kv_len = k_len});
      (void)run.emulate(source);
      const std::vector<double> rounds = run.values(4);
      for (int block = 0; block * rows < q_len; ++block) {
        EXPECT_EQ(Counts::read(rounds[static_cast<std::size_t>(block * rows)]),
                  expected(mask, block, q_len, k_len))
            << "block " << block << " of " << q_len << " queries and " << k_len << " keys";
      }
    }
  }
}

TEST_P(LoopBounds, AreExactWhenLengthsAreConstants) {
  const Bounded& mask = GetParam();
  AttentionSpec spec;
  spec.head_dim = 16;
  spec.lse = true;
  spec.mask = mask.mask;
  Schedule schedule;
  schedule.tiles = {{"rows", rows}, {"cols", cols}};
  schedule.warps_m = 2;
  schedule.peel_masks = true;
  for (const auto& [q_len, k_len] :
       std::vector<std::pair<int, int>>{{75, 90}, {90, 75}, {64, 64}}) {
    spec.q_len = q_len;
    spec.kv_len = k_len;
    KernelRun run = attention_run(spec, {.q_len = q_len, .kv_len = k_len});
    (void)run.emulate(
        counting(generate(attention_forward(spec), schedule, find_target("sm_90")), false));
    const std::vector<double> rounds = run.values(4);
    for (int block = 0; block * rows < q_len; ++block)
      EXPECT_EQ(rounds[static_cast<std::size_t>(block * rows)],
                expected(mask, block, q_len, k_len).visited)
          << "block " << block << " of " << q_len << " queries and " << k_len << " keys";
  }
}

INSTANTIATE_TEST_SUITE_P(Mask, LoopBounds, testing::ValuesIn(masks),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace flashcore
