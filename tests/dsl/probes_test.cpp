// What with_probes adds to a program, and what it refuses, word by word.
#include "dsl/probes.h"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "dsl/error.h"
#include "dsl/flashcore.h"

namespace flashcore {
namespace {

/// A softmax over columns with a name for everything.
Program sample() {
  ProgramBuilder b("sample");
  const Axis head = b.parallel("head", Extent(std::string("H")));
  const Axis rows = b.parallel_tiles("rows", Extent(std::string("M")));
  const Axis cols = b.tiles("cols", Extent(std::string("N")));
  const Axis d = b.whole("d", 32);
  const Tensor x =
      b.input("x", DType::bf16, {Extent(std::string("H")), Extent(std::string("M")), 32});
  const Tensor y = b.input("y", DType::bf16, {Extent(std::string("N")), 32});
  const Tensor z =
      b.output("z", DType::f32, {Extent(std::string("H")), Extent(std::string("M")), 32});
  const Tile odd = (index(head) % 2).named("odd");
  const Tile left = load(x(head, rows, d)).named("left");
  struct Sums {
    Tile most, sum;
  };
  const Sums last = b.loop(
      cols, Sums{b.fill({rows}, lowest).named("most"), b.fill({rows, d}, 0).named("sum")},
      [&](const Sums& s) {
        const Tile right = load(y(cols, d)).named("right");
        const Tile seen = (index(rows) >= index(cols) + odd).named("seen");
        const Tile gap = (index(rows) - index(cols)).named("gap");
        Tile scores = dot(left, transpose(right).named("turned")).named("scores");
        scores = where(seen, scores, -infinity).named("scores");
        const Tile most = maximum(s.most, reduce_max(scores, cols)).named("new_most");
        const Tile packed = cast(exp2(scores - most).named("probs"), DType::bf16).named("packed");
        (void)gap;
        return Sums{most, s.sum + dot(packed, right)};
      });
  store(z(head, rows, d), last.sum);
  return b.finish();
}

std::string refusal(const std::vector<std::string>& names) {
  try {
    with_probes(sample(), names);
  } catch (const SpecError& error) {
    std::string text = error.what();
    const std::size_t at = text.find("\n  at:  ");
    if (at != std::string::npos) text.erase(at, text.find('\n', at + 1) - at);
    return text;
  }
  return "nothing was refused";
}

TEST(ProbedPrograms, HaveAnOutputForEachName) {
  const Program probed =
      with_probes(sample(), std::vector<std::string>{"scores", "gap", "seen", "sum"});
  const auto& tensors = probed.function().tensors;
  ASSERT_EQ(tensors.size(), 7u);
  const std::string text = probed.text();
  for (const char* line : {"output probe_scores: f32 [H, M, N] unwritten nan\n",
                           "output probe_gap: i32 [H, M, N] unwritten -2147483648\n",
                           "output probe_seen: f32 [H, M, N] unwritten nan\n",
                           "output probe_sum: f32 [H, M, 32] unwritten nan\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  EXPECT_EQ(Program::parse(text).text(), text);
}

TEST(ProbedPrograms, TakeTheLastValueOfAName) {
  const std::string text = with_probes(sample(), std::vector<std::string>{"scores"}).text();
  EXPECT_NE(text.find("store probe_scores[%"), std::string::npos) << text;
  EXPECT_NE(text.find("rows, cols], %scores_1\n"), std::string::npos) << text;
}

TEST(ProbedPrograms, WithoutNamesAreTheProgram) {
  EXPECT_EQ(with_probes(sample(), {}).text(), sample().text());
}

TEST(ProbedPrograms, RefuseNamesThatDoNotExist) {
  EXPECT_EQ(refusal({"scores", "score"}),
            "a probe of \"score\"\n"
            "  why: program sample names no value so\n"
            "  try: one of seen, gap, scores, probs, most, sum");
}

TEST(ProbedPrograms, RefuseWhatNoTensorCanHold) {
  EXPECT_EQ(refusal({"odd"}),
            "a probe of \"odd\"\n"
            "  why: it is a scalar, not a tile\n"
            "  try: one of seen, gap, scores, probs, most, sum");
  EXPECT_EQ(
      refusal({"new_most"}),
      "a probe of \"new_most\"\n"
      "  why: it changes with every tile of cols and has no axis cols to keep the tiles apart\n"
      "  try: one of seen, gap, scores, probs, most, sum");
  EXPECT_EQ(
      refusal({"right"}),
      "a probe of \"right\"\n"
      "  why: it changes with the block's tile of rows and has no axis rows to keep the tiles "
      "apart\n"
      "  try: one of seen, gap, scores, probs, most, sum");
}

TEST(ProbedPrograms, RefuseWhatIsNoValueInRegisters) {
  EXPECT_EQ(refusal({"left"}),
            "a probe of \"left\"\n"
            "  why: it is x as the array holds it\n"
            "  try: look at the array, or probe what is computed from it");
  EXPECT_EQ(refusal({"packed"}),
            "a probe of \"packed\"\n"
            "  why: it is packed into the registers of a product\n"
            "  try: give the f32 tile before the cast a name, and probe that");
}

TEST(ProbedPrograms, RefuseTheSameNameTwice) {
  EXPECT_EQ(refusal({"scores", "scores"}),
            "a second output probe_scores\n"
            "  why: a value is probed once, and no tensor of the program may have that name\n"
            "  try: name each value once");
}

}  // namespace
}  // namespace flashcore
