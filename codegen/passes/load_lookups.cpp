// A lookup that reads neighbours is a load. Where a loop reads an element for every row and key, as a
// dense bias does, and rows of the tensor begin at multiples of 16 bytes (dsl/ir/tile_lookup.h), the
// copy engine brings the elements of a tile as it brings keys and values: in boxes, tiles ahead, and
// zeros for what lies outside the tensor.
//
//   %b = gather bias[%head, index rows, index cols]    ->    %t = load bias[%head, by rows, by cols]
//                                                            %e = convert %t      to registers
//                                                            %b = cast %e
//
// Conditions, of a dense mask, are what the conversion gives.
#include <algorithm>
#include <vector>

#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"
#include "dsl/ir/tile_lookup.h"

namespace flashcore {
namespace {

using namespace ir;

class LookupLoading {
 public:
  explicit LookupLoading(Function& f) : f_(f) {}

  void run() {
    for_each_op(f_, f_.body, [&](const Op& op, BlockId) {
      if (op.code == OpCode::loop) loops_.push_back(op.body);
    });
    for (const BlockId loop : loops_)
      for (std::size_t i = 0; i < f_[loop].ops.size(); ++i)
        if (is_loadable(f_[f_[loop].ops[i]])) load(loop, f_[loop].ops[i]);
  }

 private:
  /// Whether tiles of that size are boxes that the copy engine takes: up to 256 rows, of 32 bytes or
  /// a multiple.
  [[nodiscard]] bool is_loadable(const Op& op) const {
    if (!looks_up_tile(f_, op)) return false;
    const std::vector<AxisId>& axes = f_[op.results[0]].type.axes;
    constexpr int most_rows = 256, line_bytes = 32;
    return f_[axes[0]].tile <= most_rows &&
           f_[axes[1]].tile * size_of(f_[op.tensor].dtype) % line_bytes == 0;
  }

  void load(BlockId loop, OpId gather) {
    const Op lookup = f_[gather];
    std::vector<Coordinate> coordinates;
    for (const ValueId index : lookup.operands) coordinates.push_back({.value = index});
    Op read{.code = OpCode::convert, .results = lookup.results, .where = lookup.where};
    insert_before(f_, loop, position_of(f_, loop, gather), lookup.where, [&](Builder& b) {
      const ValueId tile = b.load(lookup.tensor, coordinates);
      f_[tile].name = f_[lookup.tensor].name + "_tile";
      read.operands = {tile};
      if (f_[tile].type == f_[lookup.results[0]].type) return;
      const ValueId elements =
          make(b, {.code = OpCode::convert, .operands = {tile}}, f_[tile].type);
      f_[elements].name = f_[lookup.tensor].name;
      read.code = OpCode::cast;
      read.operands = {elements};
    });
    f_[gather] = std::move(read);
  }

  Function& f_;
  std::vector<BlockId> loops_;
};

}  // namespace

void load_lookups(Function& f, const PassContext& context) {
  if (context.schedule.copy == CopyInstruction::tma && context.schedule.producer)
    LookupLoading(f).run();
}

}  // namespace flashcore
