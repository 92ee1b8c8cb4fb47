// What the builder infers and what it refuses, with the exact words the author reads.
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "dsl/ir/builder.h"

namespace flashcore::ir {
namespace {

class TypeRules : public testing::Test {
 protected:
  TypeRules() : b(f, {}) {
    f.body = f.add_block();
    b.set_block(f.body);
    b.at(Location("kernel.cpp", 42));
    head = f.add_axis({"head", AxisKind::parallel, 8});
    rows = f.add_axis({"rows", AxisKind::parallel_tiles, Extent("M")});
    cols = f.add_axis({"cols", AxisKind::tiles, Extent("N")});
    d = f.add_axis({"d", AxisKind::whole, 64});
    q = f.add_tensor({"q", DType::bf16, {8, Extent("M"), 64}});
    o = f.add_tensor({"o", DType::f32, {Extent("M"), 64}, true});
  }

  ValueId value(DType dtype, std::vector<AxisId> axes = {}) {
    return b.constant(0, dtype, std::move(axes));
  }
  std::string type(ValueId id) { return describe(f, f[id].type); }
  static std::string refusal(const std::function<void()>& build) {
    try {
      build();
    } catch (const SpecError& error) {
      EXPECT_EQ(error.complaint().where.file, "kernel.cpp");
      EXPECT_EQ(error.complaint().where.line, 42);
      const Complaint& c = error.complaint();
      return c.what + " | " + c.why + " | " + c.fix;
    }
    return "accepted";
  }
  std::string refuses(OpCode code, std::vector<ValueId> operands) {
    return refusal([&] { b.elementwise(code, std::move(operands)); });
  }

