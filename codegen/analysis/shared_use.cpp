#include "codegen/analysis/shared_use.h"

#include "codegen/analysis/visit.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

ValueId tile_in_shared(const Function& f, ValueId value) {
  while (true) {
    const Op* op = f.definition(value);
    ValueId from;
    if (op && op->code == OpCode::transpose) from = op->operands[0];
    if (!op || op->code == OpCode::loop)
      if (const auto carried = carried_as(f, value)) from = carried->start;
    if (!from) return value;
    value = from;
  }
}

BufferId buffer_of(const Function& f, ValueId value) {
  const Op* op = f.definition(tile_in_shared(f, value));
  return op && (op->code == OpCode::read_slot || op->code == OpCode::wait ||
                op->code == OpCode::beside || op->code == OpCode::convert)
             ? op->buffer
             : BufferId{};
}

bool overlap(const Buffer& a, const Buffer& b) {
  return a.offset < b.offset + b.bytes() && b.offset < a.offset + a.bytes();
}

bool same_panels(const Buffer& a, const Buffer& b) {
  return a.columns == b.columns || (a.columns % 64 == 0 && b.columns % 64 == 0);
}

SharedUse shared_use(const Function& f, const Op& op) {
  SharedUse use;
  switch (op.code) {
    case OpCode::issue:
      if (f[op.buffer].transport == Transport::vector || f[op.buffer].transport == Transport::warps)
        use.writes.push_back(op.buffer);
      else if (!f[op.buffer].holds_scalars())
        use.async_writes.push_back(op.buffer);
      break;
    case OpCode::dot:
      for (std::size_t i : {0, 1})
        if (f[op.operands[i]].layout.space == Space::shared)
          use.reads.push_back(buffer_of(f, op.operands[i]));
      break;
    case OpCode::convert:
      if (op.buffer)
        use.writes.push_back(op.buffer);
      else if (f[op.operands[0]].layout.space == Space::shared)
        use.reads.push_back(buffer_of(f, op.operands[0]));
      break;
    case OpCode::scan_tiles:
      use.writes.push_back(op.buffer);
      break;
    case OpCode::next_tile:
    case OpCode::tile_is_full:
      use.reads.push_back(op.buffer);
      break;
    case OpCode::loop:
      if (op.buffer) use.reads.push_back(op.buffer);
      break;
    case OpCode::combine_partials:
    case OpCode::cluster_read:
    case OpCode::store:
      if (f[op.operands[0]].layout.space == Space::shared)
        use.reads.push_back(buffer_of(f, op.operands[0]));
      break;
    default:
      break;
  }
  return use;
}

std::set<BufferId> read_asynchronously(const Function& f) {
  std::set<BufferId> buffers;
  for (OpId role : roles_of(f))
    for_each_op(f, f[role].body, [&](const Op& op, BlockId) {
      const std::size_t operands = op.code == OpCode::store              ? 1
                                   : op.code == OpCode::dot && op.issued ? 2
                                                                         : 0;
      for (std::size_t i = 0; i < operands; ++i)
        if (f[op.operands[i]].layout.space == Space::shared)
          buffers.insert(buffer_of(f, op.operands[i]));
    });
  return buffers;
}

}  // namespace flashcore
