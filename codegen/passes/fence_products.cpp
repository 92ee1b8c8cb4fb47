// Of three or more products in a row, each of which adds to the one before, the compiler would load
// the operands of several at once, and find no registers for them. Each gets a fence:
//
//   %a = dot %x1, %y1                %a = dot %x1, %y1 fence 1
//   %b = dot %x2, %y2, %a     ->     %b = dot %x2, %y2, %a fence 1
//   %c = dot %x3, %y3, %b            %c = dot %x3, %y3, %b fence 1
//
// Products in flight have their order by themselves.
#include <map>

#include "codegen/passes/passes.h"

namespace flashcore {

using namespace ir;

void fence_products(Function& f, const PassContext&) {
  // By product: the last of its chain so far, and how many that has.
  std::map<const Op*, const Op*> first;
  std::map<const Op*, int> length;
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    if (op.code != OpCode::dot || op.issued) return;
    const Op* before = op.operands.size() == 3 ? f.definition(op.operands[2]) : nullptr;
    const bool goes_on = before && first.count(before);
    first[&op] = goes_on ? first.at(before) : &op;
    ++length[first.at(&op)];
  });
  constexpr int many = 3;
  for_each_op(f, f.body, [&](Op& op, BlockId) {
    if (first.count(&op) && length.at(first.at(&op)) >= many) op.fence = 1;
  });
}

}  // namespace flashcore
