// A lookup that reads neighbours is a load. Where a loop reads an element for every row and key, as a
// dense bias does, and rows of the tensor begin at multiples of 16 bytes (dsl/ir/tile_lookup.h), the
// copy engine brings the elements of a tile as it brings keys and values: in boxes, tiles ahead, and
// zeros for what lies outside the tensor. The elements have to meet those of a product, whose layout
// they take.
//
//   %b = gather bias[%head, index rows, index cols]    ->    %t = load bias[%head, by rows, by cols]
//                                                            %e = convert %t      to registers
//                                                            %b = cast %e
//
// The conditions of a dense mask need no cast: the conversion gives them.
#include <algorithm>
#include <set>
#include <vector>

#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"
#include "dsl/ir/tile_lookup.h"

namespace flashcore {
namespace {

using namespace ir;

/// Whether tiles of that size are boxes that the copy engine takes: up to 256 rows, of 32 bytes or
/// a multiple.
bool is_loadable(const Function& f, const Op& op) {
  if (!looks_up_tile(f, op)) return false;
  const std::vector<AxisId>& axes = f[op.results[0]].type.axes;
  constexpr int most_rows = 256, line_bytes = 32;
  return f[axes[0]].tile <= most_rows &&
         f[axes[1]].tile * size_of(f[op.tensor].dtype) % line_bytes == 0;
}

/// Whether the elements are computed with those of a product's sum, whose layout they then have:
/// pairs of neighbouring columns, as they are read from shared memory.
bool meets_product(const Function& f, BlockId loop, const Op& gather) {
  const std::vector<AxisId>& axes = f[gather.results[0]].type.axes;
  std::set<ValueId> met{gather.results[0]};
  for (std::size_t before = 0; before != met.size();) {
    before = met.size();
    for (const OpId id : f[loop].ops) {
      const Op& op = f[id];
      if (kind_of(op.code) != OpKind::elementwise) continue;
      std::vector<ValueId> tiles = op.operands;
      tiles.push_back(op.results[0]);
      std::erase_if(tiles, [&](ValueId tile) { return f[tile].type.axes != axes; });
      if (std::ranges::any_of(tiles, [&](ValueId tile) { return met.contains(tile); }))
        met.insert(tiles.begin(), tiles.end());
    }
  }
  return std::ranges::any_of(
      met, [&](ValueId tile) { return definition_as(f, tile, OpCode::dot) != nullptr; });
}

void load_tile(Function& f, BlockId loop, OpId gather) {
  const Op lookup = f[gather];
  std::vector<Coordinate> coordinates;
  for (const ValueId index : lookup.operands) coordinates.push_back({.value = index});
  Builder b = before(f, loop, gather);
  const ValueId tile =
      named(f, b.load(lookup.tensor, coordinates), f[lookup.tensor].name + "_tile");
  Op read{.code = OpCode::convert, .operands = {tile}, .results = lookup.results};
  read.where = lookup.where;
  if (f[tile].type != f[lookup.results[0]].type) {
    const ValueId elements = b.make({.code = OpCode::convert, .operands = {tile}}, f[tile].type);
    read.code = OpCode::cast;
    read.operands = {named(f, elements, f[lookup.tensor].name)};
  }
  f[gather] = std::move(read);
}

}  // namespace

void load_lookups(Function& f, const PassContext& context) {
  if (context.schedule.copy != CopyInstruction::tma || !context.schedule.producer) return;
  rewrite_inside_out(f, f.body, [&](Builder&, OpId loop) {
    if (f[loop].code != OpCode::loop) return;
    const BlockId body = f[loop].body;
    for (const OpId id : std::vector(f[body].ops))
      if (is_loadable(f, f[id]) && meets_product(f, body, f[id])) load_tile(f, body, id);
  });
}

}  // namespace flashcore
