// A whole attention kernel of sm_90, correct and with mistakes in it.
#include <cmath>

#include <gtest/gtest.h>

#include "tests/runtime/emulator/support/sm90_kernels.h"

namespace flashcore::testing {
namespace {

void expect_softmax(const WarpgroupAttentionRun& run) {
  constexpr std::size_t dim = 64;
  const auto rows = static_cast<std::size_t>(run.rows), keys = static_cast<std::size_t>(run.keys);
  for (std::size_t head = 0; head < static_cast<std::size_t>(run.heads); ++head) {
    const float *q = &run.q[head * rows * dim], *k = &run.k[head * keys * dim],
                *v = &run.v[head * keys * dim], *o = &run.o[head * rows * dim];
    for (std::size_t i = 0; i < rows; ++i) {
      std::vector<double> expected(dim);
      double sum = 0;
      for (std::size_t j = 0; j < keys; ++j) {
        double score = 0;
        for (std::size_t d = 0; d < dim; ++d)
          score += double{q[i * dim + d]} * double{k[j * dim + d]};
        const double weight = std::exp(score / 8);
        sum += weight;
        for (std::size_t d = 0; d < dim; ++d) expected[d] += weight * double{v[j * dim + d]};
      }
      for (std::size_t d = 0; d < dim; ++d)
        ASSERT_NEAR(o[i * dim + d], expected[d] / sum, 2e-2)
            << "head " << head << ", row " << i << ", " << d;
    }
  }
}

TEST(WarpgroupAttention, EqualsSoftmaxInDoublePrecision) {
  for (const auto& [rows, keys] : {std::pair(128, 256), std::pair(256, 64), std::pair(200, 320)}) {
    SCOPED_TRACE(fmt::format("{} rows, {} keys", rows, keys));
    WarpgroupAttentionRun run{.heads = 2, .rows = rows, .keys = keys};
    const EmulationReport report = run(warpgroup_attention());
    expect_softmax(run);
    EXPECT_EQ(report.outputs[0].unwritten, 0);
    EXPECT_EQ(report.outputs[0].rewritten, 0);
    EXPECT_EQ(report.banks.conflicts(), 0);
  }
}

struct PlantedBug {
  const char* name;
  const char* from;
  const char* to;
  FaultKind kind;
  const char* line;  ///< text of the line that the error names, in the body with the bug
  const char* says;  ///< a part of the message
};

void PrintTo(const PlantedBug& bug, std::ostream* out) { *out << bug.name; }

class WarpgroupAttentionBug : public ::testing::TestWithParam<PlantedBug> {};

TEST_P(WarpgroupAttentionBug, IsNamedByKindAndLine) {
  const PlantedBug& bug = GetParam();
  const KernelSource source = with(warpgroup_attention(), bug.from, bug.to);
  const EmulatorError error = failure_of([&] { WarpgroupAttentionRun()(source); });
  EXPECT_EQ(name_of(error.kind()), name_of(bug.kind)) << error.what();
  EXPECT_EQ(error.line(), line_of(source, bug.line)) << error.what();
  EXPECT_NE(std::string(error.what()).find(bug.says), std::string::npos) << error.what();
}

constexpr const char* multiply_scores = "fc::multiply_warpgroup<64, fc::bf16, 4, fc::along";
constexpr const char* multiply_sums = "fc::multiply_warpgroup<64, fc::bf16, 4, fc::across";
constexpr const char* load_keys = "fc::load_box(keys";

INSTANTIATE_TEST_SUITE_P(
    All, WarpgroupAttentionBug,
    ::testing::Values(
        PlantedBug{"fence_removed", "fc::fence_async();", "", FaultKind::unfenced, "fc::store_box",
                   "this reads asynchronously, was written by thread 128"},
        PlantedBug{"fence_behind_the_barrier", "fc::fence_async();\n  fc::meet(3 + half, 128);",
                   "fc::meet(3 + half, 128);\n  fc::fence_async();", FaultKind::unfenced,
                   "fc::store_box", "has not called fence_async()"},
        PlantedBug{"barrier_before_the_store_removed", "fc::meet(3 + half, 128);", "",
                   FaultKind::race, "fc::store_box",
                   "no barrier orders that write before this read"},
        PlantedBug{"store_not_awaited", "fc::wait_stores_read<0>();", "", FaultKind::in_flight,
                   "fc::store_box", "may still read shared memory"},
        PlantedBug{"store_not_committed", "fc::commit_stores();", "", FaultKind::in_flight,
                   "fc::store_box", "may still read shared memory"},
        PlantedBug{"keys_not_awaited", "fc::wait_phase(k_full + 8 * stage, round % 2);", "",
                   FaultKind::in_flight, multiply_scores,
                   "is the target of a box load that thread 0"},
        PlantedBug{"wrong_parity_of_full", "fc::wait_phase(k_full + 8 * stage, round % 2)",
                   "fc::wait_phase(k_full + 8 * stage, (round + 1) % 2)", FaultKind::in_flight,
                   multiply_scores, "nobody has waited for"},
        PlantedBug{"wrong_parity_of_empty", "fc::wait_phase(k_empty + 8 * stage, (round - 1) % 2)",
                   "fc::wait_phase(k_empty + 8 * stage, round % 2)", FaultKind::misused_mbarrier,
                   "fc::arrive_expect_tx(k_full", "this is one arrival more than the 1 of a phase"},
        PlantedBug{"ring_not_awaited", "if (tile >= 2) fc::wait_phase(v_empty",
                   "if (tile >= 4) fc::wait_phase(v_empty", FaultKind::misused_mbarrier,
                   "fc::arrive_expect_tx(v_full", "this is one arrival more than the 1 of a phase"},
        PlantedBug{"bytes_not_expected", "fc::arrive_expect_tx(k_full + 8 * stage, 8192);",
                   "fc::arrive(k_full + 8 * stage);", FaultKind::in_flight, multiply_scores,
                   "nobody has waited for"},
        PlantedBug{
            "bytes_not_expected_after_the_load",
            "fc::arrive_expect_tx(q_full, 16384);\n      fc::load_box(queries, p.q, q_full, 0, "
            "rows_begin, head);",
            "fc::load_box(queries, p.q, q_full, 0, rows_begin, head);\n      fc::arrive(q_full);",
            FaultKind::misused_mbarrier, "fc::arrive(q_full)",
            "expect 0 bytes, and its boxes bring 16384"},
        PlantedBug{"too_few_bytes_expected", "fc::arrive_expect_tx(q_full, 16384)",
                   "fc::arrive_expect_tx(q_full, 8192)", FaultKind::misused_mbarrier,
                   "fc::load_box(queries", "expect 8192 bytes, and its boxes bring 16384"},
        PlantedBug{"too_many_bytes_expected", "fc::arrive_expect_tx(q_full, 16384)",
                   "fc::arrive_expect_tx(q_full, 16392)", FaultKind::deadlock,
                   "if (tile >= 2) fc::wait_phase(k_empty",
                   "mbarrier at byte 49152: phase 0 (parity 0) lacks 0 of 1 arrivals and 8 of "
                   "16392 bytes"},
        PlantedBug{"keys_not_released", "if (rank == 0) fc::arrive(k_empty + 8 * stage);", "",
                   FaultKind::deadlock, "if (tile >= 2) fc::wait_phase(k_empty",
                   "phase 0 (parity 0) lacks 2 of 2 arrivals"},
        PlantedBug{"keys_released_by_one", "if (rank == 0) fc::arrive(k_empty + 8 * stage);",
                   "if (thread == 128) fc::arrive(k_empty + 8 * stage);", FaultKind::deadlock,
                   "if (tile >= 2) fc::wait_phase(k_empty",
                   "phase 0 (parity 0) lacks 1 of 2 arrivals"},
        PlantedBug{
            "values_released_too_early",
            "fc::wait_products<0>();  // sums\n    fc::pin(out);\n    if (tile > 0 && rank == 0) "
            "fc::arrive(v_empty + 8 * last);",
            "if (tile > 0 && rank == 0) fc::arrive(v_empty + 8 * last);\n    "
            "fc::wait_products<0>();",
            FaultKind::race, "fc::load_box(values", "was read by a product of warpgroup"},
        PlantedBug{"scores_read_too_early",
                   "if (tile > 0) fc::wait_products<1>(); else fc::wait_products<0>();", "",
                   FaultKind::misused_product, "fc::pin(scores);\n    if (rank",
                   "accumulator [0][0] is pinned while its product is pending"},
        PlantedBug{"scores_awaited_too_little", "if (tile > 0) fc::wait_products<1>();",
                   "if (tile > 0) fc::wait_products<2>();", FaultKind::misused_product,
                   "fc::pin(scores);\n    if (rank",
                   "accumulator [0][0] is pinned while its product is pending"},
        PlantedBug{"scores_not_pinned_before", "fc::pin(scores);\n      fc::fence", "fc::fence",
                   FaultKind::misused_product, multiply_scores,
                   "accumulators were not pinned for it"},
        PlantedBug{"scores_not_pinned_behind", "fc::pin(scores);\n    if (rank", "if (rank",
                   FaultKind::misused_product, "fc::pin(scores);\n      fc::fence",
                   "was written before it was pinned"},
        PlantedBug{"sums_not_pinned_before", "fc::pin(out);\n      fc::fence", "fc::fence",
                   FaultKind::misused_product, multiply_sums,
                   "accumulators were not pinned for it"},
        PlantedBug{"sums_not_pinned_at_the_end", "fc::pin(out);\n  // The queries",
                   "// The queries", FaultKind::misused_product, multiply_sums,
                   "were never pinned"},
        PlantedBug{"index_outside_of_registers", "for (int j = 0; j < 8; ++j)\n        for (int c",
                   "for (int j = 0; j < 9; ++j)\n        for (int c", FaultKind::out_of_bounds,
                   "largest = fc::max(largest, scores[0][j]",
                   "index 8 of an array of registers, 'float [8][4]'"},
        PlantedBug{"weights_overwritten", "fc::wait_products<0>();  // sums",
                   "weights[3][2] = fc::pack<fc::bf16>(scores[0][0][0], 0.f);\n"
                   "    fc::wait_products<0>();  // sums",
                   FaultKind::misused_product, "fc::wait_products<0>();  // sums",
                   "register 2 of operand a of the product at line"},
        PlantedBug{"scores_not_committed", "fc::commit_products();  // scores", "",
                   FaultKind::misused_product, "fc::pin(scores);\n    if (rank",
                   "is pinned while its product is pending"},
        PlantedBug{"sums_not_awaited_at_the_end", "fc::wait_products<0>();  // the end", "",
                   FaultKind::misused_product, "fc::pin(out);\n  // The queries",
                   "is pinned while its product is pending"},
        PlantedBug{"products_not_opened", "fc::fence_products();  // scores", "",
                   FaultKind::misused_product, multiply_scores, "without fence_products()"},
        PlantedBug{"mbarriers_not_published", "fc::publish_mbarriers();", "",
                   FaultKind::misused_mbarrier, "fc::wait_phase(q_full, 0)",
                   "has not called publish_mbarriers()"},
        PlantedBug{"mbarrier_not_initialised", "fc::init_mbarrier(q_full, 1);", "",
                   FaultKind::misused_mbarrier, "fc::wait_phase(q_full, 0)",
                   "no mbarrier was initialised at byte 49152"},
        PlantedBug{"barrier_behind_the_mbarriers_removed", "fc::barrier();", "", FaultKind::race,
                   "fc::wait_phase(q_full, 0)", "was initialised by thread 0"},
        PlantedBug{"box_misaligned", "fc::load_box(keys + stage * 8192",
                   "fc::load_box(keys + stage * 8192 + 256", FaultKind::misaligned, load_keys,
                   "boxes begin at multiples of 1024 bytes"},
        PlantedBug{"turn_never_given", "fc::signal(2 - half, 256);", "", FaultKind::deadlock,
                   "if (tile >= 2) fc::wait_phase(k_empty",
                   "barrier 2: 128 of 256 threads have come (warps 8-11)"},
        PlantedBug{"other_count_at_a_barrier", "if (half == 1) fc::signal(1, 256);",
                   "if (half == 1) fc::signal(1, 384);", FaultKind::barrier_mismatch,
                   "fc::meet(1 + half, 256)",
                   "warp 4 comes to barrier 1 of 256 threads, while line"},
        PlantedBug{"one_warp_multiplies_alone", "fc::pin(out);\n      fc::fence_products();",
                   "fc::pin(out);\n      if (rank >= 32) fc::fence_products();",
                   FaultKind::group_divergence, multiply_sums, "wait at fence_products"},
        PlantedBug{"too_few_registers_given_back", "fc::shrink_registers<24>();",
                   "fc::shrink_registers<32>();", FaultKind::deadlock,
                   "if (tile >= 2) fc::wait_phase(k_empty",
                   "warpgroup 2 has 168 registers a thread and waits for 240, 64 are free"},
        PlantedBug{"registers_by_one_warp", "fc::grow_registers<240>();",
                   "if (rank < 32) fc::grow_registers<240>();", FaultKind::deadlock,
                   "if (tile >= 2) fc::wait_phase(k_empty",
                   "threads 128-159, 256-287 wait at grow_registers"}),
    [](const auto& bug) { return std::string(bug.param.name); });

}  // namespace
}  // namespace flashcore::testing
