#include "codegen/analysis/ring_barriers.h"

namespace flashcore {

using namespace ir;

RingBarriers ring_barriers(const Function& f, int bytes) {
  constexpr int size = 8;
  RingBarriers barriers;
  barriers.end = bytes;
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    if (op.code != OpCode::fill_slot || barriers.at.count(op.buffer)) return;
    const int start = (barriers.end + size - 1) / size * size;
    barriers.at[op.buffer] = start;
    barriers.end = start + 2 * size * f[op.buffer].stages;
  });
  return barriers;
}

}  // namespace flashcore
