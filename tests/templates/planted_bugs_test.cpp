// The real generated kernel with one thing taken away: every wait, commit, barrier and bound in it
// has to be missed by the emulator, with the right name for what went wrong. So none is there for
// nothing, and none could be forgotten unseen.
#include <algorithm>
#include <regex>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "templates/attention.h"
#include "tests/templates/support/outcome.h"

namespace flashcore {
namespace {

AttentionSpec small_spec() {
  AttentionSpec spec;
  spec.head_dim = 32;
  spec.mask = causal();
  spec.lse = true;
  return spec;
}

Schedule small_schedule(int stages) {
  Schedule schedule;
  schedule.tiles = {{"rows", 32}, {"cols", 16}};
  schedule.warps_m = 2;
  schedule.stages = stages;
  schedule.descending = false;
  return schedule;
}

/// Several tiles with ragged ends, a single ragged tile, and a block that sees no key at all.
const AttentionInputs launches[] = {
    {.q_len = 75, .kv_len = 90}, {.q_len = 20, .kv_len = 5}, {.q_len = 37, .kv_len = 0}};

/// Every place in the body that matches.
std::vector<std::smatch> matches(const std::string& body, const std::regex& pattern) {
  return {std::sregex_iterator(body.begin(), body.end(), pattern), std::sregex_iterator()};
}

KernelSource replaced(const KernelSource& source, const std::smatch& place,
                      const std::string& text) {
  KernelSource changed = source;
  changed.body.replace(static_cast<std::size_t>(place.position()),
                       static_cast<std::size_t>(place.length()), text);
  return changed;
}

int line_at(const std::string& body, std::ptrdiff_t position) {
  return 1 + static_cast<int>(std::count(body.begin(), body.begin() + position, '\n'));
}

/// Replaces each match on its own; each kernel has to fail with one of the kinds. A pattern that
/// matches nothing tests nothing.
int expect_missed(const AttentionSpec& spec, const KernelSource& source, const std::string& pattern,
                  const std::string& replacement, const std::vector<FaultKind>& kinds,
                  std::span<const AttentionInputs> runs = launches) {
  const std::regex expression(pattern);
  const std::vector<std::smatch> places = matches(source.body, expression);
  EXPECT_FALSE(places.empty()) << "nothing in the kernel matches " << pattern;
  for (const std::smatch& place : places) {
    SCOPED_TRACE(line_of(source, line_at(source.body, place.position())));
    const Outcome outcome =
        outcome_of(spec, replaced(source, place, place.format(replacement)), runs);
    EXPECT_TRUE(outcome.fault) << (outcome.words.empty() ? "nobody missed it" : outcome.words);
    if (!outcome.fault) continue;
    EXPECT_TRUE(std::find(kinds.begin(), kinds.end(), *outcome.fault) != kinds.end())
        << "the wrong complaint: " << outcome.words;
  }
  return static_cast<int>(places.size());
}

struct Variant {
  const char* name;
  int stages;
  void (*change)(Schedule&);
  /// The wait behind the loop is there for the query of a block that sees no key. Who has completed
  /// it before, or touches no shared memory behind the loop, could do without.
  bool last_wait_is_needed = true;
  bool stores_boxes = true;  ///< the copy engine takes the output away
  bool takes_turns = false;
};

void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

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
  EXPECT_EQ(outcome_of(spec, source, launches).words, "");
  EXPECT_GE(expect_missed(spec, source, R"(fc::round_tf32\([^;]*;)", "", {FaultKind::bad_operand}),
            3);
  const std::regex second_term(R"(lane % 4 \* 2 \+ 1)");
  const std::vector<std::smatch> terms = matches(source.body, second_term);
  EXPECT_GE(terms.size(), 2u);
  for (const std::smatch& place : terms)
    EXPECT_NE(outcome_of(spec, replaced(source, place, "lane % 4 * 2"), launches).words, "");
}

TEST_P(PlantedBugs, TheKernelItselfIsRight) {
  const Outcome outcome = outcome_of(spec_, source_, launches);
  EXPECT_FALSE(outcome.fault);
  EXPECT_EQ(outcome.words, "");
}

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

/// Producer, consumers and products in flight. Persistent blocks need every wait and every release:
/// what one tile leaves undone the next one meets. They get more tiles than slots, and in the end
/// loops that do not run.
const AttentionInputs many_tiles[] = {{.heads = 5, .kv_heads = 5, .q_len = 150, .kv_len = 100},
                                      {.heads = 5, .kv_heads = 5, .q_len = 70, .kv_len = 5},
                                      {.heads = 5, .kv_heads = 5, .q_len = 150, .kv_len = 0}};

class PlantedInWarpgroups : public testing::TestWithParam<Variant> {
 protected:
  AttentionSpec spec_ = small_spec();
  KernelSource source_ = make();

