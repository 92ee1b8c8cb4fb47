#include <algorithm>
#include <set>
#include <tuple>

#include "dsl/ir/tile_lookup.h"
#include "templates/schedules/schedule_lists.h"

namespace flashcore {
namespace {

using namespace ir;

/// What a mask reads from tables, each place once, by what the place depends on.
struct Lookups {
  int by_row = 0, by_key = 0, by_score = 0;
};

/// With the copy engine, threads do not look up what it brings tiles of.
Lookups lookups_of_mask(AttentionSpec spec, bool by_copy_engine) {
  spec.score = {};
  spec.sink = {};
  const Program program = attention_forward(spec);
  const Function& f = program.function();
  const AxisId rows = f.find_axis("rows"), cols = f.find_axis("cols");
  std::set<std::tuple<TensorId, std::vector<ValueId>>> seen;
  Lookups lookups;
  for_each_op(f, f.body, [&](const Op& op, BlockId) {
    if (op.code != OpCode::gather || (by_copy_engine && looks_up_tile(f, op))) return;
    if (!seen.insert({op.tensor, op.operands}).second) return;
    const TileType& type = f[op.results[0]].type;
    const bool by_row = type.has(rows), by_key = type.has(cols);
    lookups.by_score += by_row && by_key ? 1 : 0;
    lookups.by_row += by_row && !by_key ? 1 : 0;
    lookups.by_key += by_key && !by_row ? 1 : 0;
  });
  return lookups;
}

/// Registers that a thread may have. A producer keeps the least there is.
double registers_of_thread(const Schedule& s) {
  constexpr int all = 65536, producer = 128 * 24;
  const bool shared_out = s.copy == CopyInstruction::tma && s.producer;
  const int block = all / s.blocks_per_processor - (shared_out ? producer : 0);
  return std::min(shared_out ? 240. : 255., static_cast<double>(block) / s.consumer_threads());
}

/// Registers of a thread that hold scores, their sums with the values, and what the mask looks up.
/// The weights are measured: of 229 kernels for sm_80 to sm_90a that are left out by them, the
/// compiler refuses all but one.
double demand(const Schedule& s, const Lookups& lookups, int value_dim) {
  const double rows = s.tiles.at("rows"), keys = s.tiles.at("cols"), threads = s.consumer_threads();
  const double scores = rows * keys / threads, sums = rows * value_dim / threads;
  const double rows_of_lane = rows / (8 * s.warps_m), keys_of_lane = keys / (4 * s.warps_n);
  // What is known of a key alone is a bit at once; what is compared with the rows' waits for them.
  const int compared = std::min(lookups.by_row, lookups.by_key);
  // Lookups for each score are under way beside each other, the more so the more rows a lane has.
  const double held = rows_of_lane > 2 ? 1 : 0.4;
  return scores + sums + compared * (rows_of_lane + keys_of_lane) +
         held * lookups.by_score * scores;
}

}  // namespace

void leave_out_crowded(std::vector<std::vector<Schedule>>& lists, const AttentionSpec& spec,
                       const Target& target) {
  constexpr double others = 16;      // addresses, maxima and operands, at the least
  constexpr int first_frugal = 100;  // code for these targets keeps less of what it looks up
  if (!spec.mask.looks_up() || target.capability >= first_frugal) return;
  const Lookups by_threads = lookups_of_mask(spec, false), with_loads = lookups_of_mask(spec, true);
  const auto is_crowded = [&](const Schedule& s) {
    const Lookups& lookups = s.copy == CopyInstruction::tma ? with_loads : by_threads;
    return s.softmax == Softmax::registers &&
           demand(s, lookups, spec.value_dim()) > registers_of_thread(s) - others;
  };
  for (std::vector<Schedule>& list : lists)
    list.erase(std::remove_if(list.begin(), list.end() - 1, is_crowded), list.end() - 1);
}

}  // namespace flashcore
