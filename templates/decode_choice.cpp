#include "templates/decode_choice.h"

#include <algorithm>

namespace flashcore {
namespace {

// Measured on an H200 at head_dim 64 and 128, in keys that one block reads.
constexpr double keys_of_combining = 200;  ///< the program that combines splits, in keys
constexpr double free_rows = 4;            ///< so many query rows of a tile are multiplied for free
constexpr double row_cost = 1.3 / 64;      ///< every other query row, in reads of all keys

// What a row of a tile by wgmma costs, in rows of 128 of one head.
constexpr double half_tile_cost = 1.17;  ///< in tiles of 64 rows, two on a multiprocessor
constexpr double packed_cost = 1.05;     ///< in packed tiles

/// From so many rows of a multiprocessor on, the second program has tiles of rows.
constexpr std::int64_t rows_combined_alone = 24;

/// So many waves of whole tiles leave little idle: nothing more is asked.
constexpr std::int64_t full_waves = 4;

/// The second program: its launch, and the first bytes from memory.
constexpr double combining_microseconds = 5;
/// Of one block of forward attention, beside its keys: the second program is compared with it.
constexpr double block_microseconds = 2;

std::int64_t up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

DecodeChooser::DecodeChooser(const AttentionSpec& spec, const Target& target)
    : spec_(spec),
      wgmma_(target.wgmma),
      widest_(std::max(spec.head_dim, spec.value_dim())),
      visible_(spec) {}

DecodeBlocks DecodeChooser::blocks_of_rows(std::int64_t q_len) const {
  const std::int64_t group = spec_.group(), all = q_len * group;
  if (!wgmma_ || all <= (group > 1 ? most_decode_rows : most_decode_rows / 2)) {
    const int tile = all <= 16 ? 16 : all <= 32 ? 32 : most_decode_rows;
    return {.rows = DecodeRows::packed, .row_tile = tile};
  }
  // The fewest rows, with those that no query has.
  struct Way {
    DecodeBlocks blocks;
    double cost;
  };
  const auto rows = [&](std::int64_t count, int tile) {
    return static_cast<double>(up(count, tile) * tile);
  };
  const Way ways[] = {
      {{.rows = DecodeRows::of_head, .row_tile = 128}, rows(q_len, 128)},
      {{.rows = DecodeRows::of_head, .row_tile = 64}, half_tile_cost * rows(q_len, 64)},
      {{.rows = DecodeRows::packed_in_registers, .row_tile = 128},
       packed_cost * rows(all, 128) / static_cast<double>(group)},
  };
  // The query of wider heads leaves too few registers, and that of one head needs none.
  const bool in_registers = group > 1 && widest_ <= 128;
  return std::min_element(ways, ways + (in_registers ? 3 : 2),
                          [](const Way& a, const Way& b) { return a.cost < b.cost; })
      ->blocks;
}

DecodeBlocks DecodeChooser::blocks(const DecodeCall& call, std::int64_t multiprocessors) const {
  DecodeBlocks blocks = blocks_of_rows(call.q_len);
  blocks.combines_tiles = blocks.rows != DecodeRows::packed &&
                          call.batch * call.heads * call.q_len >
                              rows_combined_alone * std::max<std::int64_t>(1, multiprocessors);
  return blocks;
}

std::vector<DecodeBlocks> DecodeChooser::reachable(std::int64_t least_rows,
                                                   std::int64_t most_rows) const {
  std::vector<DecodeBlocks> found;
  // What rows there are beyond whole tiles decides, less and less: every count is met by then.
  for (std::int64_t q_len = least_rows; q_len <= std::min<std::int64_t>(most_rows, 4096); ++q_len) {
    DecodeBlocks blocks = blocks_of_rows(q_len);
    for (const bool tiles : {false, true}) {
      if (tiles && blocks.rows == DecodeRows::packed) continue;
      blocks.combines_tiles = tiles;
      if (std::find(found.begin(), found.end(), blocks) == found.end()) found.push_back(blocks);
    }
  }
  return found;
}

DecodeProblem DecodeChooser::problem_of(const DecodeCall& call, const DecodeBlocks& blocks,
                                        std::int64_t multiprocessors) const {
  const bool packs = blocks.rows != DecodeRows::of_head;
  return {.batch = call.batch,
          .heads = packs ? call.kv_heads : call.heads,
          .row_tiles = up(call.q_len * (packs ? spec_.group() : 1), blocks.row_tile),
          .keys = visible_.count(call.q_len, call.kv_len),
          .multiprocessors = multiprocessors};
}

double DecodeChooser::split_microseconds(const DecodeCall& call,
                                         std::int64_t multiprocessors) const {
  const DecodeBlocks chosen = blocks(call, multiprocessors);
  const DecodeProblem problem = problem_of(call, chosen, multiprocessors);
  const SplitCosts costs = split_costs(spec_, chosen);
  const std::int64_t cost = cost_of_splits(problem, costs, decode_splits(problem, costs));
  return static_cast<double>(cost) * costs.microseconds + combining_microseconds;
}

double DecodeChooser::whole_microseconds(const DecodeCall& call,
                                         std::int64_t multiprocessors) const {
  // Tiles of 128 rows, or of 64 with a multiprocessor to themselves; narrow heads have two blocks
  // of a cluster for a tile.
  DecodeProblem problem =
      problem_of(call, {.rows = DecodeRows::of_head, .row_tile = 128}, multiprocessors);
  SplitCosts costs = split_costs(spec_, {.rows = DecodeRows::of_head, .row_tile = 128});
  costs.split = costs.split_share = 0;
  const std::int64_t large = cost_of_splits(problem, costs, 1);
  problem.row_tiles = up(call.q_len, 64);
  costs.key = costs.lone_key = costs.lone_key * 8 / 10;
  const bool clusters =
      widest_ <= 64 && problem.batch * problem.heads * problem.row_tiles <= problem.multiprocessors;
  const std::int64_t small = cost_of_splits(problem, costs, clusters ? 2 : 1);
  return static_cast<double>(std::min(large, small)) * costs.microseconds + block_microseconds;
}

bool DecodeChooser::pays(const DecodeCall& call, std::int64_t multiprocessors) const {
  if (call.kv_len < least_keys_split) return false;
  const std::int64_t keys = visible_.count(call.q_len, call.kv_len);
  if (keys < least_keys_split) return false;
  if (blocks_of_rows(call.q_len).rows != DecodeRows::packed) {
    const std::int64_t tiles = call.batch * call.heads * (call.q_len / 128);
    return tiles < full_waves * multiprocessors &&
           split_microseconds(call, multiprocessors) < whole_microseconds(call, multiprocessors);
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