  /// Without the first match of a pattern, then without the second, and so on.
  void expect_needed(const std::string& pattern, int least, const std::vector<FaultKind>& kinds) {
    EXPECT_GE(expect_missed(spec_, source_, pattern, "", kinds, many_tiles), least);
  }

 private:
  [[nodiscard]] KernelSource make() const {
    Schedule schedule;
    schedule.instruction = Instruction::wgmma;
    schedule.copy = CopyInstruction::tma;
    schedule.tiles = {{"rows", 64}, {"cols", 16}};
    schedule.persistent = true;
    schedule.descending = false;
    schedule.stages = GetParam().stages;
    GetParam().change(schedule);
    return generate(attention_forward(spec_), schedule, find_target("sm_90a"));
  }
};

TEST_P(PlantedInWarpgroups, TheKernelItselfIsRight) {
  const Outcome outcome = outcome_of(spec_, source_, many_tiles);
  EXPECT_FALSE(outcome.fault);
  EXPECT_EQ(outcome.words, "");
}

/// All but those for the first keys and values of a tile, where these come apart: in loops as short
/// as these the producer has waited for a later slot before, in the tile before or for the query.
TEST_P(PlantedInWarpgroups, EveryWaitForASlotIsNeeded) {
  expect_needed(
      R"(fc::wait_phase\((?!(?:key|value)_empty[^{}]*(?:\{[^{}]*\}[^{}]*)*(?:\}\s*fc::wait_phase\(query_empty|// cols tiles))[^;]*;)",
      6,
      {FaultKind::race, FaultKind::in_flight, FaultKind::uninitialized, FaultKind::misused_mbarrier,
       FaultKind::deadlock});
}

TEST_P(PlantedInWarpgroups, EveryReleaseIsNeeded) {
  expect_needed(R"(if \(thread % 128 == 0\) fc::arrive\([^;]*;)", 3, {FaultKind::deadlock});
}

TEST_P(PlantedInWarpgroups, EveryBoxAndItsBytesAreNeeded) {
  expect_needed(R"(fc::arrive_expect_tx\([^;]*;)", 3,
                {FaultKind::deadlock, FaultKind::in_flight, FaultKind::misused_mbarrier});
  expect_needed(R"(fc::load_box\([^;]*;)", 3, {FaultKind::deadlock});
}

TEST_P(PlantedInWarpgroups, EveryPartOfAProductIsNeeded) {
  const std::vector<FaultKind> kinds = {FaultKind::misused_product, FaultKind::race};
  expect_needed(R"(fc::pin\(\w+\);)", 4, {FaultKind::misused_product});
  expect_needed(R"(fc::fence_products\(\);)", 2, {FaultKind::misused_product});
  expect_needed(R"(fc::commit_products\(\);)", 2, kinds);
  expect_needed(R"(fc::wait_products<\d>\(\);)", 2, kinds);
}

TEST_P(PlantedInWarpgroups, EveryPartOfAStoreIsNeeded) {
  const std::vector<FaultKind> kinds = {FaultKind::unfenced, FaultKind::race, FaultKind::in_flight,
                                        FaultKind::uninitialized};
  ASSERT_EQ(source_.body.find("fc::store_box") != std::string::npos, GetParam().stores_boxes);
  if (!GetParam().stores_boxes) return;
  const std::string await = R"(if \(thread % 128 == 0\) fc::wait_stores_read<0>\(\);)";
  const std::string meet = R"(fc::meet\(1 \+ [^;]*;)";
  expect_needed(R"(fc::fence_async\(\);)", 1, kinds);
  expect_needed(R"(fc::commit_stores\(\);)", 1, kinds);
  // Where the output lies over the query, the store is waited for before that is released: not
  // again in the next tile, nor at the end.
  const bool over_the_query = !GetParam().last_wait_is_needed;
  expect_needed(over_the_query
                    ? await + R"((?=\s*fc::meet[^;]*;\s*if \(thread % 128 == 0\) fc::arrive))"
                    : await,
                over_the_query ? 1 : 2, kinds);
  expect_needed(over_the_query ? meet + R"((?=\s*// store))" : meet, over_the_query ? 1 : 2, kinds);
}

TEST_P(PlantedInWarpgroups, EveryBarrierIsMadeReady) {
  const std::vector<FaultKind> kinds = {FaultKind::misused_mbarrier, FaultKind::race};
  expect_needed(R"(fc::init_mbarrier\([^;]*;)", 6, kinds);
  expect_needed(R"(fc::publish_mbarriers\(\);)", 1, kinds);
  expect_needed(R"(fc::barrier\(\);)", 1, kinds);
}

TEST_P(PlantedInWarpgroups, EveryArrivalOfPingPongIsWaitedFor) {
  // The last arrival is taken at the end, when nobody waits any more.
  const std::string turn =
      R"((if \(warp / 4 == 1\) fc::signal|fc::signal|fc::meet)\(5( \+[^;]*|, \d+\));)";
  const std::string last = R"((?=[^]*if \(warp / 4 == 0\) fc::meet))";
  ASSERT_EQ(!matches(source_.body, std::regex(turn)).empty(), GetParam().takes_turns);
  if (!GetParam().takes_turns) return;
  expect_needed(turn + last, 3, {FaultKind::deadlock, FaultKind::barrier_mismatch});
}

INSTANTIATE_TEST_SUITE_P(
    Schedule, PlantedInWarpgroups,
    testing::Values(
        Variant{"two_stages", 2, [](Schedule&) {}},
        Variant{"two_queries", 2, [](Schedule& s) { s.outer_stages = 2, s.staged_stores = false; },
                true, false},
        Variant{"scaled_late", 3,
                [](Schedule& s) { s.rescale_before_product = s.lazy_scaling = true; }},
        Variant{"in_ping_pong", 2,
                [](Schedule& s) {
                  s.tiles["rows"] = 128;
                  s.warps_m = 8;
                  s.ping_pong = s.descending = true;
                },
                true, true, true},
        Variant{"dynamic_scheduler", 2,
                [](Schedule& s) {
                  s.tile_scheduler = PersistentScheduler::dynamic, s.outer_stages = 2,
                  s.staged_stores = false;
                },
                true, false},
        Variant{"drawn_tiles_of_two_groups", 2,
                [](Schedule& s) {
                  s.tiles["rows"] = 128;
                  s.warps_m = 8;
                  s.tile_scheduler = PersistentScheduler::dynamic;
                  s.outer_stages = 2;
                }},
        Variant{"heads_in_turn", 2,
                [](Schedule& s) {
                  s.persistent = false, s.positions_per_block = 8, s.outer_stages = 2;
                }},
        Variant{"one_product_at_a_time", 2, [](Schedule& s) { s.overlap_products = false; }},
        Variant{"output_over_the_query", 2,
                [](Schedule& s) { s.shared_limit = 9000, s.overlap_products = false; }, false}),
    [](const auto& info) { return std::string(info.param.name); });

/// A block without a producer: one thread fills a slot behind its own last product on it.
class PlantedWithoutAProducer : public testing::TestWithParam<Variant> {
 protected:
  AttentionSpec spec_ = small_spec();
  KernelSource source_ = make();

