// The text form of a function: what `Program::text()`, `kernel.ir()` and the tests of passes show.
//
//   program scale_rows
//   axis rows: parallel_tiles Sq tile 64
//   axis d: whole 128
//   parameter scale: f32 positive
//   input x: bf16 [Sq, 128]
//   output y: f32 [Sq, 128]
//   {
//     %scale = parameter scale : f32
//     %0 = load x[rows, d] : bf16[rows, d]
//     %wide = cast %0 : f32[rows, d] @ rows(4w 2s*8 8l/4) d(16f 2s 4l*2)
//     %1 = mul %wide, %scale : f32[rows, d]
//     store y[rows, d], %1
//   }
//
// Every op reads the same: code, what it names, operands, attributes, result types. A new op
// therefore needs no new syntax. Values carry their author's name, made unique; the others are
// numbered. The memory space and layout of a value follow `@`, once a pass has chosen them. An axis
// layout lists its factors, those that are one left out: warps/divisor, fragments, slots*stride,
// lanes/divisor*stride. An axis that is another name of one reads `axis s: alias t`. Places in the
// author's source are not part of the text; parse() puts the line of the text in their stead.
#pragma once

#include <string>

#include "dsl/ir/function.h"

namespace flashcore::ir {

/// The whole function. Equal functions give equal text, and parse() reads it back.
std::string print(const Function& f);

/// One op, without its region, as it stands in print(). For messages and debugging.
std::string print(const Function& f, const Op& op);

/// "%scores": the name a value has in print().
std::string print(const Function& f, ValueId value);

/// "rows(4w 2s*8 8l/4) cols(8f 2s 4l*2)", "shared", ...; empty where nothing is decided.
std::string print(const Function& f, const TileType& type, const Layout& layout);

}  // namespace flashcore::ir
