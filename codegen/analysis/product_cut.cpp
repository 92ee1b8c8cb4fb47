#include "codegen/analysis/product_cut.h"

#include <algorithm>

#include "codegen/passes/rewrite.h"

namespace flashcore {

using namespace ir;

namespace {

class CutSearch {
 public:
  CutSearch(const Function& f, const Op& loop)
      : f_(f),
        body_(loop.body),
        ops_(f[loop.body].ops),
        arguments_(f[loop.body].arguments),
        yield_(f[ops_.back()]) {}

  std::optional<ProductCut> run() {
    if (!find_computed() || !find_late() || !divide() || shares_a_slot()) return std::nullopt;
    return cut_;
  }

 private:
  /// Values that depend on a product of the same round. A loop inside is nothing to rotate around.
  bool find_computed() {
    for (OpId id : ops_) {
      const Op& op = f_[id];
      if (op.body) return false;
      bool depends = op.code == OpCode::dot;
      for_each_use(op, [&](const ValueId& v) { depends = depends || computed_.count(v) > 0; });
      if (depends) computed_.insert(op.results.begin(), op.results.end());
    }
    return true;
  }

  bool find_late() {
    for (OpId id : ops_) {
      const Op& dot = f_[id];
      if (dot.code != OpCode::dot) continue;
      if (computed_.count(dot.operands[0])) {
        const std::optional<ProductCut::Late> late = as_late(id);
        if (!late) return false;
        cut_.late.push_back(*late);
      } else if (dot.operands.size() == 3 || computed_.count(dot.operands[1])) {
        return false;  // a sum that rounds hand on is not ready before they end
      }
    }
    return !cut_.late.empty();
  }

  /// A product whose sum only the next round adds to, scaled or not.
  [[nodiscard]] std::optional<ProductCut::Late> as_late(OpId id) const {
    const Op& dot = f_[id];
    if (dot.operands.size() != 3 || readers(dot.results[0]) != std::vector{ops_.back()})
      return std::nullopt;
    const auto at = std::find(yield_.operands.begin(), yield_.operands.end(), dot.results[0]);
    if (at == yield_.operands.end()) return std::nullopt;
    ProductCut::Late late{id, static_cast<std::size_t>(at - yield_.operands.begin()), {}};
    const ValueId argument = arguments_[late.carried + 1], start = dot.operands[2];
    const std::vector<OpId> reads = readers(argument);
    if (reads.size() != 1) return std::nullopt;
    if (start == argument) return late;
    const Op* scaling = f_.definition(start);
    if (!scaling || reads[0] != f_[start].definition ||
        kind_of(scaling->code) != OpKind::elementwise || readers(start) != std::vector{id})
      return std::nullopt;
    late.scaling = f_[start].definition;
    return late;
  }

  /// From the last to the first: what only late products read is late, what other products need is
  /// first.
  bool divide() {
    std::set<ValueId> first_read;
    for (auto id = ops_.rbegin(); id != ops_.rend(); ++id) {
      const Op& op = f_[*id];
      const bool looks = op.code == OpCode::await_slot || op.code == OpCode::transpose;
      if (cut_.is_late(*id) || (looks && only_late_read(op.results[0]))) {
        cut_.late_ops.insert(*id);
        continue;
      }
      const bool needed =
          op.code == OpCode::dot || std::any_of(op.results.begin(), op.results.end(),
                                                [&](ValueId v) { return first_read.count(v) > 0; });
      if (!needed) continue;
      cut_.first.insert(*id);
      for_each_use(op, [&](const ValueId& v) { first_read.insert(v); });
    }
    return !cut_.first.empty();
  }

  [[nodiscard]] bool only_late_read(ValueId value) const {
    const std::vector<OpId> at = readers(value);
    return !at.empty() &&
           std::all_of(at.begin(), at.end(), [&](OpId r) { return cut_.late_ops.count(r) > 0; });
  }

  [[nodiscard]] bool shares_a_slot() const {
    return std::any_of(cut_.late.begin(), cut_.late.end(), [&](const ProductCut::Late& late) {
      const OpId slot = f_[slot_of(f_[late.dot].operands[1])].definition;
      return !cut_.late_ops.count(slot) && std::find(ops_.begin(), ops_.end(), slot) != ops_.end();
    });
  }

  [[nodiscard]] ValueId slot_of(ValueId value) const {
    const Op* op = f_.definition(value);
    while (op && op->code == OpCode::transpose) {
      value = op->operands[0];
      op = f_.definition(value);
    }
    return value;
  }

  [[nodiscard]] std::vector<OpId> readers(ValueId value) const {
    return readers_of(f_, body_, value);
  }

  const Function& f_;
  const BlockId body_;
  const std::vector<OpId>& ops_;
  const std::vector<ValueId>& arguments_;
  const Op& yield_;
  std::set<ValueId> computed_;
  ProductCut cut_;
};

}  // namespace

std::size_t ProductCut::late_of(std::size_t carried) const {
  const auto at =
      std::find_if(late.begin(), late.end(), [&](const Late& l) { return l.carried == carried; });
  return static_cast<std::size_t>(at - late.begin());
}

bool ProductCut::is_late(OpId dot) const {
  return std::any_of(late.begin(), late.end(), [&](const Late& l) { return l.dot == dot; });
}

bool ProductCut::is_scaling(OpId op) const {
  return std::any_of(late.begin(), late.end(), [&](const Late& l) { return l.scaling == op; });
}

std::optional<ProductCut> find_product_cut(const Function& f, const Op& loop) {
  return CutSearch(f, loop).run();
}

}  // namespace flashcore
