// A lookup that reads neighbours is a load. Where a loop reads an element for every row and key, as a
// dense bias does, and rows of the tensor begin at multiples of 16 bytes (dsl/ir/tile_lookup.h), the
// copy engine brings the elements of a tile as it brings keys and values: in boxes, tiles ahead, and
// zeros for what lies outside the tensor.
//
//   %b = gather bias[%head, index rows, index cols]    ->    %t = load bias[%head, by rows, by cols]
//                                                            %e = convert %t      to registers
//                                                            %b = cast %e
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
  /// Whether tiles of that size are boxes that the copy engine takes.
  [[nodiscard]] bool is_loadable(const Op& op) const {
    return looks_up_tile(f_, op) &&
           std::ranges::all_of(f_[op.results[0]].type.axes, [&](AxisId axis) {
             return f_[axis].tile <= largest_box && f_[axis].tile % chunk == 0;
           });
  }

  void load(BlockId loop, OpId gather) {
    const Op lookup = f_[gather];
    std::vector<Coordinate> coordinates;
    for (const ValueId index : lookup.operands) coordinates.push_back({.value = index});
    ValueId elements;
    insert_before(f_, loop, position_of(f_, loop, gather), lookup.where, [&](Builder& b) {
      const ValueId tile = b.load(lookup.tensor, coordinates);
      f_[tile].name = f_[lookup.tensor].name + "_tile";
      elements = make(b, {.code = OpCode::convert, .operands = {tile}}, f_[tile].type);
      f_[elements].name = f_[lookup.tensor].name;
    });
    f_[gather] = {.code = OpCode::cast,
                  .operands = {elements},
                  .results = lookup.results,
                  .where = lookup.where};
  }

  static constexpr int largest_box = 256, chunk = 16;

  Function& f_;
  std::vector<BlockId> loops_;
};

}  // namespace

void load_lookups(Function& f, const PassContext& context) {
  if (context.schedule.copy == CopyInstruction::tma && context.schedule.producer)
    LookupLoading(f).run();
}

}  // namespace flashcore
