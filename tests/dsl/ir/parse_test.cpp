// What the parser says, and where, about text that it cannot read.
#include "dsl/ir/parse.h"

#include <string>

#include <gtest/gtest.h>

#include "dsl/ir/print.h"
#include "dsl/ir/verify.h"

namespace flashcore::ir {
namespace {

const std::string head = R"(program test
axis rows: parallel_tiles N tile 64
axis d: whole 16
input x: f32 [N, 16]
output y: f32 [N, 16]
buffer x: f32 [64, 16] stages 2
{
)";

std::string whole_complaint(const std::string& text) {
  try {
    parse(text, "case.fc");
  } catch (const SpecError& error) {
    return error.what();
  }
  return "no complaint";
}

const std::string usual_way_out =
    "\n  try: the text form of programs, as Program.text and kernel.ir() write it";

/// Without the way out of complaints that have none of their own.
std::string complaint(const std::string& text) {
  std::string whole = whole_complaint(text);
  if (whole.ends_with(usual_way_out)) whole.resize(whole.size() - usual_way_out.size());
  return whole;
}

/// The message for a body whose first line is line 8.
std::string in_body(const std::string& lines) { return complaint(head + lines); }

TEST(Parse, EveryComplaintHasAWayOut) {
  EXPECT_TRUE(whole_complaint("").ends_with(usual_way_out));
  EXPECT_TRUE(whole_complaint("program 7").ends_with(usual_way_out));
  EXPECT_FALSE(whole_complaint("program test\nlet x\n").ends_with(usual_way_out));
}

TEST(Parse, RemarksAndEmptyLinesSayNothing) {
  const Function f = parse("// a remark\n\nprogram test  // another\n\naxis d: whole 16\n{\n\n}\n");
  EXPECT_EQ(print(f), "program test\naxis d: whole 16\n{\n}\n");
}

TEST(Parse, AnOpRemembersItsLine) {
  const Function f = parse(head + "  %a = constant 1 : f32\n\n  %b = neg %a : f32\n}\n", "case.fc");
  EXPECT_EQ(f.ops[1].where.file, "case.fc");
  EXPECT_EQ(f.ops[1].where.line, 10);
}

TEST(Parse, TheFrame) {
  EXPECT_EQ(complaint(""),
            "expected \"program\"\n  at:  case.fc:1\n  why: found the end of the text in column 1");
  EXPECT_EQ(complaint("program 7"),
            "expected the name of the program\n  at:  case.fc:1\n  why: found \"7\" in column 9");
  EXPECT_EQ(complaint("program test {"),
            "expected the end of the line\n  at:  case.fc:1\n  why: found \"{\" in column 14");
  EXPECT_EQ(complaint("program test\nlet x\n"),
            "expected a declaration or \"{\"\n  at:  case.fc:2\n  why: found \"let\" in column 1\n"
            "  try: declare with axis, grid, parameter, input, output, buffer or channel");
  EXPECT_EQ(in_body("  barrier\n"),
            "expected an operation or \"}\"\n  at:  case.fc:9\n"
            "  why: found the end of the text in column 1");
  EXPECT_EQ(in_body("}\nmore\n"),
            "expected the end of the text\n  at:  case.fc:9\n  why: found \"more\" in column 1");
}

TEST(Parse, Declarations) {
  const std::string p = "program test\n";
  EXPECT_EQ(complaint(p + "axis rows: sideways N\n"),
            "expected parallel, parallel_tiles, tiles, whole or alias\n  at:  case.fc:2\n"
            "  why: found \"sideways\" in column 12");
  EXPECT_EQ(complaint(p + "axis rows tiles N\n"),
            "expected \":\"\n  at:  case.fc:2\n  why: found \"tiles\" in column 11");
  EXPECT_EQ(complaint(p + "axis rows: tiles -4\n"),
            "expected an extent: a number or a name\n  at:  case.fc:2\n"
            "  why: found \"-4\" in column 18");
  EXPECT_EQ(complaint(p + "axis rows: tiles N tile 1.5\n"),
            "expected the elements of a tile\n  at:  case.fc:2\n  why: found \"1.5\" in column 25");
  EXPECT_EQ(
      complaint(p + "axis a: whole 1\ninput a: f32 [1]\n"),
      "a second declaration of a\n  at:  case.fc:3\n"
      "  why: axes, arguments and buffers are found by name; found this one again in column 7");
  EXPECT_EQ(complaint(p + "input x: float [1]\n"),
            "expected a dtype: f16, bf16, f32, i32 or i1\n  at:  case.fc:2\n"
            "  why: found \"float\" in column 10\n"
            "  try: a gathered input may also be f64, i64, i16, i8 or u8");
  EXPECT_EQ(complaint(p + "buffer key: bf16 [64, 128]\n"),
            "expected \"stages\"\n  at:  case.fc:2\n  why: found the end of the line in column 27");
  EXPECT_EQ(complaint(p + "channel key: bf16 [64, 128] stages 2 by hand\n"),
            "expected a transport: vector, cp_async, tma, store or warps\n  at:  case.fc:2\n"
            "  why: found \"hand\" in column 41");
}

TEST(Parse, Values) {
  EXPECT_EQ(in_body("  %b = neg %a : f32\n}\n"),
            "%a is not defined\n  at:  case.fc:8\n  why: a value is used after the line that makes "
            "it; found it in column 12\n  try: define it above");
  EXPECT_EQ(in_body("  %a = constant 1 : f32\n  %a = constant 2 : f32\n}\n"),
            "a second definition of %a\n  at:  case.fc:9\n"
            "  why: every value is defined once; found another one in column 3");
  EXPECT_EQ(in_body("  %a, b = constant 1 : f32\n}\n"),
            "expected a value, such as %scores\n  at:  case.fc:8\n  why: found \"b\" in column 7");
}

TEST(Parse, Operations) {
  EXPECT_EQ(in_body("  %a = sine %b : f32\n}\n"),
            "expected an operation\n  at:  case.fc:8\n  why: found \"sine\" in column 8\n"
            "  try: dsl/ir/ops.def lists them");
  EXPECT_EQ(in_body("  %a = constant one : f32\n}\n"),
            "expected a number\n  at:  case.fc:8\n  why: found \"one\" in column 17");
  EXPECT_EQ(in_body("  %a = index cols : i32\n}\n"),
            "expected the name of an axis\n  at:  case.fc:8\n  why: found \"cols\" in column 14\n"
            "  try: known are rows, d");
  EXPECT_EQ(in_body("  %a = parameter scale : f32\n}\n"),
            "expected the name of a parameter\n  at:  case.fc:8\n"
            "  why: found \"scale\" in column 18\n  try: declare it above the body");
  EXPECT_EQ(in_body("  %a = load z[rows] : f32[rows]\n}\n"),
            "expected the name of a tensor\n  at:  case.fc:8\n  why: found \"z\" in column 13\n"
            "  try: known are x, y");
  EXPECT_EQ(in_body("  %a = load x[rows d] : f32[rows]\n}\n"),
            "expected \",\"\n  at:  case.fc:8\n  why: found \"d\" in column 20");
  EXPECT_EQ(in_body("  %a = read_slot in z : f32\n}\n"),
            "expected the name of a buffer\n  at:  case.fc:8\n  why: found \"z\" in column 21\n"
            "  try: known are x");
  EXPECT_EQ(in_body("  %a = constant 1\n}\n"),
            "expected a type for each result of constant\n  at:  case.fc:8\n"
            "  why: found 1 names before \"=\" and 0 types after \":\"\n"
            "  try: one type for each name, as in %x = neg %y : f32[rows]");
  EXPECT_EQ(in_body("  wait pending many\n}\n"),
            "expected a number of groups\n  at:  case.fc:8\n  why: found \"many\" in column 16");
  EXPECT_EQ(
      in_body("  %a = constant 1 : f32\n  %b = combine_partials %a along d of add : f32\n}\n"),
      "expected a reduction\n  at:  case.fc:9\n  why: found \"add\" in column 39");
  EXPECT_EQ(in_body("  issue x[rows, d] in x boxes of some\n}\n"),
            "expected a number of rows\n  at:  case.fc:8\n  why: found \"some\" in column 34");
  EXPECT_EQ(in_body("  issue x[by rows, d] in x boxes of 8 rows {\n    row 0 : i32\n"),
            "expected the name of the number\n  at:  case.fc:9\n  why: found \"0\" in column 9");
  EXPECT_EQ(in_body("  barrier now\n}\n"),
            "expected the end of the line\n  at:  case.fc:8\n  why: found \"now\" in column 11");
}

TEST(Parse, Homes) {
  EXPECT_EQ(in_body("  %a = constant 1 : f32[d] @ nowhere\n}\n"),
            "expected a layout: shared, registers, operand, opaque or axis "
            "layouts\n"
            "  at:  case.fc:8\n  why: found \"nowhere\" in column 30");
  EXPECT_EQ(in_body("  %a = constant 1 : f32[d] @ rows(4w)\n}\n"),
            "expected the layout of axis d\n  at:  case.fc:8\n  why: found \"rows\" in column 30\n"
            "  try: list the axes in the order of the type");
  EXPECT_EQ(in_body("  %a = constant 1 : f32[d] @ d(4x)\n}\n"),
            "expected w (warps), f (fragments), s (slots) or l (lanes)\n  at:  case.fc:8\n"
            "  why: found \"x\" in column 33");
  EXPECT_EQ(in_body("  %a = constant 1 : f32[d] @ d(4f/2)\n}\n"),
            "expected a factor such as 4w, 2f, 2s*8 or 8l/4, or \")\"\n  at:  case.fc:8\n"
            "  why: found \"/\" in column 34");
}

TEST(Parse, Loops) {
  const std::string start = "  %zero = constant 0 : i32\n";
  EXPECT_EQ(in_body(start + "  loop d from %zero to %zero, %zero {\n"),
            "expected as many bounds after \"to\" as before it\n  at:  case.fc:9\n"
            "  why: found \"{\" in column 37");
  EXPECT_EQ(in_body(start + "  loop d {\n    yield\n  }\n}\n"),
            "expected \"tile\"\n  at:  case.fc:10\n  why: found \"yield\" in column 5");
  EXPECT_EQ(in_body(start + "  %a = loop d {\n    tile %t : i32\n    yield\n  }\n}\n"),
            "expected a line \"carry\" for each result of loop\n  at:  case.fc:9\n"
            "  why: found 1 names before \"=\" and 0 carried values");
}

TEST(Parse, DeepNestingIsRefused) {
  std::string loops;
  for (int i = 0; i < 50000; ++i) loops += "loop d {\ntile %t" + std::to_string(i) + " : i32\n";
  EXPECT_NE(in_body(loops).find("blocks nested more than 64 deep"), std::string::npos);
}

TEST(Parse, BytesOutsideAsciiAreShownAsQuestionMarks) {
  EXPECT_EQ(in_body("  caf\xc3\xa9\n}\n"),
            "expected an operation\n  at:  case.fc:8\n  why: found \"caf\" in column 3\n"
            "  try: dsl/ir/ops.def lists them");
  EXPECT_EQ(in_body("  \xc3\xa9\n}\n"),
            "expected an operation or \"}\"\n  at:  case.fc:8\n  why: found \"?\" in column 3");
  EXPECT_EQ(in_body("  // caf\xc3\xa9\n}\n"), "no complaint");
}

TEST(Parse, ArgumentsMayHaveTheNamesOfWhatTheKernelIsMadeOf) {
  const auto refusal = [](const std::string& declarations) {
    try {
      verify(parse("program test\n" + declarations + "{\n}\n", "case.fc"));
    } catch (const SpecError& error) {
      return error.complaint().what;
    }
    return std::string("no complaint");
  };
  EXPECT_EQ(refusal("input x: f32 [N, 16]\nparameter x_stride_0: f32\n"), "no complaint");
  EXPECT_EQ(refusal("input N: f32 [N, 16]\n"), "no complaint");
  EXPECT_EQ(refusal("parameter bitand: f32\n"), "no complaint");
  EXPECT_EQ(refusal("parameter _x: f32\n"), "a scalar named \"_x\"");
  EXPECT_EQ(refusal("input x: f32 [N, 16]\ninput y: f32 [N, 16]\n"), "no complaint");
}

}  // namespace
}  // namespace flashcore::ir
