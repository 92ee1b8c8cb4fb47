// What kernels of mma.sync and cp.async cannot do without: barriers, waits, commits and bounds.
#include "tests/templates/support/planted_bugs.h"

#include <regex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "codegen/generate.h"

namespace flashcore {
namespace {

Schedule small_schedule(int stages) {
  Schedule schedule;
  schedule.tiles = {{"rows", 32}, {"cols", 16}};
  schedule.warps_m = 2;
  schedule.stages = stages;
  schedule.descending = false;
  return schedule;
}

class PlantedBugs : public testing::TestWithParam<Variant> {
 protected:
  AttentionSpec spec_ = small_spec();
  KernelSource source_ = make();

 private:
  [[nodiscard]] KernelSource make() const {
    Schedule schedule = small_schedule(GetParam().stages);
    GetParam().change(schedule);
    return generate(attention_forward(spec_), schedule, find_target("sm_80"));
  }
};

/// What is not rounded the product would cut off, and what it reads in another order of terms is
/// another product.
TEST(PlantedInTf32, EveryRoundingAndEveryTermIsNeeded) {
  AttentionSpec spec = small_spec();
  spec.dtype = DType::f32;
  spec.products = Products::tf32;
  Schedule schedule = small_schedule(2);
  schedule.instruction = Instruction::mma_m16n8k8_tf32;
  const KernelSource source = generate(attention_forward(spec), schedule, find_target("sm_80"));
  EXPECT_EQ(outcome_of(spec, source, few_tiles).words, "");
  EXPECT_GE(expect_missed(spec, source, R"(fc::round_tf32\([^;]*;)", "", {FaultKind::bad_operand}),
            3);
  const std::regex second_term(R"(lane % 4 \* 2 \+ 1)");
  const std::vector<std::smatch> terms = matches(source.body, second_term);
  EXPECT_GE(terms.size(), 2u);
  for (const std::smatch& place : terms)
    EXPECT_NE(outcome_of(spec, replaced(source, place, "lane % 4 * 2"), few_tiles).words, "");
}

TEST_P(PlantedBugs, TheKernelItselfIsRight) { expect_right(spec_, source_, few_tiles); }

TEST_P(PlantedBugs, EveryBarrierIsNeeded) {
  EXPECT_GE(expect_missed(spec_, source_, R"(fc::barrier\(\);)", "",
                          {FaultKind::race, FaultKind::in_flight, FaultKind::uninitialized}),
            1);
}

TEST_P(PlantedBugs, EveryWaitIsNeeded) {
  std::string wait = R"(fc::wait_copies<\d+>\(\);)";
  if (!GetParam().last_wait_is_needed) wait += R"((?=[^]*fc::wait_copies))";
  EXPECT_GE(
      expect_missed(spec_, source_, wait, "", {FaultKind::in_flight, FaultKind::uninitialized}), 1);
}

TEST_P(PlantedBugs, EveryCommitIsNeeded) {
  EXPECT_GE(expect_missed(spec_, source_, R"(fc::commit_copies\(\);)", "",
                          {FaultKind::in_flight, FaultKind::uninitialized}),
            2);
}

INSTANTIATE_TEST_SUITE_P(
    Schedule, PlantedBugs,
    testing::Values(
        Variant{"one_stage", 1, [](Schedule&) {}}, Variant{"two_stages", 2, [](Schedule&) {}},
        Variant{"three_stages", 3, [](Schedule& s) { s.descending = true; }},
        Variant{"kept_operands", 2, [](Schedule& s) { s.keep_operands = true; }, false},
        Variant{"two_warps_along_keys", 2,
                [](Schedule& s) {
                  s.warps_n = 2;
                  s.tiles["cols"] = 32;
                }},
        Variant{"softmax_in_shared_memory", 2, [](Schedule& s) { s.softmax = Softmax::shared; }},
        Variant{"opaque_blocks", 1,
                [](Schedule& s) {
                  s.softmax = Softmax::shared;
                  s.instruction = Instruction::wmma;
                }},
        Variant{"peeled", 2, [](Schedule& s) { s.peel_masks = true; }},
        Variant{"plain_stores", 2, [](Schedule& s) { s.staged_stores = false; }, false}),
    [](const auto& info) { return std::string(info.param.name); });

class PlantedBounds : public testing::Test {
 protected:
  AttentionSpec spec_ = small_spec();
  KernelSource source_ =
      generate(attention_forward(spec_), small_schedule(2), find_target("sm_80"));
};

TEST_F(PlantedBounds, EveryRowBoundIsNeeded) {
  // Copies of q, k and v, ahead and in the loop, and the stores.
  EXPECT_GE(expect_missed(spec_, source_, R"((i \* \d+ < rows_left|rows_left > 0))", "true",
                          {FaultKind::out_of_bounds}),
            6);
}

TEST_F(PlantedBounds, ALoopThatGoesOneTileTooFar) {
  EXPECT_EQ(
      expect_missed(spec_, source_, R"(cols_tile < cols_end;)", "cols_tile < cols_end + 1;",
                    {FaultKind::out_of_bounds, FaultKind::in_flight, FaultKind::uninitialized}),
      1);
}

TEST_F(PlantedBounds, ALoopThatEndsATileEarlyGivesWrongValues) {
  const std::regex begin(R"(cols_tile < cols_end;)");
  const std::vector<std::smatch> places = matches(source_.body, begin);
  ASSERT_EQ(places.size(), 1u);
  EXPECT_NE(
      outcome_of(spec_, replaced(source_, places[0], "cols_tile < cols_end - 1;"), few_tiles).words,
      "");
}

TEST_F(PlantedBounds, AMaskThatIsNotAppliedGivesWrongValues) {
  const std::regex mask(R"(\? (scores\S*) : -fc::infinity\(\);)");
  const std::vector<std::smatch> places = matches(source_.body, mask);
  ASSERT_GE(places.size(), 1u);
  for (const std::smatch& place : places) {
    const std::string dropped = place.format("? $1 : $1;");
    EXPECT_NE(outcome_of(spec_, replaced(source_, place, dropped), few_tiles).words, "");
  }
}

TEST_F(PlantedBounds, TwoSidesOfATileAgreeOnItsLayout) {
  // A tile that one side takes to be twice as wide: other addresses, other values.
  const std::regex layout(R"((chunk_offset|panel_chunk_offset|matrix_address)<(\d+), 32>)");
  const std::vector<std::smatch> places = matches(source_.body, layout);
  EXPECT_GE(places.size(), 8u);
  for (const std::smatch& place : places) {
    SCOPED_TRACE(line_of(source_, line_at(source_.body, place.position())));
    const Outcome outcome =
        outcome_of(spec_, replaced(source_, place, place.format("$1<$2, 64>")), few_tiles);
    EXPECT_NE(outcome.words, "") << "nobody missed it";
  }
}

}  // namespace
}  // namespace flashcore
