#include "dsl/score_range.h"

#include <gtest/gtest.h>

#include "dsl/variants.h"

namespace flashcore {
namespace {

bool within(const char* text, double largest) { return is_within(Score(text), largest); }

TEST(ScoreRange, CapsAndClampsAreWithinWhatTheySay) {
  EXPECT_TRUE(is_within(softcap(30), 30));
  EXPECT_FALSE(is_within(softcap(30), 29.9));
  EXPECT_TRUE(within("min(max(score, -5.0), 7.0)", 7));
  EXPECT_FALSE(within("min(max(score, -5.0), 7.0)", 6));
  EXPECT_TRUE(within("-abs(sin(score)) * 3.0 - 1.0", 4));
  EXPECT_TRUE(within("tanh(score) / 0.5 + floor(erf(score))", 4));
  EXPECT_TRUE(within("where(q_idx == kv_idx, 1e3, atan(score))", 1e3));
}

TEST(ScoreRange, WhatIsHiddenIsNoResult) {
  EXPECT_TRUE(within("where(kv_idx > q_idx, -inf, 2.0 * tanh(score))", 2));
  EXPECT_TRUE(within("max(where(kv_idx > q_idx, -inf, 1.0), tanh(score) * 9.0)", 9));
  EXPECT_FALSE(within("-where(kv_idx > q_idx, -inf, 1.0)", 1e30));
  EXPECT_FALSE(within("where(kv_idx > q_idx, inf, tanh(score))", 1e30));
}

TEST(ScoreRange, WhatIsNotBoundedIsNotWithin) {
  EXPECT_FALSE(is_within(Score(), 1e30));
  EXPECT_FALSE(within("score", 1e30));
  EXPECT_FALSE(within("score + tanh(score)", 1e30));
  EXPECT_FALSE(within("min(score, 5.0)", 1e30));
  EXPECT_FALSE(within("tanh(score) / sin(score)", 1e30));
  EXPECT_FALSE(within("tanh(score) * q_idx", 1e30));
  EXPECT_FALSE(is_within(Score("tanh(score / cap) * cap", {{"cap", DType::f32, 0}}), 1e30));
  EXPECT_FALSE(is_within(Score("tanh(score) + bias[kv_idx]", {{"bias", DType::f32, 1}}), 1e30));
}

}  // namespace
}  // namespace flashcore
