// How many key columns the tiles of Hopper's blocks may have. A thread's registers hold scores and output
// beside whatever the expressions of a spec need, and what the compiler makes of them shows only when it
// has compiled them: benchmarks/columns.py does so, and this is what it found.
#pragma once

#include <string_view>

#include "dsl/schedule.h"
#include "templates/choice/expression_traits.h"

namespace flashcore {

/// The table that ships, measured_columns.json. For every 16 columns of head_dim from 16 to 256 (wider heads
/// have the last) a row limits the key columns of blocks for specs of which all words of its name hold: to a
/// number, to none with -, or not at all with a dot. Where several rows hold, the least counts.
/// Words of a block:
///   64, 128, 192   query rows
///   alone          that shares what it loads with no other
///   three_blocks   of which a multiprocessor has three
///   ping_pong      whose warpgroups multiply by turns
///   dynamic        the dynamic persistent tile scheduler
///   two_heads      of which one computes two heads, and scans for their tiles once
/// of a mask:
///   full, masked; bounded (it bounds the loop over keys) or scan (blocks scan for visible tiles)
///   several        conditions that all hold, as those of a window
///   documents      it looks up elements of arrays, as document masks do
///   chunks         it divides positions, as chunked masks do
///   dense_mask     the copy engine brings tiles of it
/// of a score:
///   plain          none
///   softcap        a tanh; softcap_with_maximum: in f16, whose exponentials exceed what f16 holds
///   lookups        threads look up elements of arrays, as for a relative bias
///   loads          the copy engine brings tiles of a dense bias or mask
///   positions      none of these: it is computed from positions, as ALiBi is
///   lse            log-sum-exps are stored
/// of lengths:
///   open, or ragged (sequences differ in length); own_rows: each has query rows of its own number
std::string_view shipped_columns();

/// The most key columns that the tiles of such a block may have for a spec, without regard to those that it
/// has; 0 where there is no room for any, and the largest int without a limit.
int most_columns(const SpecTraits& traits, const Schedule& block);

}  // namespace flashcore
