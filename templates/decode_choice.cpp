#include "templates/decode_choice.h"

#include <algorithm>

namespace flashcore {
namespace {

// Measured on an H200 at head_dim 64 and 128, in keys that one block reads.
constexpr double keys_of_combining = 200;  ///< the program that combines splits, in keys
constexpr double free_rows = 4;            ///< so many query rows of a tile are multiplied for free
constexpr double row_cost = 1.3 / 64;      ///< every other query row, in reads of all keys

/// From so many rows of a multiprocessor on, the second program has tiles of rows.
constexpr std::int64_t rows_combined_alone = 24;

/// Predictions are off by some percent, and what is gained by less is not worth a second program.
constexpr double least_gain = 1.1;

/// So many waves of whole tiles leave little idle: nothing more is asked.
constexpr std::int64_t full_waves = 4;

// Both programs beside what the model counts, with their launches and the first bytes from memory,
// and forward attention likewise.
constexpr double of_head_microseconds = 9.5, of_half_tile_microseconds = 10,
                 in_registers_microseconds = 11.5, whole_kernel_microseconds = 6.5;

// Forward attention in tiles of 64 rows, in what a key costs in tiles of 128: alone on a
// multiprocessor, and with narrow heads two of them there, whose keys a cluster of two blocks shares
// where there is room.
constexpr double half_rows = 0.76, narrow_half_rows = 0.53, narrow_in_clusters = 0.36;

/// Tiles of many rows. The query of wider heads leaves too few registers, and that of one head needs
/// none.
constexpr DecodeBlocks many_rows[] = {{.rows = DecodeRows::of_head, .row_tile = 64},
                                      {.rows = DecodeRows::of_head, .row_tile = 128},
                                      {.rows = DecodeRows::packed_in_registers, .row_tile = 128}};

double fixed_microseconds(const DecodeBlocks& blocks) {
  if (blocks.rows == DecodeRows::packed_in_registers) return in_registers_microseconds;
  return blocks.row_tile <= 64 ? of_half_tile_microseconds : of_head_microseconds;
}

std::int64_t up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

DecodeChooser::DecodeChooser(const AttentionSpec& spec, const Target& target)
    : spec_(spec),
      wgmma_(target.wgmma),
      widest_(std::max(spec.head_dim, spec.value_dim())),
      range_(spec) {}

bool DecodeChooser::is_copied(std::int64_t q_len) const {
  const int group = spec_.group();
  return !wgmma_ || q_len * group <= (group > 1 ? most_decode_rows : most_decode_rows / 2);
}

std::span<const DecodeBlocks> DecodeChooser::ways() const {
  const bool in_registers = spec_.group() > 1 && widest_ <= 128;
  return {many_rows, in_registers ? std::size_t{3} : std::size_t{2}};
}

DecodeProblem DecodeChooser::problem_of(const DecodeCall& call, const DecodeBlocks& blocks,
                                        std::int64_t multiprocessors) const {
  const bool packs = blocks.rows != DecodeRows::of_head;
  return {.batch = call.batch,
          .heads = packs ? call.kv_heads : call.heads,
          .row_tiles = up(call.q_len * (packs ? spec_.group() : 1), blocks.row_tile),
          .keys = range_.count(call.q_len, call.kv_len),
          .multiprocessors = std::max<std::int64_t>(1, multiprocessors)};
}

DecodeChooser::Estimate DecodeChooser::best(const DecodeCall& call,
                                            std::int64_t multiprocessors) const {
  const auto estimate = [&](const DecodeBlocks& blocks) {
    const DecodeProblem problem = problem_of(call, blocks, multiprocessors);
    const SplitCosts costs = split_costs(spec_, blocks);
    const std::int64_t cost = cost_of_splits(problem, costs, decode_splits(problem, costs));
    return Estimate{blocks,
                    static_cast<double>(cost) * costs.microseconds + fixed_microseconds(blocks)};
  };
  if (is_copied(call.q_len)) {
    const std::int64_t rows = call.q_len * spec_.group();
    const int tile = rows <= 16 ? 16 : rows <= 32 ? 32 : most_decode_rows;
    return estimate({DecodeRows::packed, tile, spec_.packed()});
  }
  const bool combines_tiles =
      spec_.packed() || call.batch * call.heads * call.q_len >
                            rows_combined_alone * std::max<std::int64_t>(1, multiprocessors);
  Estimate least;
  for (DecodeBlocks way : ways()) {
    way.combines_tiles = combines_tiles;
    const Estimate found = estimate(way);
    if (!least.microseconds || found.microseconds < least.microseconds) least = found;
  }
  return least;
}

DecodeBlocks DecodeChooser::blocks(const DecodeCall& call, std::int64_t multiprocessors) const {
  return best(call, multiprocessors).blocks;
}

std::vector<DecodeBlocks> DecodeChooser::reachable(std::int64_t least_rows,
                                                   std::int64_t most_rows) const {
  std::vector<DecodeBlocks> found;
  std::int64_t q_len = least_rows;
  for (; q_len <= most_rows && q_len <= most_decode_rows && is_copied(q_len); ++q_len) {
    const DecodeBlocks blocks = best({.q_len = q_len}, 1).blocks;
    if (std::find(found.begin(), found.end(), blocks) == found.end()) found.push_back(blocks);
  }
  if (q_len > most_rows || !wgmma_) return found;
  for (DecodeBlocks way : ways())
    for (const bool tiles : {false, true}) {
      if (spec_.packed() && !tiles) continue;
      way.combines_tiles = tiles;
      found.push_back(way);
    }
  return found;
}

double DecodeChooser::split_microseconds(const DecodeCall& call,
                                         std::int64_t multiprocessors) const {
  return best(call, multiprocessors).microseconds;
}

double DecodeChooser::whole_microseconds(const DecodeCall& call,
                                         std::int64_t multiprocessors) const {
  const DecodeBlocks tiles{.rows = DecodeRows::of_head, .row_tile = 128};
  DecodeProblem problem = problem_of(call, tiles, multiprocessors);
  SplitCosts costs = split_costs(spec_, tiles);
  costs.split = costs.split_share = 0;
  const double large = static_cast<double>(cost_of_splits(problem, costs, 1));
  problem.row_tiles = up(call.q_len, 64);
  const std::int64_t blocks = problem.batch * problem.heads * problem.row_tiles;
  double half = half_rows;
  if (widest_ <= 64 && blocks <= problem.multiprocessors)
    half = 2 * blocks <= problem.multiprocessors ? narrow_in_clusters : narrow_half_rows;
  costs.key = costs.lone_key =
      static_cast<std::int64_t>(half * static_cast<double>(costs.key) + 0.5);
  const double small = static_cast<double>(cost_of_splits(problem, costs, 1));
  return std::min(large, small) * costs.microseconds + whole_kernel_microseconds;
}

bool DecodeChooser::pays(const DecodeCall& call, std::int64_t multiprocessors) const {
  if (call.kv_len < least_keys_split) return false;
  const std::int64_t keys = range_.count(call.q_len, call.kv_len);
  if (keys < least_keys_split) return false;
  if (wgmma_ && !is_copied(call.q_len)) {
    const std::int64_t tiles = call.batch * call.heads * (call.q_len / 128);
    return tiles < full_waves * multiprocessors &&
           least_gain * split_microseconds(call, multiprocessors) <
               whole_microseconds(call, multiprocessors);
  }
  const std::int64_t rows = spec_.group() * call.q_len;
  if (rows > most_decode_rows) return false;
  // By the keys that the busiest multiprocessor reads in either way, of which a few query rows cost
  // nothing, more rows cost products of mma.sync, and the second program as much as some keys.
  const std::int64_t waves =
      up(call.batch * call.heads, std::max<std::int64_t>(1, multiprocessors));
  const double whole = static_cast<double>(waves * keys);
  const double shared = static_cast<double>(call.batch * call.kv_heads * keys) /
                        static_cast<double>(std::max<std::int64_t>(1, multiprocessors));
  const double products = 1 + row_cost * std::max(0.0, static_cast<double>(rows) - free_rows);
  return shared * products + keys_of_combining < whole;
}

}  // namespace flashcore
