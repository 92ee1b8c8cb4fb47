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

bool hides_tanh(const Function& f, const Op& op, ValueId value) {
  return op.code == OpCode::where && op.operands[1] == value &&
         is_minus_infinity(f, op.operands[2]) && f[op.results[0]].type == f[value].type;
}

std::optional<Softcap> find_softcap(const Function& f, const ProbeOps& probes, BlockId block,
                                    OpId id) {
  const Op& tanh = f[id];
  if (tanh.code != OpCode::tanh || tanh.precise || f[tanh.results[0]].type.axes.size() != 2 ||
      probes.has(id))
    return std::nullopt;
  Softcap found{.scores = tanh.operands[0], .value = tanh.results[0]};
  if (const auto scaled = positively_scaled_tile(f, f.definition(found.scores))) {
    found.factor = scaled->factor;
    found.scores = scaled->tile;
  }
  if (f[found.scores].type != f[found.value].type) return std::nullopt;
  if (const auto reads = readers_of(f, block, found.value);
      reads.size() == 1 && hides_tanh(f, f[reads[0]], found.value)) {
    found.mask = reads[0];
    found.value = f[found.mask].results[0];
  }
  for (OpId reader : readers_of(f, block, found.value)) {
    if (probes.has(reader)) {
      if (!found.probe) found.probe = reader;
    } else if (f[reader].code == OpCode::reduce_max && !found.reader) {
      found.maxima.push_back(reader);
    } else if (!found.reader) {
      found.reader = reader;
    }
  }
  if ((found.maxima.empty() && !found.mask) || !found.reader) return std::nullopt;
  return found;
}

/// Puts tanh(x k), and -inf where x is, what the mask has hidden. From there on it is read instead
/// of `instead`, by probes or by all others. Returns it.
ValueId cap(const ProbeOps& probes, Builder b, const Softcap& found, ValueId x, ValueId instead,
            bool for_probes) {
  ValueId value = b.elementwise(OpCode::tanh, {found.factor ? b.mul(x, found.factor) : x});
  if (found.mask) {
    const ValueId hidden = b.constant(-INFINITY, DType::f32);
    value = b.where(b.elementwise(OpCode::ne, {x, hidden}), value, hidden);
  }
  replace_uses_behind(b, instead, value, [&](OpId id) { return probes.has(id) == for_probes; });
  return value;
}

void commute(Function& f, const ProbeOps& probes, BlockId block, const Softcap& found) {
  ValueId scores = found.scores;
  const std::string name = f[found.value].name;
  if (found.mask) {
    // The mask keeps its place and what is known of it, and acts on the scores.
    f[found.mask].operands[1] = scores;
    scores = found.value;
    f[scores].name = f[found.scores].name;
  }
  if (found.probe)
    f[cap(probes, before(f, block, found.probe), found, scores, found.value, true)].name = name;
  for (OpId maximum : found.maxima) {
    f[maximum].operands[0] = scores;
    const ValueId most = f[maximum].results[0];
    const ValueId softcapped = cap(probes, behind(f, block, maximum), found, most, most, false);
    std::swap(f[softcapped].name, f[most].name);
  }
  f[cap(probes, before(f, block, found.reader), found, scores, found.value, false)].name = name;
}

}  // namespace

void commute_tanh(Function& f, const PassContext&) {
  const ProbeOps probes(f);
  for (std::size_t b = 0; b < f.blocks.size(); ++b)
    for (OpId id : std::vector(f[BlockId(b)].ops))
      if (const auto found = find_softcap(f, probes, BlockId(b), id))
        commute(f, probes, BlockId(b), *found);
  remove_dead_ops(f);
}

}  // namespace flashcore
