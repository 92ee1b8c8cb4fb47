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
/// What a block costs without a key, in keys: measured with a head_dim of 128 on an H200.
constexpr int keys_of_block = 64;

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
    const std::int64_t keys = up(shares, splits) * keys_of_splits + keys_of_block;
    return up(blocks * splits, processors) * keys + splits;
  };
  std::int64_t best = 1;
  for (const int waves : waves_tried) {
    const std::int64_t most = std::clamp<std::int64_t>(waves * processors / blocks, 1, shares);
    if (cost(most) < cost(best)) best = most;
  }
  return best;
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
  const auto cost = [](const std::string& splits) {
    return fmt::format(
        "((blocks * {0} + multiprocessors - 1) // multiprocessors) * "
        "(((shares + {0} - 1) // {0}) * {1} + {2}) + {0}",
        splits, keys_of_splits, keys_of_block);
  };
  text += fmt::format("best_0 = 1; least_0 = {}; ", cost("best_0"));
  int last = 0;
  for (const int waves : waves_tried) {
    text += fmt::format("most_{0} = max(1, min(shares, {0} * multiprocessors // blocks)); ", waves);
    text += fmt::format("cost_{} = {}; ", waves, cost(fmt::format("most_{}", waves)));
    text +=
        fmt::format("best_{0} = where(cost_{0} < least_{1}, most_{0}, best_{1}); ", waves, last);
    text += fmt::format("least_{0} = min(cost_{0}, least_{1}); ", waves, last);
    last = waves;
  }
  return text + fmt::format("best_{}", last);
}

}  // namespace flashcore
