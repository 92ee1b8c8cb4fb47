// The gradients of attention by blocks of keys that add up dQ, on the emulator, against the formulas
// written out in double precision.
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "dsl/error.h"
#include "templates/attention_backward.h"
#include "tests/templates/support/backward_run.h"

namespace flashcore {
namespace {

using Visible = std::function<bool(const Site&)>;

bool everything(const Site&) { return true; }
bool is_causal(const Site& s) { return s.kv_idx <= s.q_idx + s.kv_len - s.q_len; }

BackwardProblem sized(int q_len, int kv_len, int batch = 1, int heads = 1, int kv_heads = 0) {
  return {.batch = batch,
          .heads = heads,
          .kv_heads = kv_heads ? kv_heads : heads,
          .q_len = q_len,
          .kv_len = kv_len};
}

void expect_right(const AttentionSpec& spec, const Visible& visible,
                  const std::vector<BackwardProblem>& problems, const char* target = "sm_90a",
                  bool all_schedules = false) {
  const auto kernels = backward_kernels(spec, find_target(target), true, all_schedules);
  for (const BackwardProblem& problem : problems) {
    SCOPED_TRACE(fmt::format("head_dim {}, {} queries and {} keys, {}", spec.head_dim,
                             problem.q_len, problem.kv_len, target));
    EXPECT_EQ(compare_backward(kernels, spec, visible, problem), "");
  }
}

const std::vector<BackwardProblem> lengths = {sized(200, 300, 2, 2), sized(1, 77), sized(77, 1),
                                              sized(130, 31), sized(0, 70)};

TEST(AttentionBackwardAdding, IsRightForEveryLength) {
  for (const int head_dim : {64, 128}) {
    expect_right({.head_dim = head_dim}, everything, lengths);
    expect_right({.head_dim = head_dim, .mask = causal()}, is_causal, lengths);
  }
}

TEST(AttentionBackwardAdding, IsRightForOtherHeadDims) {
  for (const int head_dim : {32, 40, 80, 96, 112})
    expect_right({.head_dim = head_dim, .mask = causal()}, is_causal, {sized(70, 100)});
}

TEST(AttentionBackwardAdding, IsRightUnderEverySchedule) {
  for (const char* target : {"sm_80", "sm_90a"})
    for (const int head_dim : {64, 128})
      expect_right({.head_dim = head_dim, .mask = causal()}, is_causal, {sized(70, 100)}, target,
                   true);
}

TEST(AttentionBackwardAdding, SumsOverTheHeadsOfAGroup) {
  expect_right({.head_dim = 128, .heads = 4, .kv_heads = 2}, everything, {sized(70, 200, 1, 4, 2)});
}

TEST(AttentionBackwardAdding, IsRightForPackedSequences) {
  BackwardProblem packed{.batch = 4};
  packed.q_lens = {70, 1, 0, 140};
  packed.kv_lens = {70, 30, 40, 150};
  for (const int head_dim : {64, 128})
    expect_right({.head_dim = head_dim, .mask = causal(), .layout = TensorLayout::thd}, is_causal,
                 {packed});
}

TEST(AttentionBackwardAdding, IsRightForPaddedSequences) {
  BackwardProblem padded = sized(140, 150, 3);
  padded.q_lens = {140, 1, 70};
  padded.kv_lens = {150, 20, 90};
  for (const TensorLayout layout : {TensorLayout::bhsd, TensorLayout::bshd})
    expect_right({.head_dim = 64, .layout = layout, .q_lens = true, .kv_lens = true}, everything,
                 {padded});
}

std::string kernel_of(int head_dim, std::size_t schedule = 0) {
  const AttentionSpec spec{.head_dim = head_dim};
  const Target& target = find_target("sm_90a");
  return generate(attention_backward_adding_keys(spec),
                  attention_backward_schedules("attention_backward_adding_keys", spec, target)
                      .at(schedule),
                  target)
      .body;
}

TEST(AttentionBackwardAdding, TheCopyEngineAddsOnHopper) {
  for (const int head_dim : {64, 128})
    EXPECT_THAT(kernel_of(head_dim), testing::HasSubstr("fc::add_box<false>"));
}

TEST(AttentionBackwardAdding, WarpgroupsDivideTheColumnsOfATileOf64Rows) {
  const std::string body = kernel_of(128), narrow = kernel_of(64, 2);
  EXPECT_THAT(narrow, testing::HasSubstr("fc::matrix(key + warp / 4 * 64, 64, 0)"));
  EXPECT_THAT(narrow, testing::HasSubstr("dq_sums_staged + warp / 4 * 8192"));
  EXPECT_THAT(body, testing::HasSubstr("fc::matrix(key + warp / 4 * 16384, 64, 0)"));
  EXPECT_THAT(body, testing::HasSubstr("dq_sums_staged + 8192 + warp / 4 * 16384"));
}

TEST(AttentionBackwardAdding, RefusesHeadsWhoseSumsAreMoreThanTheRegisters) {
  EXPECT_THROW((void)attention_backward_adding_keys({.head_dim = 192}), SpecError);
}

}  // namespace
}  // namespace flashcore
