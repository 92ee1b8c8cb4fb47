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
    if (!find_computed() || !find_second() || !divide() || both_read_a_slot()) return std::nullopt;
    return cut_;
  }

 private:
  /// Values that depend on a product of the same iteration. A loop with a loop inside is not
  /// rotated.
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

  bool find_second() {
    for (OpId id : ops_) {
      const Op& dot = f_[id];
      if (dot.code != OpCode::dot) continue;
      if (computed_.count(dot.operands[0])) {
        const std::optional<ProductCut::Second> second = as_second(id);
        if (!second) return false;
        cut_.second.push_back(*second);
      } else if (dot.operands.size() == 3 || computed_.count(dot.operands[1])) {
        return false;  // a carried sum is not complete before the iteration ends
      }
    }
    return !cut_.second.empty();
  }

  /// A product to whose sum only the next iteration adds, rescaled or not.
  [[nodiscard]] std::optional<ProductCut::Second> as_second(OpId id) const {
    const Op& dot = f_[id];
    if (dot.operands.size() != 3 || readers(dot.results[0]) != std::vector{ops_.back()})
      return std::nullopt;
    const auto at = std::find(yield_.operands.begin(), yield_.operands.end(), dot.results[0]);
    if (at == yield_.operands.end()) return std::nullopt;
    ProductCut::Second second{id, static_cast<std::size_t>(at - yield_.operands.begin()), {}};
    const ValueId argument = arguments_[second.carried + 1], start = dot.operands[2];
    const std::vector<OpId> reads = readers(argument);
    if (reads.size() != 1) return std::nullopt;
    if (start == argument) return second;
    const Op* scaling = f_.definition(start);
    if (!scaling || reads[0] != f_[start].definition ||
        kind_of(scaling->code) != OpKind::elementwise || readers(start) != std::vector{id})
      return std::nullopt;
    second.scaling = f_[start].definition;
    return second;
  }

  /// From the last op to the first: ops that only second products read belong to the second half,
  /// ops that other products need to the first.
  bool divide() {
    std::set<ValueId> first_read;
    for (auto id = ops_.rbegin(); id != ops_.rend(); ++id) {
      const Op& op = f_[*id];
      const bool looks = op.code == OpCode::wait || op.code == OpCode::transpose;
      if (cut_.is_second(*id) || (looks && only_second_reads(op.results[0]))) {
        cut_.second_ops.insert(*id);
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

  [[nodiscard]] bool only_second_reads(ValueId value) const {
    const std::vector<OpId> at = readers(value);
    return !at.empty() &&
           std::all_of(at.begin(), at.end(), [&](OpId r) { return cut_.second_ops.count(r) > 0; });
  }

  [[nodiscard]] bool both_read_a_slot() const {
    return std::any_of(cut_.second.begin(), cut_.second.end(),
                       [&](const ProductCut::Second& second) {
                         const OpId slot = f_[slot_of(f_[second.dot].operands[1])].definition;
                         return !cut_.second_ops.count(slot) &&
                                std::find(ops_.begin(), ops_.end(), slot) != ops_.end();
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

std::size_t ProductCut::second_of(std::size_t carried) const {
  const auto at = std::find_if(second.begin(), second.end(),
                               [&](const Second& l) { return l.carried == carried; });
  return static_cast<std::size_t>(at - second.begin());
}

bool ProductCut::is_second(OpId dot) const {
  return std::any_of(second.begin(), second.end(), [&](const Second& l) { return l.dot == dot; });
}

bool ProductCut::is_scaling(OpId op) const {
  return std::any_of(second.begin(), second.end(),
                     [&](const Second& l) { return l.scaling == op; });
}

std::optional<ProductCut> find_product_cut(const Function& f, const Op& loop) {
  return CutSearch(f, loop).run();
}

}  // namespace flashcore
