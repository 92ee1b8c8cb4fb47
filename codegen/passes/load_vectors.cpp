// A vector along the axis of a loop with products, such as the log-sum-exps of query rows beside
// transposed scores, comes to shared memory with the loop's tiles: the copy engine brings it
// iterations ahead, and zeros for what lies outside the tensor. Threads read their elements where
// they need them, rather than to compute addresses, load some and shuffle the others:
//
//   loop rows { %lse = load lse[%head, rows]    ->    loop rows { %t = load lse[%head, rows]
//               ...                                               ...
//               %p = sub %s, %lse                                 %lse = convert %t   to registers
//                                                                 %p = sub %s, %lse
//
// The vector lies behind a tile of the loop in the tile's slot (assign_roles), so that consumers wait
// for the tile alone. The launch requires that rows of the vector's tensor begin at multiples of 16
// bytes, and the box has to begin at one: along a ragged axis the program gives positions that are
// multiples of four elements. What lies beyond the end of a sequence threads clear (clear_rows).
#include <algorithm>
#include <span>
#include <vector>

#include "codegen/analysis/box_positions.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

constexpr int chunk = 16;  // bytes

/// Whether the vector's positions follow each other, and the first is that of a whole chunk.
bool is_aligned_run(const Function& f, const Coordinate& c, AxisId axis) {
  if (c.axis == axis) return !f[axis].ragged;
  if (!is_computed(f, c) || axis_of(f, c) != axis) return false;
  const std::optional<NumberRun> run = NumberRuns(f, f.origin(axis), f[axis].tile).of(c.value);
  return run && run->step == 1 && run->multiple * size_of(DType::f32) % chunk == 0;
}

/// Whether the engine takes the vector as a box of one line: up to 256 elements, in whole chunks.
bool is_loadable(const Function& f, const Op& op, AxisId axis) {
  if (op.code != OpCode::load || f[op.results[0]].type != TileType{DType::f32, {axis}})
    return false;
  constexpr int longest = 256;
  const int length = f[axis].tile;
  const std::span outer(op.coordinates.begin(), op.coordinates.end() - 1);
  return !outer.empty() && is_aligned_run(f, op.coordinates.back(), axis) &&
         std::ranges::none_of(outer, [&](const Coordinate& c) { return is_computed(f, c); }) &&
         length <= longest && length * size_of(DType::f32) % chunk == 0;
}

/// Whether the engine brings tiles of the loop for its products.
bool loads_operands(const Function& f, BlockId loop) {
  return std::ranges::any_of(f[loop].ops, [&](OpId id) {
    if (f[id].code != OpCode::load || f[f[id].results[0]].type.axes.size() != 2) return false;
    const std::vector<OpId> readers = readers_of(f, loop, f[id].results[0]);
    return !readers.empty() && std::ranges::all_of(readers, [&](OpId reader) {
      return f[reader].code == OpCode::dot || f[reader].code == OpCode::transpose;
    });
  });
}

}  // namespace

void load_vectors(Function& f, const PassContext& context) {
  const Schedule& schedule = context.schedule;
  if (!schedule.load_vectors) return;
  bool loaded = false;
  const auto refuse = [&](const char* why) { context.note_refusal("load_vectors = true", why); };
  if (schedule.copy != CopyInstruction::tma || !schedule.producer)
    return refuse("no producer asks the copy engine for tiles ahead");
  if (schedule.multicast_blocks > 1)
    return refuse("blocks of a cluster load the rows of a tile in parts, which a vector has not");
  rewrite_inside_out(f, f.body, [&](Builder&, OpId loop) {
    if (f[loop].code != OpCode::loop) return;
    const BlockId body = f[loop].body;
    if (!loads_operands(f, body)) return;
    for (const OpId id : std::vector(f[body].ops)) {
      if (!is_loadable(f, f[id], f[loop].axis)) continue;
      const ValueId vector = f[id].results[0];
      const std::vector<OpId> readers = readers_of(f, body, vector);
      if (readers.empty()) continue;
      loaded = true;
      const ValueId tile = replace_result(f, id, f[vector].name);
      Builder b = before(f, body, readers.front());
      take_place(f, vector, b.make({.code = OpCode::convert, .operands = {tile}}, f[tile].type));
    }
  });
  if (!loaded) refuse("no loop with products loads a vector along its axis");
}

}  // namespace flashcore
