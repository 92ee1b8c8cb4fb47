// For so many waves of blocks, the most splits that fit are the best; the numbers of waves that are
// tried differ by what a partial last wave costs.
#include "templates/decode_splits.h"

#include <algorithm>

#include <fmt/format.h>

#include "templates/key_range.h"

namespace flashcore {
namespace {

constexpr int waves_tried[] = {1, 2, 3, 4, 6, 8};

/// Measured on an H200 with a head_dim of 128, as everything below: bytes of keys and values that a
/// multiprocessor gets of the memory's bandwidth in a nanosecond.
constexpr double bytes_a_nanosecond = 33;
/// And what all of them read and write of partial results, most of which stays in L2.
constexpr double partial_bytes_a_nanosecond = 4400;

int padded(int dim) { return (dim + 15) / 16 * 16; }

std::int64_t up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::string extent_or(std::optional<int> length, const char* name) {
  return length ? std::to_string(*length) : name;
}

/// Copies of rows wait for the memory: the unit is a fifth of what a key takes.
SplitCosts costs_of_reading(const AttentionSpec& spec, int page_size) {
  const double key = 2. * (spec.head_dim + spec.value_dim()) / bytes_a_nanosecond;
  return {.lone_key = page_size ? 6 : 5,
          .key = 5,
          .block = 5 * 64,
          .split = 5,
          .microseconds = key / 5 / 1000};
}

/// Products of a warpgroup compute longer than their operands are read, unless no other block reads
/// the same keys. In nanoseconds.
SplitCosts costs_of_products(const AttentionSpec& spec, const DecodeBlocks& blocks) {
  const double dim = (padded(spec.head_dim) + padded(spec.value_dim())) / 2.;
  // Of 128 rows: the products, or the exponentials of narrow heads. A query in registers is loaded
  // and its rows are stored one by one.
  const bool in_registers = blocks.rows == DecodeRows::packed_in_registers;
  const double key = (in_registers ? 1.08 : 1) * std::max(9., 11.6 * dim / 128);
  const auto whole = [](double x) { return static_cast<std::int64_t>(x + 0.5); };
  const bool half = blocks.row_tile <= 64;
  return {
      .lone_key = whole(half ? 0.92 * key : key),
      .key = whole(half ? 0.72 * key : key),
      .read = whole(4 * dim / bytes_a_nanosecond),
      .readers = blocks.rows == DecodeRows::of_head ? spec.group() : 1,
      .block = in_registers ? 2500 : 1000,
      .split = 50,
      .split_share = whole(blocks.row_tile * (dim + 2) * 8 / partial_bytes_a_nanosecond),
      .most_waves = 3,
      .microseconds = 0.001,
  };
}

}  // namespace

SplitCosts split_costs(const AttentionSpec& spec, const DecodeBlocks& blocks, int page_size) {
  SplitCosts costs = blocks.rows == DecodeRows::packed ? costs_of_reading(spec, page_size)
                                                       : costs_of_products(spec, blocks);
  if (blocks.combines_tiles) costs.most_splits = most_combined_splits(spec, blocks.rows);
  return costs;
}

std::int64_t cost_of_splits(const DecodeProblem& problem, const SplitCosts& costs,
                            std::int64_t splits) {
  const std::int64_t blocks =
      std::max<std::int64_t>(1, problem.batch * problem.heads * problem.row_tiles);
  const std::int64_t readers = std::max<std::int64_t>(1, costs.readers * problem.row_tiles);
  const std::int64_t processors = std::max<std::int64_t>(1, problem.multiprocessors);
  const std::int64_t in_turn = up(blocks * splits, processors);
  const std::int64_t keys = up(std::max<std::int64_t>(1, up(problem.keys, keys_of_splits)), splits);
  const std::int64_t read =
      costs.read * std::min(blocks * splits, processors) / (processors * readers);
  const std::int64_t key = std::max(in_turn == 1 ? costs.lone_key : costs.key, read);
  return in_turn * (keys * keys_of_splits * key + costs.block) +
         splits * (costs.split + blocks * costs.split_share);
}

std::int64_t decode_splits(const DecodeProblem& problem, const SplitCosts& costs) {
  const std::int64_t shares =
      std::clamp<std::int64_t>(up(problem.keys, keys_of_splits), 1, costs.most_splits);
  const std::int64_t blocks =
      std::max<std::int64_t>(1, problem.batch * problem.heads * problem.row_tiles);
  const std::int64_t processors = std::max<std::int64_t>(1, problem.multiprocessors);
  std::int64_t best = 1, least = cost_of_splits(problem, costs, 1);
  for (const int waves : waves_tried) {
    if (waves > costs.most_waves) break;
    const std::int64_t most = std::clamp<std::int64_t>(waves * processors / blocks, 1, shares);
    const std::int64_t cost = cost_of_splits(problem, costs, most);
    if (cost < least) {
      best = most;
      least = cost;
    }
  }
  return best;
}

std::string decode_splits_text(const DecodeSpec& spec, int row_tile) {
  const AttentionSpec& a = spec.attention;
  const SplitCosts costs =
      split_costs(a, {spec.rows, row_tile, spec.combines_tiles}, spec.page_size);
  const std::string batch = extent_or(a.batch, "B");
  // Of packed sequences, lengths are the mean.
  const auto mean = [&](std::optional<int> length, const char* all) {
    return fmt::format("(({0} + max(1, {1}) - 1) // max(1, {1}))", extent_or(length, all), batch);
  };
  const std::string q_len = a.packed() ? mean(a.q_len, "Tq") : extent_or(a.q_len, "Sq");
  const std::string heads =
      a.heads ? std::to_string(spec.packs_heads() && a.kv_heads ? a.kv_heads : a.heads)
              : std::string("H");
  const std::string all_keys = spec.page_size ? fmt::format("max_pages * {}", spec.page_size)
                               : a.packed()   ? mean(a.kv_len, "Tk")
                                              : extent_or(a.kv_len, "Sk");
  std::string text =
      fmt::format("keys = {}; shares = max(1, (keys + {}) // {}); tiles = ({} * {} + {}) // {}; ",
                  KeyRange(a).count_text(q_len, all_keys), keys_of_splits - 1, keys_of_splits,
                  q_len, spec.packs_heads() ? a.group() : 1, row_tile - 1, row_tile);
  text += fmt::format("blocks = max(1, {} * {} * tiles); ", batch, heads);
  if (costs.read)
    text += fmt::format("all = multiprocessors * max(1, {} * tiles); ", costs.readers);
  text += fmt::format("combine = {} + blocks * {}; limit = min(shares, {}); ", costs.split,
                      costs.split_share, costs.most_splits);
  // best_w and least_w: the best so far, and its cost; of turns_w blocks of each multiprocessor.
  const auto try_splits = [&](int waves, const std::string& splits) {
    text += fmt::format("most_{} = {}; ", waves, splits);
    text += fmt::format("turns_{0} = -(-blocks * most_{0} // multiprocessors); ", waves);
    std::string key = fmt::format("where(turns_{} == 1, {}, {})", waves, costs.lone_key, costs.key);
    if (costs.lone_key == costs.key) key = std::to_string(costs.key);
    if (costs.read)
      key = fmt::format("max({}, {} * min(blocks * most_{}, multiprocessors) // all)", key,
                        costs.read, waves);
    text += fmt::format(
        "cost_{0} = turns_{0} * (-(-shares // most_{0}) * {1} * {2} + {3}) + most_{0} * combine; ",
        waves, keys_of_splits, key, costs.block);
  };
  try_splits(0, "1");
  std::string best = "most_0", least = "cost_0";
  for (const int waves : waves_tried) {
    if (waves > costs.most_waves) break;
    try_splits(waves, fmt::format("max(1, min(limit, {} * multiprocessors // blocks))", waves));
    text += fmt::format("best_{0} = where(cost_{0} < {1}, most_{0}, {2}); ", waves, least, best);
    text += fmt::format("least_{0} = min(cost_{0}, {1}); ", waves, least);
    best = fmt::format("best_{}", waves);
    least = fmt::format("least_{}", waves);
  }
  return text + best;
}

}  // namespace flashcore
