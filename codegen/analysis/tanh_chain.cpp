#include "codegen/analysis/tanh_chain.h"

#include <algorithm>
#include <set>

#include "codegen/analysis/tile_guard.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

class ChainFinder {
 public:
  ChainFinder(const Function& f, BlockId block, const TileGuards& guards)
      : f_(f), block_(block), guards_(guards), uses_(count_uses(f)) {
    for (OpId id : f_[block].ops)
      if (guards_.of(f_[id]))
        for (OpId own : ops_of_mask(f_, block, id)) of_masks_.insert(own);
  }

  std::vector<TanhChain> run() {
    std::vector<TanhChain> chains;
    for (OpId id : f_[block_].ops) {
      const Op& op = f_[id];
      const bool tile = op.code == OpCode::tanh && f_[op.results[0]].type.axes.size() == 2 &&
                        f_[op.results[0]].layout.space == Space::registers;
      if (tile && !op.precise && !of_masks_.count(id)) chains.push_back(chain_of(id));
    }
    return chains;
  }

 private:
  TanhChain chain_of(OpId tanh) {
    const Op& op = f_[tanh];
    TanhChain chain{.from = op.operands[0], .value = op.results[0]};
    join_factor(chain);
    join_hidden(chain);
    join_sum_with_row(chain);
    if (const Op* exponential = only_reader(chain.value, OpCode::exp2)) {
      chain.value = exponential->results[0];
      chain.raised = true;
    }
    for (OpId reader : readers_of(f_, block_, chain.value))
      if (const Op& sum = f_[reader];
          !chain.sum && sum.code == OpCode::reduce_sum && sum.axis == f_[chain.value].type.axes[1])
        chain.sum = reader;
    find_mask(chain);
    if (chain.sum) find_rounding(chain);
    return chain;
  }

  void join_factor(TanhChain& chain) const {
    const ValueId x = chain.from;
    const auto scaled = scaled_tile(f_, f_.definition(x));
    if (!scaled || is_source(f_, scaled->tile) || uses_[x.index] != 1 || !made_here(x)) return;
    chain.factor = scaled->factor;
    chain.from = scaled->tile;
  }

  /// where(x != -inf, tanh, -inf), of the x that the tanh is of.
  void join_hidden(TanhChain& chain) const {
    const Op* where = only_reader(chain.value, OpCode::where);
    const Op* seen = where ? definition_as(f_, where->operands[0], OpCode::ne) : nullptr;
    if (!seen || guard_of(f_, *where) || where->operands[1] != chain.value ||
        !is_minus_infinity(f_, where->operands[2]) || seen->operands[0] != chain.from ||
        !is_minus_infinity(f_, seen->operands[1]) || uses_[seen->results[0].index] != 1)
      return;
    chain.value = where->results[0];
    chain.masked = true;
  }

  void join_sum_with_row(TanhChain& chain) const {
    const Op* sum = only_reader(chain.value, OpCode::fma);
    if (!sum || sum->operands[2] == chain.value) return;
    const ValueId factor = sum->operands[sum->operands[0] == chain.value ? 1 : 0];
    if (!f_[factor].type.is_scalar() || f_[sum->operands[2]].type.axes.size() != 1 ||
        is_source(f_, sum->operands[2]))
      return;
    chain.value = sum->results[0];
    chain.times = factor;
    chain.plus = sum->operands[2];
  }

  /// Of minus infinity a polynomial makes minus infinity, which is right for what is hidden, and no
  /// tanh. So a test may look at what a mask is about to hide.
  void find_mask(TanhChain& chain) const {
    chain.raw = chain.from;
    const Op* mask = definition_as(f_, chain.from, OpCode::where);
    if (!mask || !chain.masked || (chain.factor && !is_positive(f_, chain.factor)) ||
        !is_minus_infinity(f_, mask->operands[2]))
      return;
    const ValueId hidden = mask->operands[1];
    const Op* made_by = f_.definition(hidden);
    // What the mask's own loops compute is there behind it only.
    if (made_here(hidden) && made_by && kind_of(made_by->code) == OpKind::elementwise) return;
    chain.raw = hidden;
    if (made_here(chain.from) && guards_.of(*mask) && uses_[chain.from.index] == 2 &&
        uses_[hidden.index] == 1)
      chain.mask = f_[chain.from].definition;
  }

  void find_rounding(TanhChain& chain) const {
    const Op& sum = f_[chain.sum];
    for (OpId id : f_[block_].ops) {
      const Op& where = f_[id];
      const Op* rounded = guards_.of(where) ? f_.definition(where.operands[2]) : nullptr;
      if (!rounded || rounded->code != OpCode::reduce_sum || rounded->axis != sum.axis ||
          rounded->scope != sum.scope || condition_behind_guard(f_, where))
        continue;
      const auto cast_of = [&](ValueId value) { return definition_as(f_, value, OpCode::cast); };
      const Op* added = f_.definition(rounded->operands[0]);
      const bool apart = added && added->code == OpCode::sub && added->operands[1] == chain.value;
      const Op* wide = cast_of(apart ? added->operands[0] : rounded->operands[0]);
      const Op* narrow = wide ? cast_of(wide->operands[0]) : nullptr;
      if (!narrow || narrow->operands[0] != chain.value ||
          (!apart && where.operands[1] != sum.results[0]))
        continue;
      chain.rounding = {id, f_[narrow->results[0]].type.dtype, apart};
      return;
    }
  }

  /// The op of this code in the block, if it is all that reads the value, and no mask alone needs it.
  [[nodiscard]] const Op* only_reader(ValueId value, OpCode code) const {
    if (uses_[value.index] != 1) return nullptr;
    for (OpId id : f_[block_].ops)
      if (f_[id].code == code && std::ranges::count(f_[id].operands, value) && !of_masks_.count(id))
        return &f_[id];
    return nullptr;
  }

  [[nodiscard]] bool made_here(ValueId value) const { return made_in(f_, block_, value); }

  const Function& f_;
  BlockId block_;
  const TileGuards& guards_;
  std::vector<int> uses_;
  std::set<OpId> of_masks_;
};

}  // namespace

std::vector<TanhChain> tanh_chains(const Function& f, BlockId block, const TileGuards& guards) {
  return ChainFinder(f, block, guards).run();
}

}  // namespace flashcore
