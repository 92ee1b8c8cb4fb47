#include "templates/decode_choice.h"

#include <algorithm>
#include <array>
#include <limits>

#include <fmt/format.h>

namespace flashcore {
namespace {

const char* name_of(DecodeRows rows) {
  if (rows == DecodeRows::packed) return "packed";
  return rows == DecodeRows::of_head ? "of one head" : "packed in registers";
}

}  // namespace

DecodeChooser::DecodeChooser(const AttentionSpec& spec, const Target& target,
                             std::optional<CostModel> model)
    : spec_(spec),
      target_(target),
      model_(model ? std::move(model) : CostModel::find(target.name)),
      properties_((model_ ? *model_ : CostModel::first()).properties()),
      wgmma_(target.wgmma),
      range_(spec) {
  const auto add = [&](DecodeRows rows, int row_tile, bool combines_tiles) {
    const DecodeBlocks blocks{rows, row_tile, combines_tiles};
    ways_.push_back({blocks, split_costs(spec_, blocks, /*page_size=*/0,
                                         model_ ? *model_ : CostModel::first())});
  };
  for (const int tile : {16, 32, most_decode_rows}) add(DecodeRows::packed, tile, spec_.packed());
  if (!wgmma_) return;
  const int widest = std::max(spec.head_dim, spec.value_dim());
  for (const bool combines_tiles : {false, true}) {
    if (spec_.packed() && !combines_tiles) continue;
    for (const int tile : {64, 128}) add(DecodeRows::of_head, tile, combines_tiles);
    // The query of wider heads leaves too few registers, and that of one head needs none.
    if (spec_.group() > 1 && widest <= 128)
      add(DecodeRows::packed_in_registers, 128, combines_tiles);
  }
}

bool DecodeChooser::is_copied(std::int64_t q_len) const {
  const int group = spec_.group();
  return !wgmma_ || q_len * group <= (group > 1 ? most_decode_rows : most_decode_rows / 2);
}

bool DecodeChooser::can_have(const Way& way, std::int64_t q_len) const {
  if (way.blocks.rows != DecodeRows::packed) return !is_copied(q_len);
  if (!is_copied(q_len)) return false;
  const std::int64_t rows = q_len * spec_.group();
  return way.blocks.row_tile == (rows <= 16 ? 16 : rows <= 32 ? 32 : most_decode_rows);
}

DecodeProblem decode_problem(const AttentionSpec& spec, std::int64_t keys, const DecodeCall& call,
                             const DecodeBlocks& blocks, std::int64_t multiprocessors) {
  const bool packs = blocks.rows != DecodeRows::of_head;
  return {.batch = call.batch,
          .heads = packs ? call.kv_heads : call.heads,
          .row_tiles = quotient_up(call.q_len * (packs ? spec.group() : 1), blocks.row_tile),
          .keys = keys,
          .rows = call.batch * call.heads * call.q_len,
          .multiprocessors = std::max<std::int64_t>(1, multiprocessors)};
}

DecodeChooser::Estimate DecodeChooser::estimate(const DecodeCall& call, std::int64_t keys,
                                                std::size_t at,
                                                std::int64_t multiprocessors) const {
  const Way& way = ways_[at];
  const DecodeProblem problem = decode_problem(spec_, keys, call, way.blocks, multiprocessors);
  const CostedSplits best = decode_splits(problem, way.costs);
  return {at, best.splits, to_microseconds(best.cost)};
}

DecodeChooser::Estimate DecodeChooser::best(const DecodeCall& call, std::int64_t multiprocessors,
                                            double enough) const {
  Estimate least{.microseconds = std::numeric_limits<double>::infinity()};
  const std::int64_t keys = range_.count(call.q_len, call.kv_len);
  for (std::size_t i = 0; i < ways_.size(); ++i) {
    // Most calls with their keys whole end before two programs would have begun.
    if (to_microseconds(ways_[i].costs.launch) >= enough || !can_have(ways_[i], call.q_len))
      continue;
    const Estimate found = estimate(call, keys, i, multiprocessors);
    if (found.microseconds < least.microseconds) least = found;
  }
  return least;
}

DecodeBlocks DecodeChooser::blocks(const DecodeCall& call, std::int64_t multiprocessors) const {
  return ways_[best(call, multiprocessors).way].blocks;
}

std::vector<DecodeBlocks> DecodeChooser::reachable(std::int64_t least_rows,
                                                   std::int64_t most_rows) const {
  std::vector<DecodeBlocks> found;
  for (const Way& way : ways_) {
    // Calls of more rows than a packed tile has can have the same.
    const std::int64_t last = std::min<std::int64_t>(most_rows, most_decode_rows + 1);
    bool can = false;
    for (std::int64_t q_len = std::min(least_rows, last); q_len <= last && !can; ++q_len)
      can = can_have(way, q_len);
    if (can) found.push_back(way.blocks);
  }
  return found;
}

const ScheduleChooser& DecodeChooser::own_whole() const {
  std::call_once(asked_, [&] {
    whole_ = std::make_unique<const ScheduleChooser>(spec_, target_, "", model_);
  });
  return *whole_;
}

double DecodeChooser::whole_microseconds(const DecodeCall& call, std::int64_t multiprocessors,
                                         const ScheduleChooser* whole) const {
  if (model_)
    return (whole ? *whole : own_whole())
        .predict_us({call.batch, call.heads, call.q_len, call.kv_len});
  // Nothing was measured for the target: one block for each head and tile of rows, which copies its
  // keys as those of packed rows do, and the launch of one program.
  const CostModel& model = CostModel::first();
  const DecodeBlocks rows{.rows = DecodeRows::packed, .row_tile = most_decode_rows};
  DecodeProblem problem =
      decode_problem(spec_, range_.count(call.q_len, call.kv_len), call, rows, multiprocessors);
  problem.heads = call.heads;
  problem.row_tiles = quotient_up(call.q_len, rows.row_tile);
  SplitCosts costs = split_costs(spec_, {}, /*page_size=*/0, model);
  costs.launch /= 2;
  costs.split = costs.partial = costs.row = 0;
  return to_microseconds(cost_of_splits(problem, costs, 1));
}

bool DecodeChooser::is_considered(const DecodeCall& call, std::int64_t multiprocessors) const {
  if (std::min(call.kv_len, range_.count(call.q_len, call.kv_len)) < least_keys()) return false;
  if (!wgmma_ && spec_.group() * call.q_len > most_decode_rows) return false;
  const std::int64_t tiles = call.batch * call.heads * (call.q_len / 128);
  return static_cast<double>(tiles) <
         properties_.split_waves * static_cast<double>(multiprocessors);
}

std::optional<std::size_t> DecodeChooser::way_that_pays(const DecodeCall& call,
                                                        std::int64_t multiprocessors,
                                                        const ScheduleChooser* whole) const {
  const double enough =
      whole_microseconds(call, multiprocessors, whole) / (1 + properties_.split_gain);
  const Estimate split = best(call, multiprocessors, enough);
  return split.microseconds < enough ? std::optional(split.way) : std::nullopt;
}

std::optional<DecodeBlocks> DecodeChooser::choose(const DecodeCall& call,
                                                  std::int64_t multiprocessors,
                                                  const ScheduleChooser* whole) const {
  if (call.kv_len < least_keys()) return std::nullopt;
  const std::array lengths{call.batch, call.heads,  call.kv_heads,
                           call.q_len, call.kv_len, multiprocessors};
  // One more than the place of the blocks; 0: keys are left whole.
  const std::size_t number = remembered_.find(lengths, [&]() -> std::size_t {
    if (!is_considered(call, multiprocessors)) return 0;
    const std::optional<std::size_t> way = way_that_pays(call, multiprocessors, whole);
    return way ? *way + 1 : 0;
  });
  return number == 0 ? std::nullopt : std::optional(ways_[number - 1].blocks);
}

std::string DecodeChooser::explain(const DecodeCall& call, std::int64_t multiprocessors) const {
  if (!is_considered(call, multiprocessors)) return "";
  const bool splits = way_that_pays(call, multiprocessors, nullptr).has_value();
  std::string text = fmt::format("keys are {}, whole {:.1f} us:\n", splits ? "split" : "left whole",
                                 whole_microseconds(call, multiprocessors));
  for (std::size_t i = 0; i < ways_.size(); ++i) {
    const DecodeBlocks& blocks = ways_[i].blocks;
    if (!can_have(ways_[i], call.q_len)) continue;
    const Estimate found =
        estimate(call, range_.count(call.q_len, call.kv_len), i, multiprocessors);
    text += fmt::format("  {} splits, {} rows {}{}: {:.1f} us\n", found.splits, blocks.row_tile,
                        name_of(blocks.rows), blocks.combines_tiles ? ", combined in tiles" : "",
                        found.microseconds);
  }
  return text;
}

}  // namespace flashcore
