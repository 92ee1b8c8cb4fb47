#include "codegen/analysis/warp_shares.h"

namespace flashcore {

using namespace ir;

bool cuts_sum(const Function& f, const Op& dot, const Schedule& schedule) {
  if (schedule.warps_n == 1 || schedule.softmax != Softmax::registers) return false;
  const Op* left = f.definition(dot.operands[0]);
  while (left && left->code == OpCode::transpose) left = f.definition(left->operands[0]);
  return !left || left->code != OpCode::load;
}

}  // namespace flashcore
