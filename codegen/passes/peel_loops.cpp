// A loop with bounds [begin, full_begin, full_end, end) becomes up to three: between full_begin and
// full_end every masking `where` holds, so that part is copied without them. A part whose two bounds are
// the same value is left out. A schedule that does not peel leaves such a loop whole, and the printer
// puts the masks behind a test of the tile's number.
#include <algorithm>
#include <map>
#include <vector>

#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

/// Copies a region; values made inside get new ids, others are kept.
class RegionCopier {
 public:
  explicit RegionCopier(Function& f) : f_(f) {}

  BlockId copy(BlockId source) {
    const BlockId target = f_.add_block();
    for (ValueId argument : f_[source].arguments) {
      const ValueId copied = copy_value(argument);
      f_[target].arguments.push_back(copied);
    }
    const std::vector<OpId> ops = f_[source].ops;
    for (OpId id : ops) {
      Op op = f_[id];
      for_each_use(op, [&](ValueId& v) { v = renamed(v); });
      if (op.body) op.body = copy(op.body);
      for (ValueId& result : op.results) result = copy_value(result);
      const OpId copied(f_.ops.size());
      for (ValueId result : op.results) f_[result].definition = copied;
      f_.ops.push_back(std::move(op));
      f_[target].ops.push_back(copied);
    }
    return target;
  }

 private:
  ValueId copy_value(ValueId value) {
    const ValueId copied(f_.values.size());
    f_.values.push_back(Value(f_[value]));
    return names_[value] = copied;
  }
  ValueId renamed(ValueId value) const {
    const auto found = names_.find(value);
    return found == names_.end() ? value : found->second;
  }

  Function& f_;
  std::map<ValueId, ValueId> names_;
};

/// Drops every `where` of the region whose condition is known to hold.
void drop_masks(Function& f, BlockId region) {
  for (OpId id : f[region].ops)
    if (f[id].code == OpCode::where && f[id].masking) replace_uses(f, f[id].results[0], f[id].operands[1]);
}

void peel(Function& f, BlockId block, std::size_t position) {
  const OpId id = f[block].ops[position];
  const Op loop = f[id];
  const std::vector<ValueId> bounds(loop.operands.begin(), loop.operands.begin() + loop.bounds);
  std::vector<ValueId> carried(loop.operands.begin() + loop.bounds, loop.operands.end());

  struct Part {
    ValueId begin, end;
    bool full;
  };
  std::vector<Part> parts;
  for (int k = 0; k < 3; ++k)
    if (bounds[k] != bounds[k + 1]) parts.push_back({bounds[k], bounds[k + 1], k == 1});
  if (loop.descending) std::reverse(parts.begin(), parts.end());
  if (parts.empty()) parts.push_back({bounds[0], bounds[3], true});

  std::vector<OpId> copies;
  for (const Part& part : parts) {
    Op copy = loop;
    copy.bounds = 2;
    copy.operands = {part.begin, part.end};
    copy.operands.insert(copy.operands.end(), carried.begin(), carried.end());
    copy.body = RegionCopier(f).copy(loop.body);
    copy.results.clear();
    const OpId copied(f.ops.size());
    for (std::size_t i = 0; i < loop.results.size(); ++i) {
      const ValueId result(f.values.size());
      f.values.push_back(Value(f[loop.results[i]]));
      f[result].definition = copied;
      copy.results.push_back(result);
      carried[i] = result;
    }
    f.ops.push_back(std::move(copy));
    copies.push_back(copied);
  }
  auto& ops = f[block].ops;
  ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(position));
  ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(position), copies.begin(), copies.end());
  for (std::size_t i = 0; i < loop.results.size(); ++i) replace_uses(f, loop.results[i], carried[i]);
  for (std::size_t k = 0; k < parts.size(); ++k)
    if (parts[k].full) drop_masks(f, f[copies[k]].body);
}

/// Whether some tiles of the loop are masked and others are known to be full.
bool is_mixed(const Op& loop) {
  return loop.operands[0] != loop.operands[1] || loop.operands[2] != loop.operands[3];
}

}  // namespace

void peel_loops(Function& f, const PassContext& context) {
  for (std::size_t i = 0; i < f[f.body].ops.size(); ++i) {
    const Op& op = f[f[f.body].ops[i]];
    if (op.bounds == 4 && (context.schedule.peel_masks || !is_mixed(op))) peel(f, f.body, i);
  }
  remove_dead_ops(f);
}

}  // namespace flashcore
