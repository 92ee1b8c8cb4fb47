// Where an axis is spread over several warps, a reduction along it ends with a share in each of
// them. Shuffles do not cross warps, so that these shares meet in shared memory: each warp writes
// its own into a slot, and each reads them all, in the order of the warps, whatever order they
// arrive in.
//
//   %m = reduce_max %s along cols      becomes
//
//   %share  = reduce_max %s along cols by warp
//   %shares = convert %share along cols(2w) in exchange @ shared
//   %m      = combine_shares %shares along cols(2w) of reduce_max
//
// What blocks of a cluster have carried to the end of a loop (share_loops) meets one level up. Each
// warp's rows are put together by one block, warp after warp in turn, in whose shared memory every
// block writes what it has of them. Then all meet once, and the warps whose rows it is read what
// all have given, block by block:
//
//   %a = peer %m from 0                      await_peers
//   ...                                      %given = convert %m in exchange among 2 @ shared
//   store ...                                meet_peers
//                                            %mine = owns_rows among 2
//                                            if %mine { %a = peer %given from 0 ; ... ; store ... }
//
// A combine_shares that an earlier pass left (defer_reductions) takes the same way, behind the
// shuffles that bring a warp's lanes together.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "codegen/layout/register_layouts.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"
#include "dsl/error.h"

namespace flashcore {
namespace {

using namespace ir;

/// Who holds a share: the lanes and warps of an axis, without its registers.
AxisLayout holders(const AxisLayout& layout, bool lanes) {
  AxisLayout shares{.warps = layout.warps, .warp_divisor = layout.warp_divisor};
  if (lanes) shares.lanes = layout.lanes, shares.lane_divisor = layout.lane_divisor;
  return shares;
}

class Exchanger {
 public:
  Exchanger(Function& f, const Schedule& schedule) : f_(f), schedule_(schedule) {}

  void run() {
    for (std::size_t b = 0; b < f_.blocks.size(); ++b) {
      const BlockId block(b);
      for (std::size_t i = 0; i < f_[block].ops.size(); ++i) {
        const Op op = f_[f_[block].ops[i]];
        if (op.code == OpCode::combine_shares) i += finish(block, i, op);
        if (kind_of(op.code) == OpKind::reduction && op.scope == ReductionScope::block)
          i += split(block, i, op);
      }
    }
    if (schedule_.loop_blocks > 1) meet_peers();
  }

 private:
  [[nodiscard]] AxisLayout layout_along(ValueId value, AxisId axis) const {
    const auto& axes = f_[value].type.axes;
    for (std::size_t k = 0; k < axes.size(); ++k)
      if (axes[k] == axis && k < f_[value].home.axes.size()) return f_[value].home.axes[k];
    return {};
  }

  /// What made the shares that arrive, scaled and added up, in a value.
  [[nodiscard]] const Op* maker(ValueId value, const Op& combine) const {
    const Op* op = f_.definition(value);
    if (!op) return nullptr;
    const bool same =
        op->code == OpCode::dot || (op->code == combine.reduction && op->axis == combine.axis);
    if (same && op->scope != ReductionScope::block) return op;
    if (op->code == OpCode::loop) {
      for (std::size_t i = 0; i < op->results.size(); ++i)
        if (op->results[i] == value) return maker(f_[f_[op->body].ops.back()].operands[i], combine);
    }
    if (kind_of(op->code) != OpKind::elementwise) return nullptr;
    for (ValueId operand : op->operands)
      if (const Op* found = maker(operand, combine)) return found;
    return nullptr;
  }

  std::size_t split(BlockId block, std::size_t position, const Op& reduction) {
    const AxisLayout layout = layout_along(reduction.operands[0], reduction.axis);
    if (layout.warps == 1 || f_[reduction.results[0]].type.is_scalar()) return 0;
    const OpId id = f_[block].ops[position];
    const ValueId whole = reduction.results[0], share = f_.add_value(f_[whole].type, "share");
    f_[share].home = f_[whole].home;
    f_[share].definition = id;
    f_[id].results[0] = share;
    f_[id].scope = ReductionScope::warp;
    return insert_before(f_, block, position + 1, reduction.where, [&](Builder& b) {
      meet(b, share, whole, reduction.axis, reduction.code, holders(layout, false));
    });
  }

