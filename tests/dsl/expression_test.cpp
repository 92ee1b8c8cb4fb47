#include "dsl/expression.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dsl/ir/print.h"
#include "dsl/program_builder.h"
#include "dsl/variants.h"

namespace flashcore {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

/// Reading and writing again: what the text means, in one spelling.
std::string mask_text(const std::string& text, std::vector<Captured> tensors = {}) {
  const Mask read(text, std::move(tensors));
  return Mask([&](const ScoreSite& s) { return apply(read, s); }).text;
}
std::string score_text(const std::string& text, std::vector<Captured> tensors = {}) {
  const Score read(text, std::move(tensors));
  return Score([&](const Tile& score, const ScoreSite& s) { return apply(read, score, s); }).text;
}

TEST(Expression, ReadsWhatItWrites) {
  for (const char* text :
       {"q_idx >= kv_idx", "q_idx + (kv_len - q_len) >= kv_idx", "q_idx - 3 - kv_idx < 4",
        "q_idx - (3 - kv_idx) < 4", "((q_idx < 3) & (kv_idx < 4)) | (b == 1)",
        "(q_idx < 3) & ((kv_idx < 4) | (b == 1))", "~(q_idx == kv_idx)",
        "q_idx // 8 == kv_idx // 8", "(q_idx - kv_idx) % 4 == 0",
        "max(min(q_idx, 7), h) > abs(kv_idx)", "-q_idx < -4",
        "t1 = q_idx - kv_idx; (0 <= t1) & (t1 < 512)", "where(q_idx < 4, kv_idx, 3) == 3", "true"})
    EXPECT_EQ(mask_text(text), text);
  for (const char* text :
       {"score + 1.0", "tanh(score / 30.0) * 30.0", "score * (2.0 - score)", "-score",
        "score + float(q_idx - kv_idx) * 0.5", "floor(log2(exp(sqrt(abs(score)))))",
        "round(erf(expm1(log1p(score))))", "sin(score) + cos(tan(atan(score)))",
        "where(q_idx == kv_idx, -inf, score)", "t1 = exp2(score); t2 = t1 * t1; t2 * t2"})
    EXPECT_EQ(score_text(text), text);
}

TEST(Expression, GivesNumbersTheTypesTheyMeet) {
  EXPECT_EQ(score_text("score * 2 + q_idx"), "score * 2.0 + float(q_idx)");
  EXPECT_EQ(score_text("q_idx / 2"), "float(q_idx) / 2.0");
  EXPECT_EQ(score_text("score + (q_idx > 2)"), "score + float(where(q_idx > 2, 1, 0))");
  EXPECT_EQ(score_text("score * (3 - 1) / 4"), "score * 2.0 / 4.0");
  EXPECT_EQ(score_text("score // 2"), "floor(score / 2.0)");
  EXPECT_EQ(score_text("score % 2"), "score - 2.0 * floor(score / 2.0)");
  EXPECT_EQ(score_text("int(score) + 7 // 2"), "float(int(score) + 3)");
  EXPECT_EQ(mask_text("q_idx > 2.5"), "float(q_idx) > 2.5");
  EXPECT_EQ(mask_text("2 < kv_idx & kv_idx < h"), "(2 < kv_idx) & (kv_idx < h)");
}

TEST(Expression, ReadsCapturedTensors) {
  const Captured slopes{"slopes", DType::f32, 1}, doc{"doc", DType::i64, 2},
      seen{"seen", DType::i1, 1};
  EXPECT_EQ(score_text("score + slopes[h] * (kv_idx - q_idx)", {slopes}),
            "score + slopes[h] * float(kv_idx - q_idx)");
  EXPECT_EQ(mask_text("(doc[b, q_idx] == doc[b, kv_idx]) & seen[kv_idx // 2]", {doc, seen}),
            "(doc[b, q_idx] == doc[b, kv_idx]) & seen[kv_idx // 2]");
}

TEST(Expression, WrapStandsAroundAnIndex) {
  const Captured doc{"doc", DType::i64, 2};
  const std::string text = "doc[b, wrap(q_idx - 3)] == doc[wrap(doc[b, kv_idx]), wrap(-1)]";
  EXPECT_EQ(mask_text(text, {doc}), text);
  EXPECT_EQ(captured_name("wrap"), "wrap_");
  for (const char* wrong : {"wrap(q_idx) < 3", "doc[b, wrap(q_idx) + 1] < 3", "doc[b, wrap] < 3",
                            "doc[b, wrap(q_idx, 3)] < 3", "doc[b, wrap(q_idx] < 3"})
    EXPECT_FALSE(check(Mask(wrong, {doc})).empty()) << wrong;
  EXPECT_THAT(check(Mask("wrap(q_idx) < 3")), ElementsAre(HasSubstr("wrap outside of an index")));
}

TEST(Expression, TracesFunctions) {
  const Captured bias{"bias", DType::bf16, 2, /*unit_stride=*/true};
  const Score traced([&](const Tile& score, const ScoreSite& s) {
    const Tile gap = s.query_index - s.key_index;
    return where(gap * gap < 9, score + bias(s.head, gap), -score);
  });
  EXPECT_EQ(traced.text, "t1 = q_idx - kv_idx; where(t1 * t1 < 9, score + bias[h, t1], -score)");
  EXPECT_THAT(traced.tensors, ElementsAre(bias));
}

TEST(Expression, CapturedTensorsStayClearOfTheKernelsOwnNames) {
  for (const char* name :
       {"q", "lse", "Sq", "Tq", "max_q_len", "cu_seqlens_q", "q_lens", "float", "int"})
    EXPECT_EQ(captured_name(name), std::string(name) + "_");
  EXPECT_EQ(captured_name("slopes"), "slopes");
  EXPECT_EQ(captured_name("__bias.0"), "bias_0");
  EXPECT_EQ(captured_name("0"), "t0");
}

TEST(Expression, MasksCombine) {
  EXPECT_EQ((causal(Align::top_left) & ~chunked(4)).text,
            "(q_idx >= kv_idx) & ~(q_idx // 4 == kv_idx // 4)");
  EXPECT_EQ((full() & causal(Align::top_left)).text, "q_idx >= kv_idx");
  EXPECT_TRUE((full() | causal()).is_full());
  const Captured ids{"ids", DType::i32, 1};
  const Mask both = (documents(ids) & causal(Align::top_left)) | documents(ids);
  EXPECT_EQ(both.text,
            "((ids[q_idx] == ids[kv_idx]) & (q_idx >= kv_idx)) | (ids[q_idx] == ids[kv_idx])");
  EXPECT_THAT(both.tensors, ElementsAre(ids));
  EXPECT_THROW(documents(ids) & documents({"ids", DType::i64, 1}), SpecError);
  EXPECT_THAT(
      [&] {
        (void)(documents(ids) & documents({"ids", DType::i32, 1, true}));
      },
      ThrowsMessage<SpecError>(
          AllOf(HasSubstr("two captured tensors named ids\n  why: one is i32 with 1 dimensions"),
                HasSubstr("i32 with 1 dimensions, the last of unit stride"))));
}

TEST(Expression, NumbersAreCaptured) {
  const Captured offset{"offset", DType::i32, 0}, gain{"gain", DType::f32, 0};
  const Mask shifted("kv_idx <= q_idx + offset", {offset});
  EXPECT_TRUE(check(shifted).empty());
  EXPECT_FALSE(shifted.looks_up());
  const Mask both = shifted & ~(documents({"ids", DType::i32, 1}) & shifted);
  EXPECT_EQ(both.text,
            "(kv_idx <= q_idx + offset) & ~((ids[q_idx] == ids[kv_idx]) & (kv_idx <= q_idx + "
            "offset))");
  EXPECT_THAT(both.tensors, ElementsAre(Captured{"ids", DType::i32, 1}, offset));
  EXPECT_TRUE(both.looks_up());
  EXPECT_TRUE(check(Score("score * gain + offset", {gain, offset})).empty());
  EXPECT_THAT(check(Mask("kv_idx < n", {{"n", DType::i64, 0}})),
              ElementsAre("the captured number n is i64: numbers are i32 or f32; convert it"));
  EXPECT_THROW(shifted & Mask("kv_idx < offset", {{"offset", DType::f32, 0}}), SpecError);
}

TEST(Expression, AlignedRowsAreOfNeighbours) {
  const std::string text = "score + t[q_idx, kv_idx]";
  EXPECT_TRUE(check(Score(text, {{"t", DType::bf16, 2, true, true}})).empty());
  EXPECT_THAT(check(Score(text, {{"t", DType::bf16, 2, false, true}})),
              ElementsAre("the captured tensor t has aligned_rows without unit_stride: rows have "
                          "their elements side by side; promise both, or neither"));
  EXPECT_THAT(
      check(Score(text, {{"t", DType::f64, 2, true, true}})),
      ElementsAre("the captured tensor t is f64 and has aligned_rows: aligned rows let tiles be "
                  "loaded, and tiles hold f16, bf16, f32, i32 or i1; leave aligned_rows "
                  "out, or convert the tensor"));
}

TEST(Expression, SaysWhereATextIsWrong) {
  EXPECT_THAT(
      check(Mask("q_idx >= key")),
      ElementsAre("cannot read the expression \"q_idx >= key\": at character 10: key is not "
                  "defined; the values are b, h, kv_idx, kv_len, q_idx, q_len"));
  EXPECT_THAT(check(Mask("q_idx >= ")),
              ElementsAre("cannot read the expression \"q_idx >= \": at "
                          "character 10: expected a value, found the end"));
  EXPECT_THAT(
      check(Mask("0 < q_idx < 5")),
      ElementsAre("cannot read the expression \"0 < q_idx < 5\": at character 11: comparisons "
                  "do not chain; write (a < b) & (b < c)"));
  EXPECT_THAT(
      check(Mask("q_idx & kv_idx")),
      ElementsAre("cannot read the expression \"q_idx & kv_idx\": at character 7: \"&\" of a "
                  "number; compare it with something first"));
  EXPECT_THAT(
      check(Mask("q_idx + 1")),
      ElementsAre("a mask that gives i32: it says which scores are kept; compare something, "
                  "as in q_idx >= kv_idx"));
  EXPECT_THAT(check(Score("score > 1")),
              ElementsAre("a score that gives i1: it is a number; where(condition, a, b)"));
  EXPECT_THAT(check(Score("score + slopes[h, 1]", {{"slopes", DType::f32, 1}})),
              ElementsAre("cannot read the expression \"score + slopes[h, 1]\": at character 9: 2 "
                          "indices for slopes, which has 1 dimensions"));
  EXPECT_THAT(
      check(Score("score + slopes[score]", {{"slopes", DType::f32, 1}})),
      ElementsAre("cannot read the expression \"score + slopes[score]\": at character 16: an "
                  "index that is not an integer; int(...)"));
  EXPECT_THAT(
      check(Score("score + slopes", {{"slopes", DType::f32, 1}})),
      ElementsAre("cannot read the expression \"score + slopes\": at character 9: the tensor "
                  "slopes without an index; slopes[...], one index a dimension"));
  EXPECT_THAT(
      check(Score("sinh(score)")),
      ElementsAre("cannot read the expression \"sinh(score)\": at character 1: no function is "
                  "named sinh; abs, min, max, where, exp, exp2, log, log2, sqrt, tanh, sin, cos, "
                  "tan, atan, erf, expm1, log1p, floor, round, float, int"));
  EXPECT_THAT(check(Sink("kv_idx")),
              ElementsAre("cannot read the expression \"kv_idx\": at character 1: kv_idx is not "
                          "defined; the values are b, h, kv_len, q_idx, q_len"));
  EXPECT_THAT(
      check(Score("score + q[h]", {{"q", DType::f32, 1}})),
      ElementsAre("a captured tensor named q: the name has a meaning already; rename it, for "
                  "example to q_"));
  EXPECT_THAT(check(Mask("q_idx % 0 == 1")),
              ElementsAre("cannot read the expression \"q_idx % 0 == "
                          "1\": at character 7: a division by zero"));
}

TEST(Expression, TextOfAnyKindIsReadOrRefused) {
  // Every prefix of a text that uses everything ends in words, not in a crash.
  const std::string text =
      "t = q_idx - kv_idx; (0 <= t) & (ids[b, q_idx % 3] == max(2, -t)) | ~(h < 1.5e1)";
  for (std::size_t length = 0; length < text.size(); ++length)
    EXPECT_EQ(check(Mask(text.substr(0, length), {{"ids", DType::i8, 2}})).empty(),
              length == 28 || length == 29 || length == 64 || length == 65)
        << text.substr(0, length);
  EXPECT_THAT(check(Mask(text, {{"ids", DType::i8, 2}})), IsEmpty());
  for (const char* odd : {"$", "caf\xc3\xa9 < q_idx", "1..2 < q_idx", ")", "((((", "q_idx[0]",
                          "a = 1", "a = 1;", ";", "..", "\xff"})
    EXPECT_FALSE(check(Mask(odd)).empty()) << odd;
}

TEST(Expression, TextIsBoundedInDepthAndSize) {
  const auto repeated = [](const std::string& part, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += part;
    return text;
  };
  const auto nested = [&](int times) {
    return repeated("(", times) + "q_idx < 3" + repeated(")", times);
  };
  EXPECT_THAT(check(Mask(nested(100))), IsEmpty());
  for (const std::string& deep :
       {nested(100000), repeated("~", 100000) + "(q_idx < 3)", repeated("-", 100000) + "q_idx < 3",
        repeated("min(1, ", 100000), repeated("ids[", 100000), repeated("ids[wrap(", 100000)}) {
    const std::vector<std::string> reasons = check(Mask(deep, {{"ids", DType::i32, 1}}));
    ASSERT_EQ(reasons.size(), 1U);
    EXPECT_THAT(reasons[0], HasSubstr("nested more than 200 deep"));
    EXPECT_LT(reasons[0].size(), 500U);
  }
  EXPECT_THAT(check(Mask("q_idx < 3" + repeated(" | q_idx == kv_idx", 1000))), IsEmpty());
  EXPECT_THAT(check(Mask("q_idx < 3" + repeated(" | q_idx == kv_idx", 100000))),
              ElementsAre(HasSubstr("more than 4096 operations")));
  EXPECT_THAT(check(Mask(repeated("long_name", 1000000))),
              ElementsAre(HasSubstr("... is not defined")));
}

TEST(Expression, WholeNumbersFitIn32BitsOrAreRefused) {
  EXPECT_THAT(check(Mask("q_idx < 2147483647")), IsEmpty());
  EXPECT_THAT(check(Mask("q_idx >= -2147483648")), IsEmpty());
  for (const char* text : {"q_idx < 2147483648", "q_idx < 65536 * 65536", "q_idx > -2147483649",
                           "q_idx < int(1e30)", "(q_idx < 3) & (kv_idx == 4294967296)"})
    EXPECT_THAT(check(Mask(text)), ElementsAre(HasSubstr("does not fit in 32 bits"))) << text;
  EXPECT_THAT(check(Score("score + 2147483648")), IsEmpty());  // a float there
}

TEST(Expression, CapturedNamesMayBeAnyWordsOfTheGeneratedKernel) {
  for (const char* name : {"bitand", "NULL", "threadIdx", "linux", "x_stride_0", "x_n1", "fc",
                           "tile_counter", "co_await"})
    EXPECT_EQ(captured_name(name), name);
  EXPECT_EQ(captured_name("min"), "min_");  // a function of expressions
  EXPECT_EQ(
      mask_text("min(q_idx, min[h]) < NULL[b]", {{"min", DType::i32, 1}, {"NULL", DType::i32, 1}}),
      "min(q_idx, min[h]) < NULL[b]");
  EXPECT_EQ(captured_name("x_stride"), "x_stride");
  EXPECT_EQ(captured_name("na\xc3\xafve"), "na__ve");
  const std::string prefix(10000, 'x');
  EXPECT_LE(captured_name(prefix).size(), 65U);
  EXPECT_NE(captured_name(prefix + "_2"), captured_name(prefix + "_3"));
}

TEST(Expression, ReachesBeyondEveryLengthAreAnyDistance) {
  EXPECT_TRUE(sliding_window(2147483647, 1 << 30).is_full());
  EXPECT_EQ(sliding_window(3, 2147483647), sliding_window(3, -1));
  EXPECT_EQ(sliding_window(2147483647, 0), sliding_window(-1, 0));
  for (const double cap : {HUGE_VAL, std::nan(""), 1e-300, -1.0})
    EXPECT_THROW((void)softcap(cap), SpecError) << cap;
}

}  // namespace
}  // namespace flashcore
