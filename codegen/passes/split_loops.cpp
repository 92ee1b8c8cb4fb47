// Where there are fewer tiles of rows than multiprocessors, the blocks of a cluster split a loop:
// each visits a contiguous range of its tiles, and they combine what they carry to its end. How to
// combine follows from what the loop carries:
//
//   m' = max(m, x)            the maximum of all
//   l' = l + x                the sum of all
//   o' = o * g(m, m') + x     the sum of all o * g(m of the block, m of all)
//
// The last is right where g = exp(h(m) - h(m')) and x is a multiple of exp(-h(m')), as in a
// softmax: then o times g(m, M) is the same for every m that it was computed with. The pass
// recognises this by the terms of the exponents, and refuses everything else.
//
//   %m, %o = loop cols from %b to %e   becomes   %rank = cluster_rank among 2
//                                                %b2, %e2 = the bounds of the block's range
//                                                %m, %o = loop cols from %b2 to %e2
//                                                %m0 = cluster_read %m from 0 ; %m1 = ... from 1
//                                                %o0 = cluster_read %o from 0 ; %o1 = ... from 1
//                                                %all = max %m0, %m1
//                                                %sum = %o0 g(%m0, %all) + %o1 g(%m1, %all)
//   store %o                                     store %sum
//
// A sum that does not start at zero starts at its value in the first block alone.
#include <algorithm>
#include <map>
#include <vector>

#include <fmt/format.h>

#include "codegen/analysis/rescaled_sums.h"
#include "codegen/passes/copy_ops.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"
#include "dsl/error.h"

namespace flashcore {
namespace {

using namespace ir;

class LoopSplit {
 public:
  LoopSplit(Function& f, int blocks) : f_(f), blocks_(blocks) {}

  void run() {
    loop_ = find_loop();
    const CarriedValues carried = carried_values(f_, f_[loop_]);
    for (std::size_t i = 0; i < f_[loop_].results.size(); ++i)
      if (!carried[i]) refuse_value(i);
    add_sums_once(carried);
    narrow_bounds();
    put_together(carried);
    remove_dead_ops(f_);
  }

 private:
  [[noreturn]] void refuse(std::string why, const Location& where) const {
    throw ScheduleError({fmt::format("cluster_splits = {} for {}", blocks_, f_.name),
                         std::move(why), "cluster_splits = 1", where});
  }

  [[noreturn]] void refuse_value(std::size_t i) const {
    const std::string& name = f_[f_[loop_].results[i]].name;
    refuse(fmt::format("its loop carries{} neither a maximum, nor a sum, nor a sum that is "
                       "rescaled as a maximum grows",
                       name.empty() ? "" : " as " + name),
           f_[loop_].where);
  }

  /// The program's only loop, behind which no product follows.
  [[nodiscard]] OpId find_loop() const {
    const auto& ops = f_[f_.body].ops;
    const auto is_loop = has_code(f_, OpCode::loop);
    const auto found = std::ranges::find_if(ops, is_loop);
    if (found == ops.end()) refuse("it has no loop to split", {});
    for (auto behind = found + 1; behind != ops.end(); ++behind)
      if (is_loop(*behind) || f_[*behind].code == OpCode::dot)
        refuse("another loop or product takes the combined result of its blocks",
               f_[*behind].where);
    return *found;
  }

  ValueId rank(Builder& b) const {
    return b.make({.code = OpCode::cluster_rank, .blocks = blocks_}, {DType::i32, {}});
  }

  /// Otherwise every block would add the initial value of a sum.
  void add_sums_once(const CarriedValues& carried) {
    for (std::size_t i = 0; i < f_[loop_].results.size(); ++i) {
      const std::size_t operand = static_cast<std::size_t>(f_[loop_].bounds) + i;
      const ValueId start = f_[loop_].operands[operand];
      if (carried[i]->is_extreme() || is_number(f_, start, 0)) continue;
      Builder b = before(f_, f_.body, loop_);
      const ValueId first = b.elementwise(OpCode::eq, {rank(b), b.integer(0)});
      const ValueId zero = b.constant(0, f_[start].type.dtype, f_[start].type.axes);
      f_[loop_].operands[operand] = b.where(first, start, zero);
    }
  }