  void expect_needed(const std::string& pattern, const std::string& instead, int least,
                     const std::vector<FaultKind>& kinds) {
    EXPECT_GE(expect_missed(spec_, source_, pattern, instead, kinds, many_tiles), least);
  }

  /// A rotated loop releases behind its last iteration as well, where no tile is left to fill a
  /// slot with.
  [[nodiscard]] std::string but_last(const std::string& pattern) const {
    return source_.body.find("fc::wait_products<1>") == std::string::npos
               ? ""
               : "(?=[^]*" + pattern + ")";
  }

  const std::string refill = R"((if \(\(thread == 0\) && \(next_\w+ [^{]*\{[^}]*\}))";

 private:
  [[nodiscard]] KernelSource make() const {
    Schedule schedule;
    schedule.instruction = Instruction::wgmma;
    schedule.copy = CopyInstruction::tma;
    schedule.tiles = {{"rows", 64}, {"cols", 16}};
    schedule.producer = false;
    schedule.stages = GetParam().stages;
    GetParam().change(schedule);
    return generate(attention_forward(spec_), schedule, find_target("sm_90a"));
  }
};

TEST_P(PlantedWithoutAProducer, TheKernelItselfIsRight) {
  const Outcome outcome = outcome_of(spec_, source_, many_tiles);
  EXPECT_FALSE(outcome.fault);
  EXPECT_EQ(outcome.words, "");
  EXPECT_EQ(source_.threads, 128);
}

TEST_P(PlantedWithoutAProducer, EveryWaitForASlotIsNeeded) {
  expect_needed(R"(fc::wait_phase\([^;]*;)", "", 3,
                {FaultKind::race, FaultKind::in_flight, FaultKind::uninitialized,
                 FaultKind::misused_mbarrier});
}

TEST_P(PlantedWithoutAProducer, EveryFillIsNeeded) {
  expect_needed(refill + but_last(refill), "", 2, {FaultKind::deadlock});
  expect_needed(R"(if \(next_\w+ [^{]*\{[^}]*\})", "", 2, {FaultKind::deadlock});
  const std::string box = R"(fc::load_box\([^;]*;)", bytes = R"(fc::arrive_expect_tx\([^;]*;)";
  expect_needed(box + but_last(box), "", 4, {FaultKind::deadlock});
  expect_needed(bytes + but_last(bytes), "", 4,
                {FaultKind::deadlock, FaultKind::in_flight, FaultKind::misused_mbarrier});
}

TEST_P(PlantedWithoutAProducer, ASlotIsFilledBehindItsProducts) {
  expect_needed(R"((fc::wait_products<\d>\(\);[^{}]*))" + refill + but_last(refill), "$2$1", 2,
                {FaultKind::race});
}

TEST_P(PlantedWithoutAProducer, EveryBarrierIsMadeReady) {
  const std::vector<FaultKind> kinds = {FaultKind::misused_mbarrier, FaultKind::race};
  expect_needed(R"(fc::init_mbarrier\([^;]*;)", "", 3, kinds);
  expect_needed(R"(fc::publish_mbarriers\(\);)", "", 1, kinds);
  expect_needed(R"(fc::barrier\(\);)", "", 1, kinds);
}

INSTANTIATE_TEST_SUITE_P(
    Schedule, PlantedWithoutAProducer,
    testing::Values(
        Variant{"two_stages", 2, [](Schedule&) {}},
        Variant{"one_stage", 1, [](Schedule& s) { s.descending = false; }},
        Variant{"three_stages", 3, [](Schedule& s) { s.rescale_before_product = true; }},
        Variant{"one_product_at_a_time", 2, [](Schedule& s) { s.overlap_products = false; }}),
    [](const auto& info) { return std::string(info.param.name); });

/// Tiles that begin anywhere in a tensor: what lies in their rows beyond a sequence is another's.
class PlantedInPackedTiles : public testing::Test {
 protected:
  AttentionSpec spec_ = packed_spec();
  KernelSource source_ = make();
  const AttentionInputs launches_[2] = {
      {.batch = 4, .q_lens = {5, 0, 130, 1}, .kv_lens = {5, 0, 75, 1}, .beyond = 20},
      {.batch = 2, .q_lens = {200, 3}, .kv_lens = {70, 9}, .beyond = 20}};

