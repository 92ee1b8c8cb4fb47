#include "templates/schedules/measured_columns.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "templates/schedules/schedule_parts.h"

namespace flashcore {
namespace {

using Json = nlohmann::ordered_json;
using Words = std::set<std::string>;

constexpr int step = 16;  // columns of head_dim that have a number in common
constexpr int no_limit = std::numeric_limits<int>::max();

Words words_of(const SpecTraits& traits, const Schedule& block) {
  const AttentionSpec& spec = traits.spec;
  const MaskTraits& mask = traits.mask;
  const ScoreTraits& score = traits.score;
  const bool plain = spec.score.text.empty();
  const bool computed = !plain && !score.softcap && !score.looks_up && score.loaded_elements == 0;
  Words words{std::to_string(block.tiles.at("rows"))};
  const auto add_where = [&](bool holds, const char* word) {
    if (holds) words.insert(word);
  };
  add_where(block.multicast_blocks == 1, "alone");
  add_where(block.blocks_per_processor == 3, "three_blocks");
  add_where(block.ping_pong, "ping_pong");
  add_where(block.tile_scheduler == PersistentScheduler::dynamic, "dynamic");
  add_where(block.positions_per_block == 2, "two_heads");
  words.insert(mask.is_full() ? "full" : "masked");
  add_where(mask.bounds_loop(), "bounded");
  add_where(!mask.is_full() && !mask.bounds_loop(), "scan");
  add_where(mask.several(), "several");
  add_where(mask.looks_up(), "documents");
  add_where(mask.divides(), "chunks");
  add_where(mask.loaded_elements() > 0, "dense_mask");
  add_where(plain, "plain");
  add_where(score.softcap, "softcap");
  add_where(score.softcap && spec.dtype == DType::f16, "softcap_with_maximum");
  add_where(score.looks_up, "lookups");
  add_where(computed, "positions");
  add_where(score.loaded_elements + mask.loaded_elements() > 0, "loads");
  add_where(spec.lse, "lse");
  words.insert(traits.ragged ? "ragged" : "open");
  add_where(spec.q_lens, "own_rows");
  return words;
}

struct Row {
  Words words;
  std::vector<int> columns;  ///< for every `step` columns of head_dim
};

std::vector<std::string> split(const std::string& text) {
  std::istringstream in(text);
  using Reader = std::istream_iterator<std::string>;
  return std::vector<std::string>(Reader(in), Reader());
}

std::vector<Row> read_rows() {
  const Json table = Json::parse(shipped_columns());
  std::vector<Row> rows;
  for (const auto& [name, text] : table["most_columns"].items()) {
    const std::vector<std::string> words = split(name);
    Row& row = rows.emplace_back(Row{.words = {words.begin(), words.end()}});
    for (const std::string& cell : split(text.get<std::string>()))
      row.columns.push_back(cell == "-" ? 0 : cell == "." ? no_limit : std::stoi(cell));
  }
  return rows;
}

}  // namespace

int most_columns(const SpecTraits& traits, const Schedule& block) {
  static const std::vector<Row> rows = read_rows();
  const Words words = words_of(traits, block);
  int most = no_limit;
  for (const Row& row : rows) {
    if (!std::ranges::includes(words, row.words)) continue;
    const auto at = static_cast<std::size_t>((widest(traits.spec) - 1) / step);
    most = std::min(most, row.columns[std::min(at, row.columns.size() - 1)]);
  }
  return most;
}

}  // namespace flashcore
