// With one slot a load, the loads of a loop form a relay: each leg is what is first used in one
// place, and is on its way while the products of the leg in front run.
#pragma once

#include <cstddef>
#include <vector>

#include "dsl/ir/function.h"

namespace flashcore {

/// Loads whose tiles are first used by the same product of the loop's body.
struct LoadLeg {
  std::size_t first_use, last_use;  ///< positions of products
  std::vector<std::size_t> loads;   ///< which of the tiles asked for
};

/// In the order of their first uses.
std::vector<LoadLeg> load_legs(const ir::Function& f, const ir::Op& loop,
                               const std::vector<ir::ValueId>& tiles);

/// The next tile starts while the last leg's products run, so the first leg's must be over by then.
bool relays(const std::vector<LoadLeg>& legs);

}  // namespace flashcore