 private:
  [[nodiscard]] static AttentionSpec packed_spec() {
    AttentionSpec spec = small_spec();
    spec.layout = TensorLayout::thd;
    return spec;
  }
  [[nodiscard]] KernelSource make() const {
    Schedule schedule;
    schedule.instruction = Instruction::wgmma;
    schedule.copy = CopyInstruction::tma;
    schedule.tiles = {{"rows", 128}, {"cols", 64}};
    schedule.warps_m = 8;
    return generate(attention_forward(spec_), schedule, find_target("sm_90a"));
  }
};

TEST_F(PlantedInPackedTiles, TheKernelItselfIsRight) {
  const Outcome outcome = outcome_of(spec_, source_, launches_);
  EXPECT_FALSE(outcome.fault);
  EXPECT_EQ(outcome.words, "");
}

TEST_F(PlantedInPackedTiles, EveryFenceAndMeetingIsNeeded) {
  const std::vector<FaultKind> kinds = {FaultKind::unfenced, FaultKind::race};
  EXPECT_GE(expect_missed(spec_, source_, R"(fc::fence_async\(\);)", "", kinds, launches_), 2);
  EXPECT_GE(expect_missed(spec_, source_, R"(fc::meet\(9, 256\);)", "", kinds, launches_), 2);
}

class PlantedInClusters : public testing::Test {
 protected:
  AttentionSpec spec_ = small_spec();
  KernelSource source_ = make();

