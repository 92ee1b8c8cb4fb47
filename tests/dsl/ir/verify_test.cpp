// Every rule of verify(), broken once. The cases are text, so that they can break what the builder
// would not let through.
#include "dsl/ir/verify.h"

#include <string>

#include <gtest/gtest.h>

#include "dsl/ir/parse.h"

namespace flashcore::ir {
namespace {

const std::string head = R"(program test
axis batch: parallel B
axis rows: parallel_tiles N tile 64
axis cols: tiles N tile 32
axis d: whole 16
parameter scale: f32
input x: f32 [B, N, 16]
input h: bf16 [N, 16]
output y: f32 [B, N, 16]
channel slot: bf16 [64, 16] stages 2 by cp_async
channel small: bf16 [32, 16] stages 2 by cp_async
{
  %b = index batch : i32
  %i = constant 0 : i32
  %x = load x[%b, rows, d] : f32[rows, d]
)";
const std::string tail = "  store y[%b, rows, d], %x\n}\n";

std::string complaint(const Function& f) {
  try {
    verify(f);
  } catch (const SpecError& error) {
    return error.what();
  }
  return "valid";
}

/// The message for lines between `head` and `tail`; the first of them is line 16.
std::string with(const std::string& lines) { return complaint(parse(head + lines + tail, "t")); }

std::string declaring(const std::string& lines) {
  return complaint(parse("program test\n" + lines + "{\n}\n"));
}

/// A program over a ragged axis: its declaration, then the first lines of its body.
std::string ragged(const std::string& axis, const std::string& lines) {
  return complaint(parse("program test\n" + axis +
                             "axis group: parallel G\naxis d: whole 16\nparameter most: i32\n"
                             "input starts: i32 [G + 1]\ninput x: f32 [N, 16]\n"
                             "output y: f32 [N, 16]\n{\n  %g = index group : i32\n"
                             "  %begin = load starts[%g] : i32\n  %one = constant 1 : i32\n"
                             "  %next = add %g, %one : i32\n  %end = load starts[%next] : i32\n" +
                             lines +
                             "  %x = load x[rows, d] : f32[rows, d]\n  store y[rows, d], %x\n}\n",
                         "t"));
}

TEST(Verify, RaggedAxes) {
  const std::string rows = "axis rows: parallel_tiles N ragged\n";
  const std::string place = "  segment %begin, %end along rows\n";
  EXPECT_EQ(ragged(rows, place), "valid");
  EXPECT_EQ(ragged("axis rows: parallel_tiles N ragged longest most\n", place), "valid");
  EXPECT_EQ(ragged("axis rows: parallel_tiles N ragged longest many\n", place),
            "axis rows with a longest segment of many\n  why: no i32 scalar has this name\n"
            "  try: declare it");
  EXPECT_EQ(ragged("axis rows: parallel_tiles N longest most\n", ""),
            "axis rows with a longest segment of most\n"
            "  why: it sizes the grid along a ragged axis of parallel_tiles\n  try: leave it out");
  EXPECT_EQ(ragged("axis rows: whole N ragged\n", place),
            "axis rows is whole and ragged\n"
            "  why: a tile along it has as many elements in every block\n"
            "  try: use tiles, parallel_tiles or parallel");
  // Of positions: those from 0 on.
  const std::string places = "axis rows: parallel N ragged\n";
  EXPECT_EQ(ragged(places, place).substr(0, 200),
            "invalid operation: segment %begin, %end along rows\n  at:  t:15\n"
            "  why: the segment of rows, an axis of positions, does not begin at 0\n"
            "  try: begin it at 0, and add to index(axis)");
  EXPECT_EQ(ragged(rows, ""),
            "invalid operation: %x = load x[rows, d] : f32[rows, d]\n  at:  t:15\n"
            "  why: rows is used before its segment is set\n  try: set the segment of rows at the "
            "top of the program");
  EXPECT_EQ(ragged(rows, place + place),
            "invalid operation: segment %begin, %end along rows\n  at:  t:16\n"
            "  why: rows has two segments"
            "\n  try: leave one of them out");
  EXPECT_EQ(ragged(rows, "  %zero = constant 0 : f32[d]\n" + place),
            "invalid operation: segment %begin, %end along rows\n  at:  t:16\n"
            "  why: a segment stands above everything that is not a scalar"
            "\n  try: move it up, behind the scalars that it needs");
  EXPECT_EQ(ragged("axis rows: parallel_tiles N\n", place),
            "invalid operation: segment %begin, %end along rows\n  at:  t:15\n"
            "  why: rows is not ragged\n  try: declare the axis ragged");
  EXPECT_EQ(ragged(rows, "  segment %begin along rows\n"),
            "invalid operation: segment %begin along rows\n  at:  t:15\n"
            "  why: it has 1 operands\n"
            "  try: a segment has two operands: where the axis begins and where it ends");
  EXPECT_EQ(ragged(rows, "  segment %one, %one along rows\n"),
            "invalid operation: store y[rows, d], %x\n  at:  t:17\n"
            "  why: every position of group writes the same elements\n  try: index y by group");
}

TEST(Verify, AValidFunction) { EXPECT_EQ(with(""), "valid"); }

TEST(Verify, Declarations) {
  EXPECT_EQ(declaring("axis d: whole D\ninput x: f32 [D]\n"),
            "axis d is whole and D long\n  why: a whole axis has a constant length\n"
            "  try: use a number, or tiles");
  EXPECT_EQ(declaring("axis rows: tiles N\ninput x: f32 [M]\n"),
            "no tensor has the length N of axis rows\n"
            "  why: a named length is read off the shapes of the tensors\n"
            "  try: use a constant length");
  EXPECT_EQ(declaring("input x: i1 [4]\n"),
            "tensor x of type i1\n"
            "  why: tiles are loaded from and stored to f16, bf16, f32 and i32\n"
            "  try: use one of them, or gather from a gathered input");
  EXPECT_EQ(declaring("output x: f32 [4] gathered\n"),
            "output x is gathered\n  why: only inputs are read at computed positions\n"
            "  try: declare it as an input");
  EXPECT_EQ(declaring("input x: i1 [4] gathered\n"), "valid");
  EXPECT_EQ(declaring("input x: i1 [4] gathered unit_stride\n"), "valid");
  EXPECT_EQ(declaring("input x: bf16 [4, 4] gathered unit_stride aligned_rows\n"), "valid");
  EXPECT_EQ(declaring("input x: f64 [4, 4] gathered unit_stride aligned_rows\n"),
            "gathered input x of type f64 with aligned_rows\n  why: aligned rows let tiles be "
            "loaded, and tiles hold f16, bf16, f32, i32 or i1\n  try: leave aligned_rows out, or "
            "convert the tensor");
  EXPECT_EQ(declaring("parameter p: bf16\n"),
            "parameter p of type bf16\n  why: scalar arguments are f32 or i32\n"
            "  try: use one of them");
  EXPECT_EQ(declaring("buffer k: bf16 [0, 16] stages 2\n"),
            "buffer k of 2 slots of 0 x 16\n  why: every number is at least 1"
            "\n  try: give it the rows and columns of a tile, and one stage or more");
  EXPECT_EQ(declaring("output y: f32 [4]\n"),
            "output y is never stored\n  why: a kernel writes all its outputs\n"
            "  try: store to it or leave it out");
  Function f = parse("program test\ninput x: f32 [4]\n{\n}\n");
  f.add_tensor(f.tensors[0]);
  EXPECT_EQ(complaint(f),
            "two declarations of x\n  why: axes, arguments and buffers are found by name\n"
            "  try: rename one");
}

TEST(Verify, UsesFollowDefinitions) {
  EXPECT_EQ(with("  loop cols {\n    tile %t : i32\n    %in = neg %t : i32\n    yield\n  }\n"
                 "  %a = neg %in : i32\n"),
            "invalid operation: %a = neg %in : i32\n  at:  t:21\n  why: %in is not defined here\n"
            "  try: a value is used after the op that makes it, in the same region or one inside");
  EXPECT_EQ(with("  loop cols {\n    tile %t : i32\n    yield\n  }\n  %a = neg %t : i32\n"),
            "invalid operation: %a = neg %t : i32\n  at:  t:20\n  why: %t is not defined here\n"
            "  try: a value is used after the op that makes it, in the same region or one inside");
  Function f = parse(head + tail, "t");
  f[f.body].ops.insert(f[f.body].ops.begin(), f[f.body].ops.back());
  EXPECT_EQ(complaint(f),
            "invalid operation: store y[%b, rows, d], %x\n  at:  t:16\n"
            "  why: %x is not defined here\n"
            "  try: a value is used after the op that makes it, in the same region or one inside");
}

TEST(Verify, DefinitionsAreUnique) {
  Function f = parse(head + tail, "t");
  f[f.body].ops.insert(f[f.body].ops.begin() + 1, f[f.body].ops[0]);
  EXPECT_EQ(complaint(f),
            "invalid operation: %b = index batch : i32\n  at:  t:13\n  why: %b is defined twice"
            "\n  try: give one of them another name");
  f = parse(head + tail, "t");
  f[ValueId(0)].definition = OpId(1);
  EXPECT_EQ(complaint(f),
            "invalid operation: %b = index batch : i32\n  at:  t:13\n"
            "  why: %b names another op as its definition"
            "\n  try: let the value name the op that makes it");
}

TEST(Verify, OperandsAndResultsAreThere) {
  EXPECT_EQ(with("  %a = add %x : f32[rows, d]\n"),
            "add with 1 operands\n  at:  t:16\n  why: it takes 2"
            "\n  try: as many operands as that");
  EXPECT_EQ(with("  %a = dot %x : f32[rows, d]\n"),
            "dot with 1 operands\n  at:  t:16\n  why: it takes 2"
            "\n  try: as many operands as that");
  EXPECT_EQ(with("  %a = neg : f32\n"),
            "invalid operation: %a = neg : f32\n  at:  t:16\n  why: it has no operand"
            "\n  try: write what it is applied to behind its name");
  EXPECT_EQ(with("  neg %x\n"),
            "invalid operation: neg %x\n  at:  t:16\n"
            "  why: it has 0 results and should have 1"
            "\n  try: a name for each before the \"=\", and its type behind the \":\"");
  EXPECT_EQ(with("  %a = barrier : f32\n"),
            "invalid operation: %a = barrier : f32\n  at:  t:16\n"
            "  why: it has 1 results and should have 0"
            "\n  try: leave them out, with the \"=\"");
}

TEST(Verify, WhatAnOpNamesIsThere) {
  EXPECT_EQ(with("  %a = index : i32\n"),
            "invalid operation: %a = index : i32\n  at:  t:16\n  why: it names no axis"
            "\n  try: name one that is declared, as in index rows");
  EXPECT_EQ(with("  %a = reduce_max %x : f32[rows]\n"),
            "invalid operation: %a = reduce_max %x : f32[rows]\n  at:  t:16\n"
            "  why: it names no axis"
            "\n  try: name one that is declared, as in index rows");
  EXPECT_EQ(with("  %a = parameter : f32\n"),
            "invalid operation: %a = parameter : f32\n  at:  t:16\n  why: it names no parameter"
            "\n  try: declare one, parameter scale: f32, and name it");
  EXPECT_EQ(with("  %a = load : f32\n"),
            "invalid operation: %a = load : f32\n  at:  t:16\n  why: it names no tensor"
            "\n  try: name an input or output with its indices, as in x[rows, d]");
  EXPECT_EQ(with("  issue h[rows, d]\n"),
            "invalid operation: issue h[rows, d]\n  at:  t:16\n  why: it names no buffer"
            "\n  try: declare a buffer, and name it behind \"in\"");
}

TEST(Verify, ResultsHaveTheTypeThatFollows) {
  EXPECT_EQ(with("  %a = reduce_max %x along d : f32\n"),
            "invalid operation: %a = reduce_max %x along d : f32\n  at:  t:16\n"
            "  why: its result is f32 and should be f32[rows]"
            "\n  try: f32[rows] as its type, or what gives f32");
  EXPECT_EQ(with("  %a = cast %x : bf16[rows]\n"),
            "invalid operation: %a = cast %x : bf16[rows]\n  at:  t:16\n"
            "  why: its result is bf16[rows] and should be bf16[rows, d]"
            "\n  try: bf16[rows, d] as its type, or what gives bf16[rows]");
  EXPECT_EQ(with("  %a = read_slot in slot : f32[rows, d]\n"),
            "invalid operation: %a = read_slot in slot : f32[rows, d]\n  at:  t:16\n"
            "  why: buffer slot holds bf16"
            "\n  try: give the result the buffer's type");
  EXPECT_EQ(with("  %a = beside in slot : bf16[rows, d]\n"),
            "invalid operation: %a = beside in slot : bf16[rows, d]\n  at:  t:16\n"
            "  why: it has 0 operands"
            "\n  try: write the tile in whose slot the vector lies");
  EXPECT_EQ(with("  %a = read_slot %x in slot : bf16[rows, d]\n"),
            "invalid operation: %a = read_slot %x in slot : bf16[rows, d]\n  at:  t:16\n"
            "  why: %x is f32[rows, d] and should be an i32 scalar"
            "\n  try: take an index, an extent, a constant : i32 or what is computed from them");
}

TEST(Verify, Attributes) {
  EXPECT_EQ(with("  %a = neg %x by lane : f32[rows, d]\n"),
            "invalid operation: %a = neg %x by lane : f32[rows, d]\n  at:  t:16\n"
            "  why: only a reduction is done by lane"
            "\n  try: leave \"by lane\" out");
}

// Those that the parser reads behind no other operation.
TEST(Verify, AttributesBehindOtherOperations) {
  const auto complaint_of_load = [](const auto& change) {
    Function f = parse(head + tail, "t");
    for (Op& op : f.ops)
      if (op.code == OpCode::load) change(op);
    const std::string text = complaint(f);
    return text.substr(text.find("why: "));
  };
  EXPECT_EQ(complaint_of_load([](Op& op) { op.scope = ReductionScope::warp; }),
            "why: only a reduction or a product is done by warp\n  try: leave \"by warp\" out");
  EXPECT_EQ(complaint_of_load([](Op& op) { op.rounding = OperandRounding::tf32; }),
            "why: only a product rounds its operands\n  try: leave \"as tf32\" out");
  EXPECT_EQ(complaint_of_load([](Op& op) { op.precise = true; }),
            "why: only a tanh is precise\n  try: leave \"precise\" out");
  EXPECT_EQ(complaint_of_load([](Op& op) { op.unordered = true; }),
            "why: only a loop has iterations to order\n  try: leave \"unordered\" out");
  EXPECT_EQ(complaint_of_load([](Op& op) { op.accumulation = Accumulation::in_order; }),
            "why: only a store adds to a tensor\n  try: leave \"adding\" out");
  EXPECT_EQ(complaint_of_load([](Op& op) { op.inside = true; }),
            "why: only a gather has indices\n  try: leave \"inside\" out");
  EXPECT_EQ(complaint_of_load([](Op& op) { op.fence = 1; }),
            "why: only a nest or a product has a fence\n  try: leave \"fence\" out");
}

TEST(Verify, LoadsAndStores) {
  EXPECT_EQ(with("  %a = load y[%b, rows, d] : f32[rows, d]\n"),
            "invalid operation: %a = load y[%b, rows, d] : f32[rows, d]\n  at:  t:16\n"
            "  why: y is an output"
            "\n  try: read an input; the elements of an output are only written");
  EXPECT_EQ(with("  store x[%b, rows, d], %x\n"),
            "store to x\n  at:  t:16\n  why: it is an input\n  try: declare an output");
  EXPECT_EQ(with("  store y[%b, %i, d], %x\n"),
            "store of f32[rows, d] to y\n  at:  t:16\n"
            "  why: the indices name a tile of type f32[d]\n"
            "  try: index the output by the axes of the tile");
}

TEST(Verify, Copies) {
  EXPECT_EQ(with("  issue h[rows, d] in slot\n"), "valid");
  EXPECT_EQ(with("  issue y[%b, rows, d] in slot\n"),
            "invalid operation: issue y[%b, rows, d] in slot\n  at:  t:16\n"
            "  why: y is an output"
            "\n  try: read an input; the elements of an output are only written");
  EXPECT_EQ(with("  issue h[rows, d], %i in slot\n"),
            "invalid operation: issue h[rows, d], %i in slot\n  at:  t:16\n"
            "  why: it has 1 operands\n"
            "  try: a copy takes none, or the tile and the slot, or both and a condition");
  EXPECT_EQ(with("  issue h[rows, d], %i, %i, %i in slot\n"),
            "invalid operation: issue h[rows, d], %i, %i, %i in slot\n  at:  t:16\n"
            "  why: %i is i32 and should be an i1 scalar"
            "\n  try: compare two i32 scalars");
}

TEST(Verify, SlotsHoldTheTile) {
  const std::string why = "  at:  t:16\n  why: a slot of slot is 64 x 16, the tile is ";
  EXPECT_EQ(with("  %a = read_slot in slot : bf16[d, rows]\n"),
            "invalid operation: %a = read_slot in slot : bf16[d, rows]\n" + why +
                "0 x 64"
                "\n  try: declare the buffer as large as the tile, or give the axes its lengths");
  EXPECT_EQ(with("  issue h[cols, d], %i, %i in slot\n"),
            "invalid operation: issue h[cols, d], %i, %i in slot\n" + why +
                "32 x 0"
                "\n  try: declare the buffer as large as the tile, or give the axes its lengths");
  EXPECT_EQ(with("  %t = transpose %x : f32[d, rows]\n  %a = convert %t in slot : f32[d, rows]\n"),
            "invalid operation: %a = convert %t in slot : f32[d, rows]\n"
            "  at:  t:17\n  why: a slot of slot is 64 x 16, the tile is 0 x 64"
            "\n  try: declare the buffer as large as the tile, or give the axes its lengths");
}

TEST(Verify, BlocksWriteDifferentElements) {
  EXPECT_EQ(with("  store y[%i, rows, d], %x\n"),
            "invalid operation: store y[%i, rows, d], %x\n  at:  t:16\n"
            "  why: every position of batch writes the same elements\n  try: index y by batch");
  EXPECT_EQ(with("  %twice = add %b, %b : i32\n  store y[%twice, rows, d], %x\n"), "valid");
  Function f = parse(head + "  store y[%i, rows, d], %x\n" + tail, "t");
  f.axes[0].extent = 1;  // one position cannot disagree with itself
  EXPECT_EQ(complaint(f), "valid");
  // The index may also come out of a loop.
  EXPECT_EQ(with("  %last = loop cols {\n    tile %t : i32\n    carry %l = %i : i32\n"
                 "    %next = add %l, %b : i32\n    yield %next\n  }\n"
                 "  store y[%last, rows, d], %x\n"),
            "valid");
}

TEST(Verify, TheTileOfALoopAxisNeedsTheLoop) {
  EXPECT_EQ(with("  %a = index cols : i32[cols]\n"),
            "invalid operation: %a = index cols : i32[cols]\n  at:  t:16\n"
            "  why: it needs the current tile of cols outside a loop over it\n"
            "  try: move it into loop(cols, ...)");
  EXPECT_EQ(with("  %a = load h[cols, d] : bf16[cols, d]\n"),
            "invalid operation: %a = load h[cols, d] : bf16[cols, d]\n  at:  t:16\n"
            "  why: it needs the current tile of cols outside a loop over it\n"
            "  try: move it into loop(cols, ...)");
  EXPECT_EQ(with("  issue h[cols, d] in small\n"),
            "invalid operation: issue h[cols, d] in small\n  at:  t:16\n"
            "  why: it needs the current tile of cols outside a loop over it\n"
            "  try: move it into loop(cols, ...)");
  EXPECT_EQ(with("  issue h[cols, d], %i, %i in small\n"), "valid");
}

TEST(Verify, Regions) {
  EXPECT_EQ(with("  yield\n"),
            "invalid operation: yield\n  at:  t:16\n"
            "  why: a yield ends the region of a loop or an if and stands nowhere else"
            "\n  try: make it the last line before the brace that closes one");
  EXPECT_EQ(with("  loop cols {\n    tile %t : i32\n    yield\n    barrier\n  }\n"),
            "invalid operation: yield\n  at:  t:18\n"
            "  why: a yield ends the region of a loop or an if and stands nowhere else"
            "\n  try: make it the last line before the brace that closes one");
  EXPECT_EQ(with("  loop cols {\n    tile %t : i32\n    barrier\n  }\n"),
            "invalid operation: barrier\n  at:  t:18\n"
            "  why: the region of a loop ends with a yield"
            "\n  try: write yield and the next values of what it carries, if any, before its "
            "closing brace");
  EXPECT_EQ(with("  loop cols {\n    tile %t : i32\n  }\n"),
            "invalid operation: loop cols\n  at:  t:16\n"
            "  why: the region of a loop ends with a yield"
            "\n  try: write yield and the next values of what it carries, if any, before its "
            "closing brace");
  EXPECT_EQ(with("  loop d {\n    tile %t : i32\n    yield\n  }\n"),
            "invalid operation: loop d\n  at:  t:16\n  why: d is not an axis of kind tiles"
            "\n  try: declare it: axis d: tiles 16");
  EXPECT_EQ(with("  loop cols {\n    tile %t : i32\n    loop cols {\n      tile %u : i32\n"
                 "      yield\n    }\n    yield\n  }\n"),
            "invalid operation: loop cols\n  at:  t:18\n"
            "  why: it is inside another loop over cols"
            "\n  try: declare a second axis of that length for one of them");
}

TEST(Verify, BoundsAndCarriedValues) {
  const std::string body =
      "    tile %t : i32\n    carry %c = %x : f32[rows, d]\n    yield %c\n  }\n";
  EXPECT_EQ(with("  %l = loop cols from %i to %i {\n" + body), "valid");
  EXPECT_EQ(with("  %l = loop cols from %i, %i, %i to %i, %i, %i {\n" + body),
            "invalid operation: %l = loop cols from %i, %i, %i to %i, %i, %i\n  at:  t:16\n"
            "  why: it has 6 bounds\n  try: a loop has none or two");
  EXPECT_EQ(with("  %l = loop cols from %i to %x {\n" + body),
            "invalid operation: %l = loop cols from %i to %x\n  at:  t:16\n"
            "  why: %x is f32[rows, d] and should be an i32 scalar"
            "\n  try: take an index, an extent, a constant : i32 or what is computed from them");
  EXPECT_EQ(with("  %l = loop cols {\n    tile %t : f32\n    carry %c = %x : f32[rows, d]\n"
                 "    yield %c\n  }\n"),
            "invalid operation: %l = loop cols\n  at:  t:16\n"
            "  why: the number of a tile is an i32 scalar"
            "\n  try: write tile %t : i32");
  EXPECT_EQ(with("  %l = loop cols {\n    tile %t : i32\n    carry %c = %i : f32[rows, d]\n"
                 "    yield %c\n  }\n"),
            "invalid operation: %l = loop cols\n  at:  t:16\n"
            "  why: %i is i32, the carried %c is f32[rows, d]"
            "\n  try: start, carry and yield values of one type; cast one of them");
  EXPECT_EQ(with("  %l = loop cols : f32 {\n" + body),
            "invalid operation: %l = loop cols : f32\n  at:  t:16\n"
            "  why: %l is f32, the carried %c is f32[rows, d]"
            "\n  try: start, carry and yield values of one type; cast one of them");
  EXPECT_EQ(with("  %l = loop cols {\n    tile %t : i32\n    carry %c = %x : f32[rows, d]\n"
                 "    yield %t\n  }\n"),
            "invalid operation: yield %t\n  at:  t:19\n"
            "  why: %t is i32, the carried %c is f32[rows, d]"
            "\n  try: start, carry and yield values of one type; cast one of them");
  EXPECT_EQ(with("  %l = loop cols {\n    tile %t : i32\n    carry %c = %x : f32[rows, d]\n"
                 "    yield\n  }\n"),
            "invalid operation: yield\n  at:  t:19\n  why: it yields 0 values, the loop carries 1"
            "\n  try: yield the next value of each, in the order of the carries");
}

TEST(Verify, ArgumentsAndMissingOperands) {
  Function f = parse(head + "  loop cols {\n    tile %t : i32\n    yield\n  }\n" + tail, "t");
  f.add_argument(f[OpId(4)].body, {DType::i32, {}});
  EXPECT_EQ(complaint(f),
            "invalid operation: loop cols\n  at:  t:16\n"
            "  why: its region takes 2 values; a tile's number and 0 carried ones come in"
            "\n  try: declare one tile, and one carry for each of them");
  f = parse(head + tail, "t");
  f[OpId(3)].operands[0] = {};
  EXPECT_EQ(complaint(f),
            "invalid operation: store y[%b, rows, d], %?\n  at:  t:16\n"
            "  why: an operand is missing"
            "\n  try: use values that operations before it have made");
}

TEST(Verify, LayoutsCoverTheTile) {
  EXPECT_EQ(with("  %a = neg %x : f32[rows, d] @ rows(2w 4f 8l) d(16s)\n"), "valid");
  EXPECT_EQ(with("  %a = neg %x : f32[rows, d] @ rows(2w 8l) d(16s)\n"),
            "invalid operation: %a = neg %x : f32[rows, d] @ rows(2w 8l) d(16s)\n  at:  t:16\n"
            "  why: the layout of %a lays out 16 elements of rows, a tile has 64"
            "\n  try: let warps, fragments, slots and lanes multiply to the tile");
  Function f = parse(head + tail, "t");
  f[f[OpId(2)].results[0]].layout = {Space::registers, {AxisLayout{}}};
  EXPECT_EQ(complaint(f),
            "invalid operation: %x = load x[%b, rows, d] : f32[rows, d] @ rows()\n  at:  t:15\n"
            "  why: the layout of %x has 1 axes, its type 2"
            "\n  try: lay out every axis of the type, in its order");
}

TEST(Verify, BetweenPassesABrokenProgramIsABug) {
  const Function f = parse(head + "  yield\n" + tail, "t");
  EXPECT_NO_THROW(verify_after(parse(head + tail), "simplify"));
  try {
    verify_after(f, "simplify");
    FAIL() << "accepted";
  } catch (const InternalError& error) {
    EXPECT_EQ(error.complaint().what,
              "FlashCore met a bug of its own: pass simplify left an invalid program\n"
              "invalid operation: yield\n  at:  t:16\n"
              "  why: a yield ends the region of a loop or an if and stands nowhere else"
              "\n  try: make it the last line before the brace that closes one");
  }
}

}  // namespace
}  // namespace flashcore::ir
