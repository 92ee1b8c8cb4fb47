// Sequences with lengths of their own, packed and padded, on every target under the schedules that
// ship. What belongs to no sequence, or to another one, is NaN: a kernel that reads it shows it,
// and one that writes where nobody should leaves a number.
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "dsl/json.h"
#include "templates/attention.h"
#include "tests/templates/support/attention_run.h"
#include "tests/templates/support/unfused.h"

namespace flashcore {
namespace {

AttentionInputs packed(std::vector<int> q, std::vector<int> kv, int heads = 1, int kv_heads = 1) {
  AttentionInputs in{.batch = static_cast<int>(q.size()), .heads = heads, .kv_heads = kv_heads};
  in.q_lens = std::move(q), in.kv_lens = std::move(kv);
  in.beyond = 7;
  return in;
}

AttentionInputs padded(int q_len, int kv_len, std::vector<int> q, std::vector<int> kv) {
  AttentionInputs in{.batch = static_cast<int>(std::max(q.size(), kv.size()))};
  in.q_len = q_len, in.kv_len = kv_len;
  in.q_lens = std::move(q), in.kv_lens = std::move(kv);
  return in;
}

void expect_right(AttentionSpec spec, const std::vector<AttentionInputs>& launches) {
  std::set<std::string> have_run;  // of targets that get the same kernel one runs it
  for (const Target& target : all_targets()) {
    SCOPED_TRACE(target.name);
    spec.dtype = target.bf16 ? DType::bf16 : DType::f16;
    const KernelSource source =
        generate(attention_forward(spec), attention_schedule(spec, target), target);
    if (!have_run.insert(source.text()).second) continue;
    for (const AttentionInputs& in : launches) {
      KernelRun run = attention_run(spec, in);
      const EmulationReport report = run.emulate(source);
      EXPECT_EQ(run.compare(), "");
      for (const OutputCoverage& output : report.outputs) EXPECT_EQ(output.rewritten, 0);
    }
  }
}

/// What warpgroups can do to a batch whose sequences end inside tiles, and begin there.
std::vector<Schedule> of_warpgroups() {
  Schedule plain;
  plain.instruction = Instruction::wgmma;
  plain.copy = CopyInstruction::tma;
  plain.tiles = {{"rows", 128}, {"cols", 64}};
  plain.warps_m = 8;
  std::vector<Schedule> schedules(6, plain);
  schedules[1].ping_pong = schedules[1].rescale_before_product = true;
  schedules[2].descending = false, schedules[2].peel_masks = true, schedules[2].tiles["cols"] = 48;
  schedules[3].overlap_products = false;
  schedules[4].lazy_scaling = true, schedules[4].stages = 3, schedules[4].tiles["cols"] = 16;
  schedules[5].tiles["rows"] = 64, schedules[5].warps_m = 4;
  return schedules;
}

void expect_right_of_warpgroups(const AttentionSpec& spec,
                                const std::vector<AttentionInputs>& launches) {
  for (const Schedule& schedule : of_warpgroups()) {
    SCOPED_TRACE(to_json(schedule));
    const KernelSource source = generate(attention_forward(spec), schedule, find_target("sm_90a"));
    for (const AttentionInputs& in : launches) {
      KernelRun run = attention_run(spec, in);
      const EmulationReport report = run.emulate(source);
      EXPECT_EQ(run.compare(), "");
      for (const OutputCoverage& output : report.outputs) EXPECT_EQ(output.rewritten, 0);
    }
  }
}

const std::vector<AttentionInputs> packed_launches = {
    packed({5, 0, 130, 1}, {5, 0, 130, 1}),
    packed({64, 3, 0, 17}, {1, 0, 9, 200}),
};

TEST(PackedSequences, AreRightWithoutAMask) {
  for (const int head_dim : {40, 64, 128})
    expect_right({.head_dim = head_dim, .layout = TensorLayout::thd}, packed_launches);
}

TEST(PackedSequences, AlignACausalMaskInEverySequence) {
  for (const Align align : {Align::bottom_right, Align::top_left})
    expect_right({.head_dim = 64, .mask = causal(align), .layout = TensorLayout::thd, .lse = true},
                 packed_launches);
}

TEST(PaddedSequences, AreRight) {
  const std::vector<AttentionInputs> launches = {
      padded(140, 150, {140, 0, 1, 77}, {150, 33, 0, 150}), padded(3, 5, {2}, {4})};
  for (const int head_dim : {64, 128})
    for (const Mask& mask : {full(), causal()})
      expect_right(
          {.head_dim = head_dim, .mask = mask, .lse = true, .q_lens = true, .kv_lens = true},
          launches);
}

TEST(PackedSequences, AreRightInWarpgroups) {
  for (const Mask& mask : {full(), causal()})
    expect_right_of_warpgroups(
        {.head_dim = 64, .head_dim_v = 112, .mask = mask, .layout = TensorLayout::thd, .lse = true},
        packed_launches);
  expect_right_of_warpgroups(
      {.head_dim = 64, .heads = 4, .kv_heads = 2, .mask = causal(), .layout = TensorLayout::thd},
      {packed({3, 129}, {70, 65}, 4, 2)});
}

TEST(PaddedSequences, AreRightInWarpgroups) {
  const std::vector<AttentionInputs> launches = {
      padded(140, 150, {140, 0, 1, 77}, {150, 33, 0, 150}), padded(3, 5, {2}, {4})};
  for (const Mask& mask : {full(), causal()})
    expect_right_of_warpgroups({.head_dim = 40,
                                .head_dim_v = 72,
                                .mask = mask,
                                .lse = true,
                                .q_lens = true,
                                .kv_lens = true},
                               launches);
}

TEST(SequencesInPages, AreRight) {
  for (const int page_size : {1, 16}) {
    AttentionSpec spec{.head_dim = 64, .mask = causal(), .lse = true, .kv_lens = true};
    spec.page_size = page_size;
    expect_right(spec, {padded(70, 150, {}, {150, 33, 0, 149}), padded(3, 5, {}, {4})});
    spec.layout = TensorLayout::thd;
    spec.mask = full();
    expect_right(spec, packed_launches);
  }
}

// Tiles of 16, 48 and 64 keys: several to a page, and several pages to one.
TEST(SequencesInPages, AreRightInWarpgroups) {
  AttentionSpec spec{.head_dim = 64, .head_dim_v = 112, .lse = true, .kv_lens = true};
  spec.page_size = 16;
  expect_right_of_warpgroups(spec, {padded(140, 400, {}, {400, 33, 0, 150})});
  spec.page_size = 192;
  spec.layout = TensorLayout::thd;
  spec.mask = causal();
  expect_right_of_warpgroups(spec, packed_launches);
}

TEST(UnfusedAttention, RefusesSequencesOfDifferentLengths) {
  for (const AttentionSpec& spec : {AttentionSpec{.head_dim = 64, .layout = TensorLayout::thd},
                                    AttentionSpec{.head_dim = 64, .q_lens = true}}) {
    try {
      unfused_scores(spec);
      ADD_FAILURE() << "accepted";
    } catch (const SpecError& error) {
      EXPECT_STREQ(error.what(),
                   "unfused attention of sequences of different lengths\n"
                   "  why: it stores the scores of all sequences in one tensor\n"
                   "  try: attention_forward, or sequences of one length");
    }
  }
}

}  // namespace
}  // namespace flashcore