  void expect_needed(const std::string& pattern, int least, const std::vector<FaultKind>& kinds) {
    EXPECT_GE(expect_missed(spec_, source_, pattern, "", kinds, many_tiles), least);
  }

 private:
  [[nodiscard]] KernelSource make() const {
    Schedule schedule;
    schedule.instruction = Instruction::wgmma;
    schedule.copy = CopyInstruction::tma;
    schedule.tiles = {{"rows", 64}, {"cols", 16}};
    schedule.cluster_splits = 2;
    return generate(attention_forward(spec_), schedule, find_target("sm_90a"));
  }
};

TEST_F(PlantedInClusters, TheKernelItselfIsRight) {
  const Outcome outcome = outcome_of(spec_, source_, many_tiles);
  EXPECT_FALSE(outcome.fault);
  EXPECT_EQ(outcome.words, "");
}

TEST_F(PlantedInClusters, EveryMeetingIsNeeded) {
  const std::vector<FaultKind> kinds = {FaultKind::barrier_mismatch, FaultKind::race,
                                        FaultKind::uninitialized};
  expect_needed(R"(fc::enter_cluster\(\);)", 1, kinds);
  expect_needed(R"(fc::arrive_at_cluster\(\);)", 1, kinds);
  expect_needed(R"(fc::wait_cluster\(\);)", 3, kinds);
  EXPECT_EQ(expect_missed(spec_, source_, R"(fc::arrive_at_cluster\(\);)", "fc::enter_cluster();",
                          {FaultKind::race}, many_tiles),
            1);
}

TEST_F(PlantedInClusters, EveryGiftIsNeeded) {
  EXPECT_GE(expect_missed(spec_, source_, R"(fc::store_cluster<\d>\([^;]*;)", ";",
                          {FaultKind::uninitialized}, many_tiles),
            3);
}

TEST_F(PlantedInClusters, EveryBlockPutsItsOwnRowsTogether) {
  const std::regex ownership(R"(warp % 2 == rank| - \(warp - warp / 2\) \* \d+)");
  const std::vector<std::smatch> places = matches(source_.body, ownership);
  EXPECT_GE(places.size(), 10u);
  for (const std::smatch& place : places) {
    SCOPED_TRACE(line_of(source_, line_at(source_.body, place.position())));
    const std::string instead = place.str().starts_with("warp") ? "true" : "";
    EXPECT_NE(outcome_of(spec_, replaced(source_, place, instead), many_tiles).words, "")
        << "nobody missed it";
  }
}

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
      outcome_of(spec_, replaced(source_, places[0], "cols_tile < cols_end - 1;"), launches).words,
      "");
}

TEST_F(PlantedBounds, AMaskThatIsNotAppliedGivesWrongValues) {
  const std::regex mask(R"(\? (scores\S*) : -fc::infinity\(\);)");
  const std::vector<std::smatch> places = matches(source_.body, mask);
  ASSERT_GE(places.size(), 1u);
  for (const std::smatch& place : places) {
    const std::string dropped = place.format("? $1 : $1;");
    EXPECT_NE(outcome_of(spec_, replaced(source_, place, dropped), launches).words, "");
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
        outcome_of(spec_, replaced(source_, place, place.format("$1<$2, 64>")), launches);
    EXPECT_NE(outcome.words, "") << "nobody missed it";
  }
}

}  // namespace
}  // namespace flashcore
