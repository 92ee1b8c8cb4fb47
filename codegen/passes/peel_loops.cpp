// A loop with bounds [begin, full_begin, full_end, end) becomes up to three: between full_begin and
// full_end every masking `where` holds, so that part is copied without them. A part whose two
// bounds are the same value is left out. Masked parts on both sides share one copy, in a loop that
// runs twice:
//
//   loop parts { masked tiles of this side ; the first time, those between }
//
// A schedule that does not peel leaves such a loop whole, and the printer
// puts the masks behind a test of the tile's number.
#include <algorithm>
#include <vector>

#include "codegen/passes/copy_ops.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// Drops every `where` of the region whose condition is known to hold.
void drop_masks(Function& f, BlockId region) {
  for (OpId id : f[region].ops)
    if (f[id].code == OpCode::where && f[id].masking)
      replace_uses(f, f[id].results[0], f[id].operands[1]);
}

/// Some tiles of a loop, which are next to each other.
struct Part {
  ValueId begin, end;
  bool full;
};

class Peeling {
 public:
  Peeling(Function& f, const Op& loop)
      : f_(f), loop_(loop), carried_(loop.operands.begin() + loop.bounds, loop.operands.end()) {}

  /// Puts the parts in the place of the loop, which stands in `block` at `position`.
  void run(BlockId block, std::size_t position) {
    const std::vector<Part> parts = parts_of_loop();
    std::vector<OpId> copies;
    if (parts.size() == 3) {
      ValueId zero, two;
      position += insert_before(f_, block, position, loop_.where, [&](Builder& b) {
        zero = b.constant(0, DType::i32), two = b.constant(2, DType::i32);
      });
      copies.push_back(loop_over_sides(parts, zero, two));
    } else {
      for (const Part& part : parts) copies.push_back(copy(part));
    }
    auto& ops = f_[block].ops;
    ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(position));
    ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(position), copies.begin(), copies.end());
    for (std::size_t i = 0; i < loop_.results.size(); ++i)
      replace_uses(f_, loop_.results[i], carried_[i]);
    for (BlockId region : full_) drop_masks(f_, region);
  }

 private:
  /// In the order of their tiles.
  [[nodiscard]] std::vector<Part> parts_of_loop() const {
    const std::vector<ValueId>& bounds = loop_.operands;
    std::vector<Part> parts;
    for (std::size_t k = 0; k < 3; ++k)
      if (bounds[k] != bounds[k + 1]) parts.push_back({bounds[k], bounds[k + 1], k == 1});
    if (loop_.descending) std::reverse(parts.begin(), parts.end());
    if (parts.empty()) parts.push_back({bounds[0], bounds[3], true});
    return parts;
  }

  /// A loop over tiles of one part. What it carries goes on from, and becomes, what is carried now.
  OpId copy(const Part& part) {
    const OpId copied = append({part.begin, part.end}, OpCopier(f_).copy_region(loop_.body));
    if (part.full) full_.push_back(f_[copied].body);
    return copied;
  }

  OpId append(std::vector<ValueId> bounds, BlockId body) {
    Op op = loop_;
    op.bounds = static_cast<int>(bounds.size());
    op.operands = std::move(bounds);
    op.operands.insert(op.operands.end(), carried_.begin(), carried_.end());
    op.body = body;
    op.results.clear();
    const OpId id(f_.ops.size());
    for (std::size_t i = 0; i < loop_.results.size(); ++i) {
      const ValueId result(f_.values.size());
      f_.values.push_back(Value(f_[loop_.results[i]]));
      f_[result].definition = id;
      op.results.push_back(result);
      carried_[i] = result;
    }
    f_.ops.push_back(std::move(op));
    return id;
  }

  OpId loop_over_sides(const std::vector<Part>& parts, ValueId zero, ValueId two) {
    const BlockId body = f_.add_block();
    const std::vector<ValueId>& own = f_[loop_.body].arguments;
    std::vector<ValueId> arguments;
    for (ValueId like : std::vector(own)) {
      const Value value = f_[like];
      arguments.push_back(f_.add_argument(body, value.type, value.name));
      f_[arguments.back()].home = value.home;
    }
    const std::vector<ValueId> outer =
        std::exchange(carried_, {arguments.begin() + 1, arguments.end()});
    Part masked{.full = false}, between = parts[1];
    insert_before(f_, body, 0, loop_.where, [&](Builder& b) {
      const ValueId first = in_all_lanes(b.elementwise(OpCode::eq, {arguments[0], zero}));
      const auto either = [&](ValueId now, ValueId then) {
        return in_all_lanes(b.elementwise(OpCode::where, {first, now, then}));
      };
      masked.begin = either(parts[0].begin, parts[2].begin);
      masked.end = either(parts[0].end, parts[2].end);
      between.end = either(between.end, between.begin);
    });
    const OpId side = copy(masked), rest = copy(between);
    const OpId yield = f_.add_op(Op{.code = OpCode::yield, .operands = carried_}, {});
    for (OpId id : {side, rest, yield}) f_[body].ops.push_back(id);
    carried_ = outer;
    const OpId sides = append({zero, two}, body);
    f_[sides].parts = true;
    f_[sides].descending = false;
    return sides;
  }

  ValueId in_all_lanes(ValueId scalar) {
    f_[scalar].home.space = Space::uniform;
    return scalar;
  }

  Function& f_;
  const Op loop_;
  std::vector<ValueId> carried_;
  std::vector<BlockId> full_;  // regions of copies that want no masks
};

/// Whether some tiles of the loop are masked and others are known to be full.
bool is_mixed(const Op& loop) {
  return loop.operands[0] != loop.operands[1] || loop.operands[2] != loop.operands[3];
}

/// From the inside out: the parts of a loop are copies of its finished body.
void peel_block(Function& f, BlockId block, const Schedule& schedule) {
  for (std::size_t i = 0; i < f[block].ops.size(); ++i) {
    const OpId id = f[block].ops[i];
    if (f[id].body && f[id].code != OpCode::survey) peel_block(f, f[id].body, schedule);
    const Op& op = f[id];
    if (op.bounds != 4) continue;
    if (!is_mixed(op) || (schedule.peel_masks && !op.once)) Peeling(f, op).run(block, i);
  }
}

}  // namespace

void peel_loops(Function& f, const PassContext& context) {
  peel_block(f, f.body, context.schedule);
  remove_dead_ops(f);
}

}  // namespace flashcore
