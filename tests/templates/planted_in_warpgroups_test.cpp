// What kernels of wgmma and TMA cannot do without: waits for slots and their releases, boxes,
// fences, parts of products and stores, and the meetings of warpgroups and clusters.
#include <regex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "tests/templates/support/planted_bugs.h"

namespace flashcore {
namespace {

Schedule warpgroup_schedule(int rows, int cols) {
  Schedule schedule;
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  schedule.tiles = {{"rows", rows}, {"cols", cols}};
  return schedule;
}

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
    Schedule schedule = warpgroup_schedule(64, 16);
    schedule.persistent = true;
    schedule.descending = false;
    schedule.stages = GetParam().stages;
    GetParam().change(schedule);
    Target target = find_target("sm_90a");
    if (const int bytes = GetParam().shared_bytes) target.shared_per_block = bytes;
    return generate(attention_forward(spec_), schedule, target);
  }
};

TEST_P(PlantedInWarpgroups, TheKernelItselfIsRight) { expect_right(spec_, source_, many_tiles); }

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
  expect_needed(R"(fc::arrive_if\([^;]*;)", 3, {FaultKind::deadlock});
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
  // The warps also meet in tiles without keys, where no comment follows; that is not for the store.
  const std::string meet = R"(fc::meet\(1 \+ [^;]*;(?=\s*//))";
  expect_needed(R"(fc::fence_async\(\);)", 1, kinds);
  expect_needed(R"(fc::commit_stores\(\);)", 1, kinds);
  // Where the output lies over the query, the store is waited for before that is released: not
  // again in the next tile, nor at the end.
  const bool over_the_query = !GetParam().last_wait_is_needed;
  expect_needed(over_the_query ? await + R"((?=\s*fc::meet[^;]*;\s*fc::arrive_if))" : await,
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
        Variant{"two_producer_warps", 2,
                [](Schedule& s) {
                  s.producer_warps = 2;
                  s.tile_scheduler = PersistentScheduler::dynamic;
                }},
        Variant{"divided_columns", 2,
                [](Schedule& s) {
                  s.tiles["cols"] = 32;
                  s.warps_n = 2;
                  s.product_split = ProductSplit::columns;
                }},
        Variant{"heads_in_turn", 2,
                [](Schedule& s) {
                  s.persistent = false, s.positions_per_block = 8, s.outer_stages = 2;
                }},
        Variant{"one_product_at_a_time", 2, [](Schedule& s) { s.overlap_products = false; }},
        Variant{"output_over_the_query", 2, [](Schedule& s) { s.overlap_products = false; }, false,
                true, false, 9000}),
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
    Schedule schedule = warpgroup_schedule(64, 16);
    schedule.producer = false;
    schedule.stages = GetParam().stages;
    GetParam().change(schedule);
    Target target = find_target("sm_90a");
    if (const int bytes = GetParam().shared_bytes) target.shared_per_block = bytes;
    return generate(attention_forward(spec_), schedule, target);
  }
};

TEST_P(PlantedWithoutAProducer, TheKernelItselfIsRight) {
  expect_right(spec_, source_, many_tiles);
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
        Variant{"three_stages", 3,
                [](Schedule& s) { s.rescale_before_product = s.rescale_before_wait = true; }},
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
    Schedule schedule = warpgroup_schedule(128, 64);
    schedule.warps_m = 8;
    return generate(attention_forward(spec_), schedule, find_target("sm_90a"));
  }
};

TEST_F(PlantedInPackedTiles, TheKernelItselfIsRight) { expect_right(spec_, source_, launches_); }

TEST_F(PlantedInPackedTiles, EveryFenceAndMeetingIsNeeded) {
  const std::vector<FaultKind> kinds = {FaultKind::unfenced, FaultKind::race};
  EXPECT_GE(expect_missed(spec_, source_, R"(fc::fence_async\(\);)", "", kinds, launches_), 2);
  EXPECT_GE(expect_missed(spec_, source_, R"(fc::meet\(9, 256\);)", "", kinds, launches_), 2);
}

/// Warpgroups that divide the columns exchange row maxima and weights through shared memory.
class PlantedInDividedColumns : public testing::Test {
 protected:
  AttentionSpec spec_ = small_spec();
  KernelSource source_ = make();

 private:
  [[nodiscard]] KernelSource make() const {
    Schedule schedule = warpgroup_schedule(64, 32);
    schedule.warps_n = 2;
    schedule.product_split = ProductSplit::columns;
    schedule.persistent = true;
    return generate(attention_forward(spec_), schedule, find_target("sm_90a"));
  }
};