  /// The loop, and the scan of its tiles, get the bounds of this block's range.
  void narrow_bounds() {
    const Op loop = f_[loop_];
    const auto& ops = f_[f_.body].ops;
    const auto scan = std::ranges::find_if(ops, [&](OpId id) {
      return f_[id].code == OpCode::scan_tiles && f_[id].buffer == loop.buffer;
    });
    const OpId first = scan == ops.end() ? loop_ : *scan;
    const ValueId begin = loop.operands[0], end = loop.operands[1];
    Builder b = before(f_, f_.body, first);
    const ValueId number = rank(b), count = b.sub(end, begin), blocks = b.integer(blocks_);
    const auto bound = [&](ValueId of, const char* name) {
      return named(f_, b.add(begin, b.div(b.mul(count, of), blocks)), f_[loop.axis].name + name);
    };
    const ValueId from = bound(number, "_split_begin");
    const ValueId to = bound(b.add(number, b.integer(1)), "_split_end");
    for (const OpId id : {first, loop_}) {
      f_[id].operands[0] = from;
      f_[id].operands[1] = to;
    }
  }

  ValueId cluster_read(Builder& b, ValueId value, int block) const {
    Op read{.code = OpCode::cluster_read, .operands = {value}, .rank = block};
    return named(f_, b.make(std::move(read), f_[value].type), f_[value].name);
  }

  void put_together(const CarriedValues& carried) {
    const std::vector<ValueId> ends = f_[loop_].results;
    std::vector<ValueId> made(ends.size());
    Builder b = behind(f_, f_.body, loop_);
    for (std::size_t i = 0; i < ends.size(); ++i)
      if (carried[i]->is_extreme()) made[i] = extreme(b, ends[i], carried[i]->extreme);
    for (std::size_t i = 0; i < ends.size(); ++i)
      if (!carried[i]->is_extreme()) made[i] = sum(b, ends, made, i, *carried[i]);
    for (std::size_t i = 0; i < ends.size(); ++i)
      replace_uses_behind(b, ends[i], named(f_, made[i], f_[ends[i]].name));
  }

  ValueId extreme(Builder& b, ValueId end, OpCode code) {
    ValueId all;
    for (int block = 0; block < blocks_; ++block) {
      theirs_[end].push_back(cluster_read(b, end, block));
      all = block ? b.elementwise(code, {all, theirs_[end].back()}) : theirs_[end].back();
    }
    return all;
  }

  ValueId sum(Builder& b, const std::vector<ValueId>& ends, const std::vector<ValueId>& made,
              std::size_t i, const CarriedValue& what) {
    ValueId all;
    for (int block = 0; block < blocks_; ++block) {
      ValueId factor;
      if (what.factor) factor = factor_of(b, what, ends[what.follows], made[what.follows], block);
      const ValueId theirs = cluster_read(b, ends[i], block);
      if (!block)
        all = factor ? b.mul(theirs, factor) : theirs;
      else
        all = factor ? b.elementwise(OpCode::fma, {theirs, factor, all}) : b.add(all, theirs);
    }
    return all;
  }

  /// The factor of an iteration, from a block's maximum to that of all.
  ValueId factor_of(Builder& b, const CarriedValue& what, ValueId end, ValueId all, int block) {
    ValueId& known = factors_[{what.factor, block}];
    if (known) return known;
    OpCopier copier(f_);
    copier.rename(what.old_extreme, theirs_[end][static_cast<std::size_t>(block)]);
    copier.rename(what.new_extreme, all);
    return known = rebuild(b, copier, what.factor);
  }

  /// A value of the loop's region, made anew behind the loop.
  ValueId rebuild(Builder& b, OpCopier& copier, ValueId value) const {
    if (const ValueId renamed = copier.renamed(value); renamed != value) return renamed;
    if (!made_in(f_, f_[loop_].body, value)) return value;
    const OpId made_by = f_[value].definition;
    for (ValueId operand : std::vector(f_[made_by].operands)) rebuild(b, copier, operand);
    return f_[copier.copy(b, made_by)].results[0];
  }

  Function& f_;
  int blocks_;
  OpId loop_;
  std::map<ValueId, std::vector<ValueId>> theirs_;      // of a maximum: each block's
  std::map<std::pair<ValueId, int>, ValueId> factors_;  // of a factor and a block
};

}  // namespace

void split_loops(Function& f, const PassContext& context) {
  if (context.schedule.cluster_splits > 1) LoopSplit(f, context.schedule.cluster_splits).run();
}

}  // namespace flashcore
