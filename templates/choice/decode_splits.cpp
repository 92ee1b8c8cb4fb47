// For so many waves of blocks, the most splits that fit are the best; the numbers of waves that are
// tried differ by what a partial last wave costs.
#include "templates/choice/decode_splits.h"

#include <algorithm>

#include <fmt/format.h>

#include "templates/key_range.h"

namespace flashcore {
namespace {

constexpr int waves_tried[] = {1, 2, 3};

int padded(int dim) { return (dim + 15) / 16 * 16; }

std::int64_t up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::string extent_or(std::optional<int> length, const char* name) {
  return length ? std::to_string(*length) : name;
}

constexpr double picoseconds = 1e6;  // of a microsecond
constexpr int unit_share = 10000;    // a share of 1, in SplitCosts

std::int64_t whole(double us) { return static_cast<std::int64_t>(us * picoseconds + 0.5); }

/// How many blocks a multiprocessor holds at once. A block of 128 rows takes all registers; two smaller
/// blocks fit if shared memory has room for the queries of both, and two slots of keys and values each.
int residents(const AttentionSpec& spec, const DecodeBlocks& blocks) {
  constexpr int all_shared = 227 * 1024, slot_keys = 2 * 64;
  if (blocks.row_tile > 64) return 1;
  const int d = padded(spec.head_dim), dv = padded(spec.value_dim());
  const auto shared =
      static_cast<int>(size_of(spec.dtype)) * (blocks.row_tile * d + slot_keys * (d + dv));
  return 2 * shared <= all_shared ? 2 : 1;
}

}  // namespace

std::string decode_family(const DecodeBlocks& blocks) {
  const int tile = blocks.row_tile;
  if (blocks.rows == DecodeRows::packed_in_registers) return "packed_in_registers/128";
  if (blocks.rows == DecodeRows::of_head) return tile <= 64 ? "of_head/64" : "of_head/128";
  return tile <= 16 ? "packed/16" : tile <= 32 ? "packed/32" : "packed/64";
}

SplitCosts split_costs(const AttentionSpec& spec, const DecodeBlocks& blocks, double paged_share,
                       const DecodeCosts& costs, double bytes_per_us) {
  const int both = padded(spec.head_dim) + padded(spec.value_dim());
  const double dims = both / 256.;
  // No key takes nothing: what it takes divides.
  const double key = std::max(1 / picoseconds, at_dim(costs.columns_us, both / 2.) / 128);
  const int at_once = residents(spec, blocks);
  return {.launch = whole(costs.launch_us),
          .residents = at_once,
          .key = whole(key * (1 + (at_once == 1 ? paged_share : 0))),
          .lone_key = whole(key * (1 + costs.lone_share + paged_share)),
          .read = whole(costs.read_factor * static_cast<double>(size_of(spec.dtype)) * both /
                        bytes_per_us),
          .stall = static_cast<std::int64_t>(costs.stall_share * unit_share + 0.5),
          .readers = blocks.rows == DecodeRows::of_head ? spec.group() : 1,
          .block = whole(costs.block_us),
          .split = whole(costs.split_us),
          .partial = whole(costs.partial_us * blocks.row_tile / 128 * dims),
          .row = whole(blocks.combines_tiles ? costs.tiled_row_us : costs.row_us),
          .most_splits = blocks.combines_tiles ? most_combined_splits(spec, blocks.rows) : 1 << 20};
}

std::int64_t cost_of_splits(const DecodeProblem& problem, const SplitCosts& costs,
                            std::int64_t splits) {
  const std::int64_t blocks =
      std::max<std::int64_t>(1, problem.batch * problem.heads * problem.row_tiles);
  const std::int64_t readers = std::max<std::int64_t>(1, costs.readers * problem.row_tiles);
  const std::int64_t processors = std::max<std::int64_t>(1, problem.multiprocessors);
  const std::int64_t turns = up(blocks * splits, processors);
  const std::int64_t keys =
      up(std::max<std::int64_t>(1, up(problem.keys, keys_of_splits)), splits) * keys_of_splits;
  const std::int64_t alone = turns % costs.residents;
  const std::int64_t computed =
      keys * ((turns - alone) * costs.key + alone * costs.lone_key) + turns * costs.block;
  const std::int64_t read = blocks * std::min(keys * splits, problem.keys) * costs.read / readers;
  const std::int64_t more = std::max(computed, read), less = std::min(computed, read);
  return costs.launch + more + less / 100 * (costs.stall * less / more) / (unit_share / 100) +
         problem.rows * costs.row / processors + splits * (costs.split + blocks * costs.partial);
}

CostedSplits decode_splits(const DecodeProblem& problem, const SplitCosts& costs) {
  const std::int64_t shares =
      std::clamp<std::int64_t>(up(problem.keys, keys_of_splits), 1, costs.most_splits);
  const std::int64_t blocks =
      std::max<std::int64_t>(1, problem.batch * problem.heads * problem.row_tiles);
  const std::int64_t processors = std::max<std::int64_t>(1, problem.multiprocessors);
  CostedSplits best{.splits = 1, .cost = cost_of_splits(problem, costs, 1)};
  std::int64_t last = 1;
  for (const int waves : waves_tried) {
    const std::int64_t most = std::clamp<std::int64_t>(waves * processors / blocks, 1, shares);
    if (most == last) continue;  // where keys are few, or blocks many
    last = most;
    const std::int64_t cost = cost_of_splits(problem, costs, most);
    if (cost < best.cost) best = {.splits = most, .cost = cost};
  }
  return best;
}

std::string decode_splits_text(const DecodeSpec& spec, int row_tile, const CostModel& model) {
  const AttentionSpec& a = spec.attention;
  const SplitCosts costs =
      split_costs(a, {spec.rows, row_tile, spec.combines_tiles}, spec.page_size, model);
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
  text += fmt::format("readers = max(1, {} * tiles); ", costs.readers);
  text += fmt::format("combine = {} + blocks * {}; limit = min(shares, {}); ", costs.split,
                      costs.partial, costs.most_splits);
  // best_w and least_w: the best so far, and its cost; of turns_w blocks of each multiprocessor.
  const auto try_splits = [&](int waves, const std::string& splits) {
    text += fmt::format("most_{} = {}; ", waves, splits);
    text += fmt::format("turns_{0} = -(-blocks * most_{0} // multiprocessors); ", waves);
    text += fmt::format(
        "part_{0} = -(-shares // most_{0}) * {1}; "
        "alone_{0} = turns_{0} % {2}; computed_{0} = turns_{0} * {5} + "
        "part_{0} * ((turns_{0} - alone_{0}) * {3} + alone_{0} * {4}); "
        "read_{0} = blocks * min(part_{0} * most_{0}, keys) * {6} // readers; ",
        waves, keys_of_splits, costs.residents, costs.key, costs.lone_key, costs.block, costs.read);
    text += fmt::format(
        "more_{0} = max(computed_{0}, read_{0}); less_{0} = min(computed_{0}, read_{0}); "
        "cost_{0} = more_{0} + less_{0} // 100 * ({1} * less_{0} // more_{0}) // 100 + "
        "most_{0} * combine; ",
        waves, costs.stall);
  };
  try_splits(0, "1");
  std::string best = "most_0", least = "cost_0";
  for (const int waves : waves_tried) {
    try_splits(waves, fmt::format("max(1, min(limit, {} * multiprocessors // blocks))", waves));
    text += fmt::format("best_{0} = where(cost_{0} < {1}, most_{0}, {2}); ", waves, least, best);
    text += fmt::format("least_{0} = min(cost_{0}, {1}); ", waves, least);
    best = fmt::format("best_{}", waves);
    least = fmt::format("least_{}", waves);
  }
  return text + best;
}

}  // namespace flashcore