TEST_F(PlantedInDividedColumns, TheKernelItselfIsRight) {
  expect_right(spec_, source_, many_tiles);
}

TEST_F(PlantedInDividedColumns, EveryFenceAndMeetingIsNeeded) {
  const std::vector<FaultKind> kinds = {FaultKind::unfenced, FaultKind::race,
                                        FaultKind::uninitialized};
  EXPECT_GE(expect_missed(spec_, source_, R"(fc::fence_async\(\);)", "", kinds, many_tiles), 2);
  EXPECT_GE(expect_missed(spec_, source_, R"(fc::meet\(9, 256\);)", "", kinds, many_tiles), 6);
}

/// Threads read what the copy engine brings of a bias: all lanes of a warp have, before one says so.
class PlantedInLoadedBias : public testing::Test {
 protected:
  PlantedInLoadedBias() {
    for (AttentionInputs in : many_tiles) {
      in.captured_lengths = {{"bias_n0", in.q_len}, {"bias_n1", in.kv_len}};
      launches_.push_back(std::move(in));
    }
  }

  std::vector<AttentionInputs> launches_;
  AttentionSpec spec_ = make_spec();
  KernelSource source_ = make();

 private:
  static AttentionSpec make_spec() {
    AttentionSpec spec = small_spec();
    spec.score = bias({"bias", DType::bf16, 2, /*unit_stride=*/true, /*aligned_rows=*/true});
    return spec;
  }
  [[nodiscard]] KernelSource make() const {
    Schedule schedule = warpgroup_schedule(64, 16);
    schedule.persistent = true;
    return generate(attention_forward(spec_), schedule, find_target("sm_90a"));
  }
};

TEST_F(PlantedInLoadedBias, TheKernelItselfIsRight) { expect_right(spec_, source_, launches_); }

TEST_F(PlantedInLoadedBias, EveryWaitAndReleaseIsNeeded) {
  const std::vector<FaultKind> kinds = {FaultKind::race, FaultKind::in_flight,
                                        FaultKind::uninitialized, FaultKind::misused_mbarrier,
                                        FaultKind::deadlock};
  EXPECT_GE(expect_missed(spec_, source_, R"(fc::wait_phase\(bias[^;]*;)", "", kinds, launches_),
            2);
  EXPECT_GE(expect_missed(spec_, source_, R"(fc::arrive_as_warp\([^;]*;)", "",
                          {FaultKind::deadlock}, launches_),
            1);
}

TEST_F(PlantedInLoadedBias, EveryLaneHasReadBeforeItsWarpReleases) {
  EXPECT_GE(expect_missed(spec_, source_, R"(fc::arrive_as_warp\(([^,]*), lane\);)",
                          "if (lane == 0) fc::arrive($1);", {FaultKind::race}, launches_),
            1);
}

/// The copy engine may write the next tile over one whose reads are under way: each thread fences its reads, and
/// does so before its warp releases the tile.
TEST_F(PlantedInLoadedBias, EveryReadIsFencedBeforeTheRelease) {
  const std::vector<FaultKind> kinds = {FaultKind::unfenced};
  const std::string release = R"(\s*(fc::arrive_as_warp\([^;]*;))";
  EXPECT_GE(expect_missed(spec_, source_, R"(fc::fence_async\(\);(?=)" + release + ")", "", kinds,
                          launches_),
            1);
  EXPECT_GE(expect_missed(spec_, source_, R"(fc::fence_async\(\);)" + release,
                          "$1 fc::fence_async();", kinds, launches_),
            1);
}

/// One thread releases the query for its warpgroup. In tiles without keys no product has brought the warps
/// of the warpgroup together before that.
TEST(PlantedInTilesWithoutKeys, WhoReleasesForItsWarpgroupHasMetIt) {
  AttentionSpec spec = small_spec();
  spec.mask = causal();
  Schedule schedule = warpgroup_schedule(64, 16);
  schedule.persistent = true;
  schedule.staged_stores = schedule.descending = false;
  const AttentionInputs launches[] = {{.heads = 5, .kv_heads = 5, .q_len = 300, .kv_len = 70}};
  const KernelSource source = generate(attention_forward(spec), schedule, find_target("sm_90a"));
  expect_right(spec, source, launches);
  EXPECT_GE(
      expect_missed(spec, source, R"(fc::meet\(1 \+ [^;]*;)", "", {FaultKind::deadlock}, launches),
      1);
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
    Schedule schedule = warpgroup_schedule(64, 16);
    schedule.cluster_splits = 2;
    return generate(attention_forward(spec_), schedule, find_target("sm_90a"));
  }
};

