// How many blocks should share the keys of a sequence. For so many waves of blocks, the most splits
// that fit are the best; the numbers of waves that are tried differ by what a partial last wave
// costs.
#include <algorithm>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "templates/attention_decode.h"

namespace flashcore {
namespace {

constexpr int waves_tried[] = {1, 2, 3, 4, 6, 8};
/// In fifths of what a key costs, measured with a head_dim of 128 on an H200: a key of a block that
/// has a multiprocessor to itself and looks up pages, any other, a block without keys, and a split
/// in combining.
constexpr int of_lone_key = 6, of_key = 5, of_block = 5 * 64, of_split = 5;

// What splitting costs, measured on an H200 at head_dim 64 and 128.
constexpr double keys_of_combining = 200;  ///< the program that combines splits, in keys
constexpr double free_rows = 4;            ///< so many query rows of a tile are multiplied for free
constexpr double row_cost = 1.3 / 64;      ///< every other query row, in reads of all keys

std::string extent_or(std::optional<int> length, const char* name) {
  return length ? std::to_string(*length) : name;
}

}  // namespace

std::int64_t decode_splits(const DecodeProblem& problem) {
  const auto up = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  const std::int64_t shares = std::max<std::int64_t>(1, up(problem.keys, keys_of_splits));
  const std::int64_t blocks =
      std::max<std::int64_t>(1, problem.batch * problem.kv_heads * problem.row_tiles);
  const std::int64_t processors = std::max<std::int64_t>(1, problem.multiprocessors);
  const auto cost = [&](std::int64_t splits) {
    const std::int64_t in_turn = up(blocks * splits, processors);
    const std::int64_t key = problem.paged && in_turn == 1 ? of_lone_key : of_key;
    const std::int64_t keys = up(shares, splits) * keys_of_splits;
    return in_turn * (keys * key + of_block) + splits * of_split;
  };
  std::int64_t best = 1;
  for (const int waves : waves_tried) {
    const std::int64_t most = std::clamp<std::int64_t>(waves * processors / blocks, 1, shares);
    if (cost(most) < cost(best)) best = most;
  }
  return best;
}

bool splitting_pays(std::int64_t batch, std::int64_t heads, std::int64_t kv_heads,
                    std::int64_t q_len, std::int64_t kv_len, std::int64_t multiprocessors) {
  const std::int64_t rows = heads / std::max<std::int64_t>(1, kv_heads) * q_len;
  if (kv_len < least_keys_split || rows > most_decode_rows) return false;
  const std::int64_t processors = std::max<std::int64_t>(1, multiprocessors);
  const std::int64_t waves = (batch * heads + processors - 1) / processors;
  const double whole = static_cast<double>(waves * kv_len);
  const double shared =
      static_cast<double>(batch * kv_heads * kv_len) / static_cast<double>(processors);
  const double products = 1 + row_cost * std::max(0.0, static_cast<double>(rows) - free_rows);
  return shared * products + keys_of_combining < whole;
}

std::string decode_splits_text(const DecodeSpec& spec, int row_tile) {
  const AttentionSpec& a = spec.attention;
  const std::string batch = extent_or(a.batch, "B"), q_len = extent_or(a.q_len, "Sq");
  const std::string kv_heads =
      a.heads ? std::to_string(a.kv_heads ? a.kv_heads : a.heads) : std::string("H");
  const std::string keys =
      spec.page_size ? fmt::format("max_pages * {}", spec.page_size) : extent_or(a.kv_len, "Sk");
  std::string text = fmt::format(
      "shares = max(1, ({} + {}) // {}); blocks = max(1, {} * {} * (({} * {} + {}) // {})); ", keys,
      keys_of_splits - 1, keys_of_splits, batch, kv_heads, q_len, a.group(), row_tile - 1,
      row_tile);
  // best_w and least_w: the best so far, and its cost; of turns_w blocks of each multiprocessor.
  const auto try_splits = [&](int waves, const std::string& splits) {
    text += fmt::format("most_{} = {}; ", waves, splits);
    text += fmt::format(
        "turns_{0} = (blocks * most_{0} + multiprocessors - 1) // multiprocessors; ", waves);
    const std::string key =
        spec.page_size ? fmt::format("where(turns_{} == 1, {}, {})", waves, of_lone_key, of_key)
                       : std::to_string(of_key);
    text += fmt::format(
        "cost_{0} = turns_{0} * ((shares + most_{0} - 1) // most_{0} * {1} * {2} + {3}) + most_{0} "
        "* {4}; ",
        waves, keys_of_splits, key, of_block, of_split);
  };
  try_splits(0, "1");
  std::string best = "most_0", least = "cost_0";
  for (const int waves : waves_tried) {
    try_splits(waves, fmt::format("max(1, min(shares, {} * multiprocessors // blocks))", waves));
    text += fmt::format("best_{0} = where(cost_{0} < {1}, most_{0}, {2}); ", waves, least, best);
    text += fmt::format("least_{0} = min(cost_{0}, {1}); ", waves, least);
    best = fmt::format("best_{}", waves);
    least = fmt::format("least_{}", waves);
  }
  return text + best;
}

}  // namespace flashcore
