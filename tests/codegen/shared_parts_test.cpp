// Values that others share are looked at once: what an analysis costs grows with the operations of
// a program, not with the paths through them.
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/explain.h"
#include "codegen/generate.h"
#include "dsl/ir/affine.h"
#include "dsl/program_builder.h"
#include "templates/attention.h"

namespace flashcore {
namespace {

using testing::HasSubstr;

constexpr int doublings = 40;  // 2^40 paths

std::string explained(const AttentionSpec& spec) {
  const Target& target = find_target("sm_80");
  return explain(attention_forward(spec), attention_schedule(spec, target), target);
}

std::string generated(const AttentionSpec& spec) {
  const Target& target = find_target("sm_80");
  return generate(attention_forward(spec), attention_schedule(spec, target), target).body;
}

TEST(SharedParts, OfAMaskAreLookedAtOnce) {
  std::string text = "t0 = (kv_idx <= q_idx) & (kv_idx > q_idx - 100); ";
  for (int i = 1; i <= doublings; ++i) text += fmt::format("t{0} = t{1} & t{1}; ", i, i - 1);
  AttentionSpec spec{.head_dim = 64};
  spec.mask = Mask(text + fmt::format("t{}", doublings));
  AttentionSpec plain{.head_dim = 64};
  plain.mask = Mask("(kv_idx <= q_idx) & (kv_idx > q_idx - 100)");
  EXPECT_EQ(explained(spec), explained(plain));
  EXPECT_THAT(generated(spec), HasSubstr("__global__"));
}

TEST(SharedParts, OfAMaskThatNeedsAScanAreLookedAtOnce) {
  std::string text = "t0 = kv_idx // 3 == q_idx // 5; ";
  for (int i = 1; i <= doublings; ++i)
    text += fmt::format("t{0} = {2}(t{1} {3} ~t{1}) | t{1} & (b < {0}); ", i, i - 1,
                        i % 2 ? "~" : "", i % 2 ? "&" : "|");
  AttentionSpec spec{.head_dim = 64};
  spec.mask = Mask(text + fmt::format("t{}", doublings));
  EXPECT_THAT(generated(spec), HasSubstr("__global__"));
}

TEST(SharedParts, OfAScoreAreLookedAtOnce) {
  std::string text = "t0 = score * 0.5; ";
  for (int i = 1; i <= doublings; ++i) text += fmt::format("t{0} = t{1} + t{1}; ", i, i - 1);
  AttentionSpec spec{.head_dim = 64};
  spec.score = Score(text + fmt::format("t{}", doublings));
  EXPECT_THAT(generated(spec), HasSubstr("__global__"));
}

TEST(SharedParts, OfAConditionCountOnceAmongItsTerms) {
  ProgramBuilder b("condition");
  const Tile x = b.scalar("x", DType::i32), y = b.scalar("y", DType::i32);
  Tile condition = x < y && y == 3;
  for (int i = 0; i < doublings; ++i) condition = condition && condition;
  const AffineCondition found = affine_condition(b.function(), condition.id());
  EXPECT_TRUE(found.complete);
  EXPECT_EQ(found.terms.size(), 3U);
}

}  // namespace
}  // namespace flashcore
