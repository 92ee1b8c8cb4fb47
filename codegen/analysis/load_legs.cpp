#include "codegen/analysis/load_legs.h"

#include <algorithm>

#include "codegen/analysis/product_stages.h"

namespace flashcore {

using namespace ir;

std::vector<LoadLeg> load_legs(const Function& f, const Op& loop,
                               const std::vector<ValueId>& tiles) {
  std::vector<LoadLeg> legs;
  const auto& ops = f[loop.body].ops;
  for (std::size_t load = 0; load < tiles.size(); ++load) {
    std::size_t first = ops.size(), last = 0;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const Op& op = f[ops[i]];
      if (op.code != OpCode::dot ||
          (viewed(f, op.operands[0]) != tiles[load] && viewed(f, op.operands[1]) != tiles[load]))
        continue;
      first = std::min(first, i);
      last = i;
    }
    const auto same = std::ranges::find(legs, first, &LoadLeg::first_use);
    if (same == legs.end()) {
      legs.push_back({first, last, {load}});
    } else {
      same->loads.push_back(load);
      same->last_use = std::max(same->last_use, last);
    }
  }
  std::ranges::sort(legs, {}, &LoadLeg::first_use);
  return legs;
}

bool relays(const std::vector<LoadLeg>& legs) {
  return legs.size() > 1 && legs.front().last_use < legs.back().first_use;
}

}  // namespace flashcore