  /// Lanes first, where they hold shares, then warps.
  std::size_t finish(BlockId block, std::size_t position, const Op& combine) {
    const Op* made_by = maker(combine.operands[0], combine);
    if (!made_by) throw InternalError("a combination of shares that nothing made");
    const AxisLayout layout = layout_along(made_by->operands[0], combine.axis);
    const bool in_lanes = made_by->scope == ReductionScope::lane;
    const AxisLayout shares = holders(layout, in_lanes);
    const OpId id = f_[block].ops[position];
    f_[id].shares = shares;
    if (shares.warps == 1) return 0;
    const ValueId whole = combine.results[0];
    ValueId share = combine.operands[0];
    if (in_lanes) {
      share = f_.add_value(f_[whole].type, "share");
      f_[share].home = f_[whole].home;
      f_[share].definition = id;
      f_[id].results[0] = share;
      f_[id].shares.warps = f_[id].shares.warp_divisor = 1;
    }
    const std::size_t added =
        insert_before(f_, block, position + 1, combine.where, [&](Builder& b) {
          meet(b, share, whole, combine.axis, combine.reduction, holders(layout, false));
        });
    if (in_lanes) return added;
    auto& ops = f_[block].ops;
    ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(position));
    return added - 1;
  }

  /// Makes `whole` of the warps' shares.
  void meet(Builder& b, ValueId share, ValueId whole, AxisId axis, OpCode reduction,
            const AxisLayout& shares) {
    const TileType type = f_[share].type;
    const bool tile = type.axes.size() == 2;
    const int rows = tile ? f_[type.axes[0]].tile : 1, columns = f_[type.axes.back()].tile;
    const BufferId buffer =
        f_.add_buffer({unused_buffer_name(f_, "exchange"), type.dtype, rows, columns, shares.warps,
                       tile ? shared_pitch(columns) : columns});
    Op convert{.code = OpCode::convert, .operands = {share}, .axis = axis};
    convert.buffer = buffer;
    convert.shares = shares;
    const ValueId slots = f_[b.append(std::move(convert), {type})].results[0];
    f_[slots].home.space = Space::shared;
    f_[slots].name = "shares";
    const ValueId made = b.combine_shares(slots, axis, reduction);
    f_.definition(made)->shares = shares;
    f_[whole].definition = f_[made].definition;
    f_.definition(made)->results[0] = whole;
  }

  void meet_peers() {
    const BlockId region = f_.add_block(), giving = f_.add_block();
    const auto is_peer = [&](OpId id) { return f_[id].code == OpCode::peer; };
    auto& ops = f_[f_.body].ops;
    const auto first = std::find_if(ops.begin(), ops.end(), is_peer);
    f_[region].ops.assign(first, ops.end());
    ops.erase(first, ops.end());
    Builder b(f_, giving);
    b.append({.code = OpCode::await_peers}, {});
    std::map<ValueId, ValueId> given;
    for (OpId id : f_[region].ops) {
      if (!is_peer(id)) continue;
      const ValueId value = f_[id].operands[0];
      if (!given.count(value)) given[value] = give(b, value);
      f_[id].operands[0] = given[value];
    }
    b.append({.code = OpCode::meet_peers}, {});
    const ValueId mine = f_[b.append({.code = OpCode::owns_rows, .blocks = schedule_.loop_blocks},
                                     {{DType::i1, {}}})]
                             .results[0];
    f_[region].ops.push_back(f_.add_op({.code = OpCode::yield}, {}));
    Op combine{.code = OpCode::if_, .operands = {mine}};
    combine.body = region;
    b.append(std::move(combine), {});
    ops.insert(ops.end(), f_[giving].ops.begin(), f_[giving].ops.end());
  }

  /// A slot for each block, of the rows of those warps whose turn it is.
  ValueId give(Builder& b, ValueId value) {
    const TileType type = f_[value].type;
    const Home home = f_[value].home;
    const int warps = schedule_.consumer_threads() / 32, blocks = schedule_.loop_blocks;
    if (type.is_scalar() || type.dtype != DType::f32 || home.axes[0].warps != warps)
      throw ScheduleError({fmt::format("loop_blocks = {} for {}", blocks, f_.name),
                           "its loop carries something that is not f32, or of which not every warp "
                           "has rows of its own",
                           "loop_blocks = 1",
                           {}});
    const int rows = home.axes[0].length() / warps * ((warps + blocks - 1) / blocks);
    const bool tile = type.axes.size() == 2;
    const int columns = tile ? f_[type.axes[1]].tile : rows;
    Op convert{.code = OpCode::convert, .operands = {value}, .blocks = blocks};
    convert.buffer = f_.add_buffer({unused_buffer_name(f_, "exchange"), type.dtype, tile ? rows : 1,
                                    columns, blocks, tile ? shared_pitch(columns) : columns});
    const ValueId slots = f_[b.append(std::move(convert), {type})].results[0];
    f_[slots].home.space = Space::shared;
    f_[slots].name = f_[value].name.empty() ? "given" : f_[value].name + "_given";
    return slots;
  }

  Function& f_;
  const Schedule& schedule_;
};

}  // namespace

void exchange_shares(Function& f, const PassContext& context) {
  Exchanger(f, context.schedule).run();
}

}  // namespace flashcore
