// The ordering of blocks, as measured (benchmarks/orderings.py). In which order a block issues
// what it computes changes the registers and the code that the compiler finds for it: by 1 to 10 %,
// to and fro between neighbouring head dims. No model foretells that, so it is data.
#pragma once

#include <string_view>

#include "dsl/schedule.h"
#include "templates/choice/expression_traits.h"

namespace flashcore {

/// The table that ships, measured_orderings.json. `orderings` has fields of schedules by a number.
/// `measured` has the number of an ordering for every 16 columns of head_dim from 16 to 256, or - where
/// such blocks are no candidates, by a kind of four words:
///   family   of blocks, as cost_family calls it; for 128 rows it says whether they have ping-pong
///   mask     full, causal or window (they bound the loop over keys, a window by several conditions),
///            or scan (blocks scan for visible tiles)
///   score    plain, softcap, softcap_with_maximum (whose exponentials exceed what f16 holds),
///            positions (computed from them, as ALiBi is), lookups, or loads (the copy engine brings
///            tiles of a dense bias or mask)
///   lengths  open, or ragged: sequences differ in length, and blocks are not persistent
/// Orderings of ragged lengths, of head dims 16 and 48, and of blocks without a producer are not
/// measured by that script: they are those that rules gave before, which single kernels had been
/// measured for.
std::string_view shipped_orderings();

/// A schedule that has the fields of the ordering of such blocks for a spec, and no tiles; null where
/// the table has none.
const Schedule* measured_ordering(const SpecTraits& traits, std::string_view family);

}  // namespace flashcore