TEST_F(PlantedInClusters, TheKernelItselfIsRight) { expect_right(spec_, source_, many_tiles); }

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

/// Blocks that share loads: both visit the same tiles, or each its own, which they draw together.
class PlantedInMulticast : public testing::TestWithParam<bool> {
 protected:
  [[nodiscard]] static bool is_uneven() { return GetParam(); }
  AttentionSpec spec_ = make_spec();
  KernelSource source_ = make();

  void expect_needed(const std::string& pattern, const std::string& instead, int least,
                     const std::vector<FaultKind>& kinds) {
    EXPECT_GE(expect_missed(spec_, source_, pattern, instead, kinds, many_tiles), least);
  }

 private:
  static AttentionSpec make_spec() {
    AttentionSpec spec = small_spec();
    spec.mask = is_uneven() ? causal() : Mask();
    return spec;
  }
  [[nodiscard]] KernelSource make() const {
    Schedule schedule = warpgroup_schedule(64, 16);
    schedule.persistent = true;
    schedule.multicast_blocks = 2;
    if (is_uneven()) schedule.tile_scheduler = PersistentScheduler::dynamic;
    return generate(attention_forward(spec_), schedule, find_target("sm_90a"));
  }
};

TEST_P(PlantedInMulticast, TheKernelItselfIsRight) { expect_right(spec_, source_, many_tiles); }

TEST_P(PlantedInMulticast, BothBlocksMeetBeforeAndBehindAllLoads) {
  const std::vector<FaultKind> kinds = {FaultKind::barrier_mismatch, FaultKind::race,
                                        FaultKind::misused_mbarrier, FaultKind::deadlock};
  expect_needed(R"(fc::arrive_at_cluster\(\);)", "", 2, kinds);
  expect_needed(R"(fc::wait_cluster\(\);)", "", 2, kinds);
  expect_needed(R"(fc::arrive_at_cluster\(\);)", "fc::enter_cluster();", 2, {FaultKind::race});
}

TEST_P(PlantedInMulticast, EverySlotIsReleasedInBothBlocks) {
  expect_needed(R"(fc::arrive_in_both(_if)?\((thread % 128 == 0, )?([^,]*), other_block\);)",
                "fc::arrive$1($2$3);", is_uneven() ? 5 : 3, {FaultKind::deadlock});
}

TEST_P(PlantedInMulticast, EachLoadsItsPartForBoth) {
  expect_needed(R"(fc::load_box_for_cluster\()", "fc::load_box(", 2,
                {FaultKind::deadlock, FaultKind::misused_mbarrier});
}

INSTANTIATE_TEST_SUITE_P(Loads, PlantedInMulticast, testing::Bool(), [](const auto& info) {
  return info.param ? "OfUnevenBlocksThatDrawTiles" : "OfEqualBlocks";
});

class PlantedInSharedDraws : public PlantedInMulticast {};

TEST_P(PlantedInSharedDraws, BothBlocksGetTheNumberOfTheNextTile) {
  expect_needed(R"(fc::store_in_both\(([^;]*), other_block\);)", "fc::store_shared($1);", 1,
                {FaultKind::uninitialized});
  expect_needed(R"(fc::publish_in_both\(([^;]*), other_block\);)", "fc::arrive($1);", 1,
                {FaultKind::deadlock});
  expect_needed(R"(fc::wait_published\([^;]*;)", ";", 1,
                {FaultKind::race, FaultKind::uninitialized});
  // The first block writes the number for both, and waits until both have read the number before.
  expect_needed(R"(fc::wait_phase\(cluster_numbers_empty[^;]*;)", ";", 1,
                {FaultKind::misused_mbarrier});
  expect_needed(R"(fc::arrive_in_first\()", "fc::arrive(", 1, {FaultKind::deadlock});
  expect_needed(R"(fc::arrive_in_first\(([^;]*)\);)", "fc::arrive_in_both($1, other_block);", 1,
                {FaultKind::misused_mbarrier});
}

INSTANTIATE_TEST_SUITE_P(Loads, PlantedInSharedDraws, testing::Values(true));

}  // namespace
}  // namespace flashcore
