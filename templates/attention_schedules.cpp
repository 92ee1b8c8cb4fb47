// Schedules that ship for attention_forward on the mma.sync family. docs/performance.md says what was
// measured and what was tried besides.
#include <algorithm>

#include "templates/attention.h"

namespace flashcore {

Schedule attention_schedule(const AttentionSpec& spec, const Target& target) {
  const int dim = std::max(spec.head_dim, spec.value_dim());
  Schedule s;
  // Four warps of 32 rows each: every fragment of K and V then serves two blocks of rows. Beyond 128
  // columns the output no longer fits in registers that way, and a warp takes 16 rows.
  const bool large = dim > 128;
  s.warps_m = 4;
  s.tiles["rows"] = large ? 64 : 128;
  s.tiles["cols"] = dim <= 64 ? 128 : 64;
  s.stages = 2;
  s.last_tiles_first = static_cast<bool>(spec.mask.visible);
  // Workstation parts share 100 KiB a multiprocessor: smaller tiles keep one block within it.
  if (target.shared_per_block < 128 * 1024) {
    if (dim > 64) s.tiles["cols"] = 32;
    if (dim > 96 && !large) s.tiles["cols"] = 32;
    if (dim > 192) s.tiles["cols"] = 16;
  }
  return s;
}

}  // namespace flashcore
