// Random small mistakes in generated kernels: nearly all of them have to be found, by the emulator
// or by wrong values. Planted bugs are the mistakes that we thought of; these are the others.
#include "tests/templates/support/mutants.h"

#include <algorithm>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "tests/templates/support/outcome.h"
#include "tests/templates/support/slow_tests.h"

namespace flashcore {
namespace {

/// Tails in rows and keys, and tiles whose first or last row sees just one key more than a tile;
/// blocks that see nothing; more tiles than slots; scores that need their maximum.
const AttentionInputs launches[] = {
    {.batch = 2, .heads = 3, .kv_heads = 3, .q_len = 75, .kv_len = 90},
    {.heads = 5, .kv_heads = 5, .q_len = 129, .kv_len = 97, .spread = 100},
    {.q_len = 70, .kv_len = 71},
    {.q_len = 70, .kv_len = 84},
    {.heads = 5, .kv_heads = 5, .q_len = 70, .kv_len = 5},
    {.heads = 5, .kv_heads = 5, .q_len = 37, .kv_len = 0}};

/// Changes that leave a right kernel, as far as the machine goes.
struct Harmless {
  const char* line;  ///< pattern of the changed line
  const char* reason;
};
const Harmless harmless[] = {
    {R"(fc::prefetch_map)", "a hint"},
    {R"(thread (% 128 == 1|% 12[79] == 0|== 1)\))", "another thread of the warpgroup, or the same"},
    {R"(fc::matrix\(\S.*, 32, 1\))", "where the next panel would be, of a matrix that has one"},
    {R"(chunk_offset<(15|17|31|33), 32>|matrix_address<(15|17|31|33), 32>)", "likewise"},
};

bool is_harmless(const Mutant& mutant) {
  // Of an array: one more element is no mistake.
  static const std::regex array(R"(^ *(float|int|bool|fc::u32) \w+(\[\d+\])+( = \{\})?;)");
  if (mutant.mistake == "+1" && std::regex_search(mutant.before, array)) return true;
  const std::string& line = mutant.mistake == "dropped" ? mutant.before : mutant.after;
  return std::ranges::any_of(harmless, [&](const Harmless& each) {
    return std::regex_search(line, std::regex(each.line));
  });
}

struct Case {
  const char* name;
  const char* target;
  Schedule (*schedule)();
  int drawn, slow;     ///< mutants
  double may_survive;  ///< of a hundred
};

void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }

class Mutants : public testing::TestWithParam<Case> {};

TEST_P(Mutants, AreFound) {
  const Case& parameters = GetParam();
  AttentionSpec spec;
  spec.head_dim = 32;
  spec.mask = causal();
  spec.lse = true;
  const KernelSource source =
      generate(attention_forward(spec), parameters.schedule(), find_target(parameters.target));
  ASSERT_EQ(outcome_of(spec, source, launches).words, "");

  std::vector<Mutant> all = mutants_of(source.body);
  std::erase_if(all, is_harmless);
  std::mt19937 random(1);
  for (std::size_t i = all.size() - 1; i > 0; --i) std::swap(all[i], all[random() % (i + 1)]);

  const bool slow = runs_slow_tests();
  const int wanted = slow ? parameters.slow : parameters.drawn;
  int tried = 0, survived = 0;
  std::string survivors;
  for (const Mutant& mutant : all) {
    if (tried == wanted) break;
    KernelSource changed = source;
    changed.body = mutant.body;
    try {
      const Outcome outcome = outcome_of(spec, changed, launches);
      ++tried;
      if (outcome.fault || !outcome.words.empty()) continue;
    } catch (const CompileError&) {
      continue;  // found by the compiler
    }
    ++survived;
    survivors += fmt::format("line {}, {}\n  {}\n  {}\n", mutant.line, mutant.mistake,
                             mutant.before, mutant.after);
  }
  EXPECT_EQ(tried, wanted);
  // The bound is for many; among the few of a short run harmless ones may be twice as frequent.
  EXPECT_LE(survived * 100, (slow ? 1 : 2) * parameters.may_survive * tried)
      << survived << " of " << tried << " mutants survive:\n"
      << survivors;
}

INSTANTIATE_TEST_SUITE_P(Kernel, Mutants,
                         testing::Values(Case{"mma", "sm_80",
                                              [] {
                                                Schedule schedule;
                                                schedule.tiles = {{"rows", 32}, {"cols", 16}};
                                                schedule.warps_m = 2;
                                                schedule.stages = 2;
                                                return schedule;
                                              },
                                              30, 240, 10},
                                         Case{"wgmma", "sm_90a",
                                              [] {
                                                Schedule schedule;
                                                schedule.instruction = Instruction::wgmma;
                                                schedule.copy = CopyInstruction::tma;
                                                schedule.tiles = {{"rows", 64}, {"cols", 16}};
                                                schedule.persistent = true;
                                                schedule.stages = 2;
                                                return schedule;
                                              },
                                              30, 240, 10}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace flashcore