  Function f;
  Builder b;
  AxisId head, rows, cols, d;
  TensorId q, o;
};

TEST_F(TypeRules, Sources) {
  EXPECT_EQ(type(b.index(head)), "i32");
  EXPECT_EQ(type(b.index(rows)), "i32[rows]");
  EXPECT_EQ(type(b.extent(cols)), "i32");
  EXPECT_EQ(type(b.parameter(f.add_parameter({"scale", DType::f32}))), "f32");
}

TEST_F(TypeRules, OperandsBroadcastByAxis) {
  const ValueId tile = value(DType::f32, {rows, cols});
  EXPECT_EQ(type(b.add(value(DType::f32), tile)), "f32[rows, cols]");
  EXPECT_EQ(type(b.add(value(DType::f32, {cols}), tile)), "f32[rows, cols]");
  EXPECT_EQ(type(b.add(value(DType::i32, {rows}), value(DType::i32, {cols}))), "i32[rows, cols]");
  EXPECT_EQ(type(b.add(value(DType::i32, {cols}), value(DType::i32, {rows}))), "i32[rows, cols]");
  EXPECT_EQ(refuses(OpCode::add, {value(DType::f32, {d}), tile}),
            "add of tiles over 3 different axes | a tile has at most two axes | reduce one of the "
            "operands first");
  EXPECT_EQ(refuses(OpCode::add, {tile, b.transpose(tile)}),
            "add of f32[rows, cols] and f32[cols, rows] | the operands have the same axes in a "
            "different order | transpose one of them");
}

TEST_F(TypeRules, DtypesAgree) {
  const ValueId real = value(DType::f32), whole = value(DType::i32), yes = value(DType::i1);
  EXPECT_EQ(type(b.elementwise(OpCode::lt, {real, real})), "i1");
  EXPECT_EQ(type(b.elementwise(OpCode::where, {yes, real, real})), "f32");
  EXPECT_EQ(type(b.elementwise(OpCode::where, {yes, yes, yes})), "i1");
  EXPECT_EQ(
      refuses(OpCode::add, {real, whole}),
      "add of f32 and i32 | the dtypes differ and FlashCore converts nothing by itself | cast "
      "one of them");
  EXPECT_EQ(refuses(OpCode::where, {real, real, real}),
            "where with a condition of type f32 | a condition has dtype i1 | compare something: "
            "where(x > 0.f, a, b)");
  EXPECT_EQ(refuses(OpCode::logical_and, {real, real}),
            "logical_and of f32 | it takes conditions (i1) | compare something first");
  EXPECT_EQ(refuses(OpCode::exp2, {whole}),
            "exp2 of i32 | it is computed in f32 only | cast(x, f32) first");
  EXPECT_EQ(
      refuses(OpCode::add, {yes, yes}),
      "add of i1 | conditions have no arithmetic | where(condition, 1.f, 0.f) makes numbers of "
      "them");
  EXPECT_EQ(refuses(OpCode::mul, {value(DType::bf16), value(DType::bf16)}),
            "mul of bf16 | arithmetic is done in f32; 16-bit types are for memory and products | "
            "cast(x, f32) first");
  EXPECT_EQ(refuses(OpCode::mod, {real, real}), "mod of f32 | it takes integers | cast to i32");
  EXPECT_EQ(refuses(OpCode::add, {real}),
            "add with 1 operands | it takes 2 | "
            "as many operands as that");
}

TEST_F(TypeRules, Casts) {
  const ValueId tile = value(DType::f32, {rows});
  EXPECT_EQ(type(b.cast(tile, DType::bf16)), "bf16[rows]");
  EXPECT_EQ(b.cast(tile, DType::f32), tile);
  EXPECT_EQ(refusal([&] { b.cast(tile, DType::i1); }),
            "cast of f32[rows] to i1 | conditions are not numbers | compare, or use where");
}

TEST_F(TypeRules, ReductionsAndTransposes) {
  const ValueId tile = value(DType::f32, {rows, cols});
  EXPECT_EQ(type(b.reduce(OpCode::reduce_sum, tile, rows)), "f32[cols]");
  EXPECT_EQ(type(b.combine_partials(value(DType::f32, {rows}), cols, OpCode::reduce_sum)),
            "f32[rows]");
  EXPECT_EQ(type(b.transpose(tile)), "f32[cols, rows]");
  EXPECT_EQ(refusal([&] { b.reduce(OpCode::reduce_sum, tile, d); }),
            "reduce_sum of f32[rows, cols] along d | the tile has no such axis | name one of its "
            "axes");
  EXPECT_EQ(type(b.reduce(OpCode::reduce_max, value(DType::i32, {rows}), rows)), "i32");
  EXPECT_EQ(refusal([&] { b.reduce(OpCode::reduce_sum, value(DType::i32, {rows}), rows); }),
            "reduce_sum of i32[rows] | sums are done in f32 | cast(x, f32) first");
  EXPECT_EQ(
      refusal([&] { b.reduce(OpCode::reduce_max, value(DType::bf16, {rows}), rows); }),
      "reduce_max of bf16[rows] | the extremes of f32 and i32 are taken | cast(x, f32) first");
  EXPECT_EQ(refusal([&] { b.transpose(value(DType::f32, {rows})); }),
            "transpose of f32[rows] | it takes a tile with two axes | "
            "leave it out: a vector has no order of axes");
}

TEST_F(TypeRules, Products) {
  const ValueId query = value(DType::bf16, {rows, d}), key = value(DType::bf16, {d, cols});
  const ValueId scores = b.dot(query, key);
  EXPECT_EQ(type(scores), "f32[rows, cols]");
  EXPECT_EQ(type(b.dot(query, key, scores)), "f32[rows, cols]");
  EXPECT_EQ(refusal([&] { b.dot(query, value(DType::bf16, {d})); }),
            "dot of bf16[rows, d] and bf16[d] | both operands need two axes | "
            "load vectors over a second axis of length 1, or multiply elements and reduce_sum");
  EXPECT_EQ(
      refusal([&] { b.dot(query, b.transpose(key)); }),
      "dot of bf16[rows, d] and bf16[cols, d] | the inner axes differ: d and cols | transpose "
      "an operand, or load both over the same axis");
  EXPECT_EQ(refusal([&] { b.dot(query, b.transpose(query)); }),
            "dot of bf16[rows, d] and bf16[d, rows] | the outer axes are the same | use two axes, "
            "also where their lengths agree");
  EXPECT_EQ(refusal([&] {
              b.dot(query, value(DType::f16, {d, cols}));
            }),
            "dot of bf16[rows, d] and f16[d, cols] | tensor cores take two operands of one 16-bit "
            "type | cast both to f16 or bf16");
  EXPECT_EQ(refusal([&] { b.dot(query, key, value(DType::f32, {rows})); }),
            "dot of bf16[rows, d] and bf16[d, cols] added to f32[rows] | the product is "
            "f32[rows, cols] | "
            "add a tile of this type");
}

TEST_F(TypeRules, Accesses) {
  const ValueId h = b.index(head);
  EXPECT_EQ(type(b.load(q, {{{}, h}, {rows, {}}, {d, {}}})), "bf16[rows, d]");
  EXPECT_EQ(refusal([&] {
              b.load(q, {{{}, h}, {rows, {}}});
            }),
            "load of q with 2 indices | it has 3 dimensions | give one axis or scalar a dimension");
  EXPECT_EQ(refusal([&] {
              b.load(q, {{{}, value(DType::f32)}, {rows, {}}, {d, {}}});
            }),
            "load of q with an index of type f32 | a position is an i32 scalar, or a tile of i32 "
            "over an axis of what is accessed | name the axis, or reduce and cast the index");
  const ValueId heads = value(DType::i32, {rows}), both = value(DType::i32, {rows, cols});
  EXPECT_EQ(type(b.load(q, {{{}, heads}, {rows, {}}, {d, {}}})), "bf16[rows, d]");
  EXPECT_EQ(type(b.load(q, {{{}, heads}, {{}, heads}, {d, {}}})), "bf16[rows, d]");
  EXPECT_EQ(refusal([&] {
              b.load(q, {{{}, both}, {rows, {}}, {d, {}}});
            }),
            "load of q with an index of type i32[rows, cols] | a position is an i32 scalar, or a "
            "tile of i32 over an axis of what is accessed | name the axis, or reduce and cast the "
            "index");
  EXPECT_EQ(refusal([&] {
              b.load(q, {{}, {rows, {}}, {d, {}}});
            }),
            "load of q | dimension 0 has no index | give it an axis or an i32 scalar");
  EXPECT_EQ(refusal([&] {
              b.load(q, {{head, {}}, {rows, {}}, {d, {}}});
            }),
            "load of q over head | a parallel axis has one position a block, not a tile | index it "
            "by index(axis)");
  EXPECT_EQ(
      refusal([&] {
        b.load(q, {{{}, h}, {cols, {}}, {d, {}}});
      }),
      "load of q over cols | the axis has length N and dimension 1 of q has M | use an axis of "
      "the dimension's length");
  EXPECT_EQ(refusal([&] {
              b.load(f.add_tensor({"g", DType::f32, {64, 64}}), {{d, {}}, {d, {}}});
            }),
            "load of g over d twice | a tile has each axis once | use two axes, also where their "
            "lengths agree");
  const AxisId eight = f.add_axis({"eight", AxisKind::whole, 8});
  EXPECT_EQ(refusal([&] {
              b.load(q, {{eight, {}}, {rows, {}}, {d, {}}});
            }),
            "load of q over 3 axes | a tile has at most two axes | index the other dimensions by "
            "scalars");
}

TEST_F(TypeRules, Stores) {
  b.store(o, {{rows, {}}, {d, {}}}, value(DType::f32, {rows, d}));
  EXPECT_EQ(refusal([&] {
              b.store(o, {{rows, {}}, {d, {}}}, value(DType::bf16, {rows, d}));
            }),
            "store of bf16[rows, d] to o | the indices name a tile of type f32[rows, d] | cast it "
            "first");
  EXPECT_EQ(refusal([&] {
              b.store(o, {{rows, {}}, {d, {}}}, value(DType::f32, {d, rows}));
            }),
            "store of f32[d, rows] to o | the indices name a tile of type f32[rows, d] | index the "
            "output by the axes of the tile");
  EXPECT_EQ(refusal([&] { b.store(q, {}, value(DType::bf16)); }),
            "store to q | it is an input | declare an output");
}

}  // namespace
}  // namespace flashcore::ir
