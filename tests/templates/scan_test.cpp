// Masks whose tiles a scan finds, as kernels in the emulator: they visit what holds something,
// mask what holds something hidden, give the right values under every schedule, and a scan that
// is wrong shows.
#include <functional>
#include <regex>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "dsl/variants.h"
#include "templates/attention.h"
#include "tests/templates/support/attention_run.h"
#include "tests/templates/support/round_counts.h"

namespace flashcore {
namespace {

constexpr int rows = 32;

struct Scanned {
  const char* name;
  Tile (*visible)(const ScoreSite& s);
  /// The mask once more, on numbers.
  bool (*sees)(int q, int k, int q_len, int k_len);
};

void PrintTo(const Scanned& mask, std::ostream* out) { *out << mask.name; }

const Scanned masks[] = {
    {"prefix", [](const ScoreSite& s) { return s.key_index < 40 || s.query_index >= s.key_index; },
     [](int q, int k, int, int) { return k < 40 || q >= k; }},
    {"window_and_prefix",
     [](const ScoreSite& s) {
       const Tile at = s.query_index + (s.key_length - s.query_length);
       return s.key_index < 5 || (s.key_index > at - 20 && s.key_index <= at);
     },
     [](int q, int k, int n, int m) { return k < 5 || (k > q + m - n - 20 && k <= q + m - n); }},
    {"chunks", [](const ScoreSite& s) { return s.query_index / 24 == s.key_index / 24; },
     [](int q, int k, int, int) { return q / 24 == k / 24; }},
    {"far", [](const ScoreSite& s) { return abs(s.query_index - s.key_index) > 30; },
     [](int q, int k, int, int) { return std::abs(q - k) > 30; }},
    {"dilated",
     [](const ScoreSite& s) {
       return (s.query_index - s.key_index) % 3 == 0 && s.query_index / 40 == s.key_index / 40;
     },
     [](int q, int k, int, int) { return (q - k + 300) % 3 == 0 && q / 40 == k / 40; }},
    {"not_causal", [](const ScoreSite& s) { return !(s.query_index >= s.key_index); },
     [](int q, int k, int, int) { return q < k; }},
};

AttentionSpec spec_of(const Scanned& scanned) {
  AttentionSpec spec;
  spec.head_dim = 16;
  spec.lse = true;
  spec.mask = Mask([scanned](const ScoreSite& s) { return scanned.visible(s); });
  return spec;
}

Schedule schedule_of(int cols, int stages, bool descending) {
  Schedule schedule;
  schedule.tiles = {{"rows", rows}, {"cols", cols}};
  schedule.warps_m = 2;
  schedule.stages = stages;
  schedule.descending = descending;
  return schedule;
}

Counts expected(const Scanned& mask, int cols, int block, int q_len, int k_len) {
  Counts counts;
  for (int tile = 0; tile * cols < k_len; ++tile) {
    bool some = false, all = tile * cols + cols <= k_len;
    for (int q = block * rows; q < std::min(q_len, block * rows + rows); ++q)
      for (int k = tile * cols; k < std::min(k_len, tile * cols + cols); ++k) {
        const bool sees = mask.sees(q, k, q_len, k_len);
        some = some || sees;
        all = all && sees;
      }
    counts.visited += some ? 1 : 0;
    counts.masked += some && !all ? 1 : 0;
  }
  return counts;
}

class Scans : public testing::TestWithParam<Scanned> {};

TEST_P(Scans, FindExactlyTheTiles) {
  const AttentionSpec spec = spec_of(GetParam());
  for (const auto& [cols, stages, descending] :
       std::vector<std::tuple<int, int, bool>>{{16, 2, false}, {16, 3, true}, {48, 1, true}}) {
    const KernelSource source =
        counting(generate(attention_forward(spec), schedule_of(cols, stages, descending),
                          find_target("sm_90")),
                 true);
    for (const auto& [q_len, k_len] : std::vector<std::pair<int, int>>{
             {1, 1}, {75, 90}, {90, 75}, {33, 300}, {64, 64}, {40, 0}}) {
      KernelRun run = attention_run(spec, {.q_len = q_len, .kv_len = k_len});
      (void)run.emulate(source);
      const std::vector<double> rounds = run.values(4);
      for (int block = 0; block * rows < q_len; ++block)
        EXPECT_EQ(Counts::read(rounds[static_cast<std::size_t>(block * rows)]),
                  expected(GetParam(), cols, block, q_len, k_len))
            << "block " << block << " of " << q_len << " queries and " << k_len << " keys";
    }
  }
}

TEST_P(Scans, GiveTheRightValues) {
  AttentionSpec spec = spec_of(GetParam());
  for (const bool constant : {false, true})
    for (const int stages : {1, 2, 3, 4}) {
      Schedule schedule = schedule_of(16, stages, stages % 2 == 0);
      schedule.keep_operands = stages == 3;
      schedule.peel_masks = stages > 2;
      if (constant) spec.q_len = 75, spec.kv_len = 170;
      const KernelSource source = generate(attention_forward(spec), schedule, find_target("sm_80"));
      for (const auto& [q_len, k_len] :
           std::vector<std::pair<int, int>>{{75, 170}, {20, 5}, {37, 0}}) {
        if (constant && k_len != 170) continue;
        KernelRun run =
            attention_run(spec, {.batch = 1, .heads = 2, .q_len = q_len, .kv_len = k_len});
        (void)run.emulate(source);
        EXPECT_EQ(run.compare(), "") << stages << " stages";
      }
    }
}

/// A block keeps what it found for all its heads, the last of which has fewer than the others; rows
/// beyond the keys may see nothing, and wait for nothing.
TEST_P(Scans, ServeAllHeadsOfABlock) {
  const AttentionSpec spec = spec_of(GetParam());
  for (const int stages : {1, 2}) {
    Schedule schedule;
    schedule.instruction = Instruction::wgmma;
    schedule.copy = CopyInstruction::tma;
    schedule.tiles = {{"rows", 64}, {"cols", 16}};
    schedule.stages = stages;
    schedule.positions_per_block = 3;
    for (const bool descending : {false, true})
      for (const int outer_stages : {1, 2}) {
        schedule.descending = descending;
        schedule.outer_stages = outer_stages;
        const KernelSource source =
            generate(attention_forward(spec), schedule, find_target("sm_90a"));
        for (const auto& [q_len, k_len] :
             std::vector<std::pair<int, int>>{{75, 170}, {150, 20}, {37, 0}}) {
          KernelRun run =
              attention_run(spec, {.batch = 1, .heads = 4, .q_len = q_len, .kv_len = k_len});
          (void)run.emulate(source);
          EXPECT_EQ(run.compare(), "")
              << stages << " stages, " << outer_stages << " queries, " << q_len;
        }
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Mask, Scans, testing::ValuesIn(masks),
                         [](const auto& info) { return std::string(info.param.name); });

// ---- documents

KernelRun document_run(const AttentionSpec& spec, int length, const std::vector<double>& ids) {
  RunInputs in{.extents = {{"B", 1}, {"H", 1}, {"Sq", length}, {"Sk", length}}, .scalars = {0.25}};
  const Program program = attention_forward(spec);
  for (const ir::Tensor& tensor : program.function().tensors)
    if (tensor.gathered) {
      in.extents[tensor.dims[0].name] = 1;
      in.extents[tensor.dims[1].name] = length;
      in.values[tensor.name] = ids;
    }
  return {program, in};
}

TEST(DocumentSurveys, FindExactlyTheTilesAndGiveTheRightValues) {
  AttentionSpec spec;
  spec.head_dim = 16;
  spec.lse = true;
  spec.mask = documents({"doc", DType::i32, 2}) & causal();
  const int length = 150, cols = 16;
  std::vector<double> ids;
  for (const int end : {40, 41, 100, 149, 150})
    while (static_cast<int>(ids.size()) < end) ids.push_back(end);
  const auto sees = [&](int q, int k) { return ids[q] == ids[k] && q >= k; };
  for (const int stages : {1, 2, 3}) {
    const KernelSource source = generate(
        attention_forward(spec), schedule_of(cols, stages, stages != 2), find_target("sm_90"));
    KernelRun run = document_run(spec, length, ids);
    (void)run.emulate(source);
    EXPECT_EQ(run.compare(), "") << stages << " stages";
    KernelRun counted = document_run(spec, length, ids);
    (void)counted.emulate(counting(source, true));
    const std::vector<double> rounds = counted.values(4);
    for (int block = 0; block * rows < length; ++block) {
      Counts counts;
      for (int tile = 0; tile * cols < length; ++tile) {
        bool some = false, all = tile * cols + cols <= length;
        for (int q = block * rows; q < std::min(length, block * rows + rows); ++q)
          for (int k = tile * cols; k < std::min(length, tile * cols + cols); ++k) {
            some = some || sees(q, k);
            all = all && sees(q, k);
          }
        counts.visited += some ? 1 : 0;
        counts.masked += some && !all ? 1 : 0;
      }
      EXPECT_EQ(Counts::read(rounds[static_cast<std::size_t>(block * rows)]), counts)
          << "block " << block;
    }
  }
}

// ---- planted bugs

class PlantedScans : public testing::Test {
 protected:
  AttentionSpec spec_ = spec_of(masks[1]);
  KernelSource source_ =
      generate(attention_forward(spec_), schedule_of(16, 2, false), find_target("sm_80"));

  /// What is wrong with the kernel after a change that it must have a place for.
  std::string outcome(const char* pattern, const char* format) {
    KernelSource changed = source_;
    changed.body = replaced_text(source_.body, pattern, format);
    KernelRun run = attention_run(spec_, {.q_len = 75, .kv_len = 90});
    try {
      (void)run.emulate(changed);
    } catch (const EmulatorError& error) {
      return error.what();
    }
    return run.compare();
  }
};

TEST_F(PlantedScans, TheKernelItselfIsRight) { EXPECT_EQ(outcome("found", "seen"), ""); }

TEST_F(PlantedScans, ATileThatIsDropped) {
  for (const char* n : {"0", "1", "2", "3"})
    EXPECT_NE(outcome(R"(\? 1u : 0u\) << n)", fmt::format("&& n != {} $&", n).c_str()), "") << n;
}

TEST_F(PlantedScans, AMaskThatIsDropped) { EXPECT_NE(outcome("256u", "0u"), ""); }

TEST_F(PlantedScans, AWarpThatDoesNotDoItsShare) {
  EXPECT_NE(outcome(R"(cols_group = 0 / 8 \+ warp)", "cols_group = 0 / 8 + warp + 1"), "");
}

TEST_F(PlantedScans, ALoopThatAsksForTheNextTileTooSoon) {
  KernelSource changed = source_;
  const std::size_t at = changed.body.find("fc::barrier();", changed.body.find("fc::note_tiles"));
  ASSERT_NE(at, std::string::npos);
  changed.body.erase(at, std::string("fc::barrier();").size());
  KernelRun run = attention_run(spec_, {.q_len = 75, .kv_len = 90});
  EXPECT_THROW((void)run.emulate(changed), EmulatorError);
}

}  // namespace
}  // namespace flashcore
