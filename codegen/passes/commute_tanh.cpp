// Softcapped scores are tanh(s k), masked, and the softmax needs their maximum. tanh is increasing,
// so the maximum of tanh is the tanh of the maximum; and the mask may be applied to the argument,
// if hidden elements can still be told from visible ones:
//
//   t = tanh (s k)                                   s' = where c, s, -inf
//   w = where c, t, -inf                 becomes     r  = tanh of (reduce_max s') k, or -inf
//   r = reduce_max w                                 w  = where s' != -inf, tanh (s' k), -inf
//
// Then only one operation reads the tanh of a tile, and can be fused with it. The pass leaves a
// tanh alone whose error is multiplied (precise_tanh): its maximum could be below its own scores,
// and their exponentials would overflow. It moves a mask also where no maximum is taken.
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"

namespace flashcore {
namespace {

using namespace ir;

class Commutation {
 public:
  explicit Commutation(Function& f) : f_(f), probes_(f) {}

  void run() {
    for (std::size_t b = 0; b < f_.blocks.size(); ++b)
      for (OpId id : std::vector(f_[BlockId(b)].ops))
        if (const auto found = find(BlockId(b), id)) commute(BlockId(b), *found);
    remove_dead_ops(f_);
  }

 private:
  struct Softcap {
    ValueId scores;  ///< s
    ValueId factor;  ///< k, above zero and the same everywhere; none where tanh reads the scores
                     ///< themselves
    OpId mask;       ///< the `where`, if there is one
    ValueId value;   ///< what is read: the masked tanh, or the tanh
    std::vector<OpId> maxima;
    OpId reader;  ///< the first of the others
    OpId probe;   ///< the first op of a probe that reads it, if any
  };

  [[nodiscard]] std::optional<Softcap> find(BlockId block, OpId id) const {
    const Op& tanh = f_[id];
    if (tanh.code != OpCode::tanh || tanh.precise || f_[tanh.results[0]].type.axes.size() != 2 ||
        probes_.has(id))
      return std::nullopt;
    Softcap found{.scores = tanh.operands[0], .value = tanh.results[0]};
    if (const auto scaled = positively_scaled_tile(f_, f_.definition(found.scores))) {
      found.factor = scaled->factor;
      found.scores = scaled->tile;
    }
    if (f_[found.scores].type != f_[found.value].type) return std::nullopt;
    if (const auto reads = readers_of(f_, block, found.value);
        reads.size() == 1 && hides(f_[reads[0]], found.value)) {
      found.mask = reads[0];
      found.value = f_[found.mask].results[0];
    }
    for (OpId reader : readers_of(f_, block, found.value)) {
      if (probes_.has(reader)) {
        if (!found.probe) found.probe = reader;
      } else if (f_[reader].code == OpCode::reduce_max && !found.reader) {
        found.maxima.push_back(reader);
      } else if (!found.reader) {
        found.reader = reader;
      }
    }
    if ((found.maxima.empty() && !found.mask) || !found.reader) return std::nullopt;
    return found;
  }

  [[nodiscard]] bool hides(const Op& op, ValueId value) const {
    return op.code == OpCode::where && op.operands[1] == value &&
           is_minus_infinity(f_, op.operands[2]) && f_[op.results[0]].type == f_[value].type;
  }

  void commute(BlockId block, const Softcap& found) {
    ValueId scores = found.scores;
    const std::string name = f_[found.value].name;
    if (found.mask) {
      // The mask keeps its place and what is known of it, and acts on the scores.
      f_[found.mask].operands[1] = scores;
      scores = found.value;
      f_[scores].name = f_[found.scores].name;
    }
    if (found.probe)
      f_[cap(before(f_, block, found.probe), found, scores, found.value, true)].name = name;
    for (OpId maximum : found.maxima) {
      f_[maximum].operands[0] = scores;
      const ValueId most = f_[maximum].results[0];
      const ValueId softcapped = cap(behind(f_, block, maximum), found, most, most, false);
      std::swap(f_[softcapped].name, f_[most].name);
    }
    f_[cap(before(f_, block, found.reader), found, scores, found.value, false)].name = name;
  }

  /// Puts tanh(x k), and -inf where x is, what the mask has hidden. From there on it is read instead
  /// of `instead`, by probes or by all others. Returns it.
  ValueId cap(Builder b, const Softcap& found, ValueId x, ValueId instead, bool probes) {
    ValueId value = b.elementwise(OpCode::tanh, {found.factor ? b.mul(x, found.factor) : x});
    if (found.mask) {
      const ValueId hidden = b.constant(-INFINITY, DType::f32);
      value = b.where(b.elementwise(OpCode::ne, {x, hidden}), value, hidden);
    }
    replace_uses_behind(b, instead, value, [&](OpId id) { return probes_.has(id) == probes; });
    return value;
  }

  Function& f_;
  ProbeOps probes_;
};

}  // namespace

void commute_tanh(Function& f, const PassContext&) { Commutation(f).run(); }

}  // namespace flashcore
