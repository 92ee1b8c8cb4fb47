// What the language refuses while a program is written, word by word and with the author's line.
#include <functional>
#include <source_location>
#include <string>

#include <gtest/gtest.h>

#include "dsl/flashcore.h"

namespace flashcore {
namespace {

/// The message without its place, which has to be a line of this file.
std::string refused(const std::function<void()>& attempt) {
  try {
    attempt();
  } catch (const SpecError& error) {
    EXPECT_EQ(error.complaint().where.file, std::source_location::current().file_name());
    std::string words = error.what();
    const std::size_t at = words.find("\n  at:  ");
    return at == std::string::npos ? words : words.erase(at, words.find('\n', at + 1) - at);
  }
  return "nothing was refused";
}

class ProgramBuilderTest : public testing::Test {
 protected:
  ProgramBuilder b_{"program"};
  Extent n_{std::string("N")};
  Axis rows_ = b_.parallel_tiles("rows", n_), cols_ = b_.tiles("cols", n_), d_ = b_.whole("d", 32);
  Tensor x_ = b_.input("x", DType::f32, {n_, 32}), y_ = b_.output("y", DType::f32, {n_, 32});
};

TEST_F(ProgramBuilderTest, Names) {
  EXPECT_EQ(refused([&] { b_.tiles("2nd", n_); }),
            "\"2nd\" as a name\n"
            "  why: names become identifiers of the generated kernel\n"
            "  try: use letters, digits and underscores, a letter first");
  EXPECT_EQ(refused([&] { b_.scalar("rows", DType::f32); }),
            "a second axis or argument named \"rows\"\n"
            "  why: launches and schedules find them by name\n"
            "  try: choose another name");
}

TEST_F(ProgramBuilderTest, HandlesOfAnotherProgram) {
  ProgramBuilder other("other");
  const Axis axis = other.tiles("cols", n_), whole = other.whole("d", 32);
  const Tile tile = other.fill({axis, whole}, 0), mine = load(x_(rows_, d_));
  const std::string ends =
      " of another program\n"
      "  why: axes, tensors and tiles belong to the builder that made them\n"
      "  try: declare it in this program";
  for (const std::function<void()>& use : std::initializer_list<std::function<void()>>{
           [&] { reduce_max(mine, whole); },
           [&] {
             b_.fill({rows_, whole}, 0);
           },
           [&] { x_(rows_, whole); }, [&] { b_.segment(axis, 0, 1); },
           [&] { b_.loop(axis, [] {}); }})
    EXPECT_EQ(refused(use), "the axis" + ends);
  for (const std::function<void()>& use : std::initializer_list<std::function<void()>>{
           [&] { x_(rows_, other.constant(1, DType::i32)); }, [&] { store(y_(rows_, d_), tile); },
           [&] { b_.segment(cols_, 0, other.constant(1, DType::i32)); },
           [&] { b_.loop(cols_, tile, [](const Tile& t) { return t; }); },
           [&] { b_.loop(cols_, mine, [&](const Tile&) { return tile; }); },
           [&] { gather(b_.gathered_input("g", DType::f32, {n_}), {index(axis)}); }})
    EXPECT_EQ(refused(use), "the tile" + ends);
  EXPECT_EQ(refused([&] { index(Axis{}); }),
            "an empty axis\n"
            "  why: no builder has made it\n"
            "  try: declare it with the functions of the builder, or compute it first");
}

TEST_F(ProgramBuilderTest, RaggedAxes) {
  EXPECT_EQ(refused([&] { b_.segment(rows_, 0, 1, b_.constant(5, DType::i32)); }),
            "the longest segment of rows\n"
            "  why: it sizes the grid before anything is computed\n"
            "  try: an i32 scalar argument");
}

TEST_F(ProgramBuilderTest, Declarations) {
  EXPECT_EQ(refused([&] { b_.alias("more", rows_); }),
            "more as another name of the parallel_tiles axis rows\n"
            "  why: an alias shares the tile that a loop is at, and no loop walks this axis\n"
            "  try: declare a second axis of the same extent, or an alias of an axis of tiles");
  EXPECT_EQ(refused([&] { b_.whole("none", 0); }),
            "axis none of length 0\n"
            "  why: a constant length is at least 1\n"
            "  try: name the extent to bind it at launch");
  EXPECT_EQ(refused([&] { b_.scalar("s", DType::f16); }),
            "scalar s of type f16\n"
            "  why: scalar arguments are f32 or i32\n"
            "  try: use one of them");
}

TEST_F(ProgramBuilderTest, Operands) {
  ProgramBuilder other("other");
  const Tile one = b_.constant(1), two = other.constant(2);
  EXPECT_EQ(refused([&] { one + two; }),
            "an operation on tiles of two programs\n"
            "  why: each belongs to its own builder\n"
            "  try: build both tiles in one program");
  EXPECT_EQ(refused([&] { one + Tile(); }),
            "an operation on an empty tile\n"
            "  why: a Tile() names no value\n"
            "  try: compute it first, or use builder.constant(...)");
  EXPECT_EQ(refused([] { exp(1.0); }),
            "an operation on numbers alone\n"
            "  why: there is no program to add it to\n"
            "  try: use builder.constant(...)");
  EXPECT_EQ(refused([&] { dot(load(x_(rows_, d_)), 2.0); }),
            "dot with a number\n"
            "  why: both operands are tiles with two axes"
            "\n  try: multiply by it: a * 2");
}

TEST_F(ProgramBuilderTest, Accesses) {
  EXPECT_EQ(refused([&] { load(x_(rows_)); }),
            "x with 1 indices\n"
            "  why: it has 2 dimensions\n"
            "  try: give one axis or scalar a dimension");
  EXPECT_EQ(refused([&] { load(x_(d_, rows_)); }),
            "x indexed by axis d in dimension 0\n"
            "  why: the axis has length 32, the dimension N\n"
            "  try: declare both with the same extent, or index with a scalar");
}

TEST_F(ProgramBuilderTest, Stores) {
  EXPECT_EQ(refused([&] { store(y_(rows_, d_), 1.0); }),
            "store of a number to y\n"
            "  why: a store takes a tile\n"
            "  try: fill({axes}, value) makes one");
  EXPECT_EQ(refused([&] { store(y_(rows_, d_), cast(load(x_(rows_, d_)), DType::f16)); }),
            "store of f16[rows, d] to y\n"
            "  why: the indices name a f32[rows, d]\n"
            "  try: cast it first");
  EXPECT_EQ(refused([&] { store(y_(rows_, d_), load(x_(cols_, d_))); }),
            "store of f32[cols, d] to y\n"
            "  why: the indices name a f32[rows, d]\n"
            "  try: give the tile the same axes in the same order");
  EXPECT_EQ(refused([&] { b_.finish(); }),
            "program program stores nothing\n"
            "  why: a kernel without an output has no effect\n"
            "  try: store(output(...), tile)");
}

TEST_F(ProgramBuilderTest, Loops) {
  EXPECT_EQ(refused([&] { b_.loop(rows_, [] {}); }),
            "a loop over rows\n"
            "  why: its kind is parallel_tiles\n"
            "  try: declare it with tiles(...) to loop over it");
  EXPECT_EQ(refused([&] {
              b_.loop(cols_, b_.constant(0),
                      [&](const Tile& s) { return s + load(x_(rows_, d_)); });
            }),
            "loop over cols: carried value 1 changes its type\n"
            "  why: it starts as f32 and comes back as f32[rows, d]\n"
            "  try: start it with fill({axes}, value) over the axes it has in the body");
}

}  // namespace
}  // namespace flashcore
