#include "templates/decode_choice.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "templates/decode_plan.h"

namespace flashcore {
namespace {

const char* name_of(DecodeRows rows) {
  if (rows == DecodeRows::packed) return "packed";
  return rows == DecodeRows::of_head ? "of one head" : "packed in registers";
}

/// What the schedule of attention_forward_of_long is chosen for. The host does not know how many sequences are
/// long; a persistent kernel, which is chosen for many, has no blocks for tiles that do not exist.
constexpr AttentionProblem many_long{.batch = 64, .heads = 32, .q_len = 2048, .kv_len = 4096};
/// Sequences of so many rows still have splits, as in speculative decoding.
constexpr int rows_beside_long = 4;

/// The smallest tile that has room for so many rows, and the largest for more.
int packed_tile(std::int64_t rows) { return rows <= 16 ? 16 : rows <= 32 ? 32 : most_decode_rows; }

}  // namespace

DecodeChooser::DecodeChooser(AttentionSpec spec, const Target& target,
                             std::optional<CostModel> model)
    : spec_(std::move(spec)),
      target_(target),
      model_(model ? std::move(model) : CostModel::find(target.name)),
      range_(spec_) {
  const auto add = [&](const DecodeBlocks& blocks) {
    ways_.push_back({blocks, split_costs(spec_, blocks, this->model())});
  };
  for (const int tile : {16, 32, most_decode_rows}) {
    add({DecodeRows::packed, tile, spec_.packed()});
    if (spec_.kv_lens || spec_.packed()) add({.row_tile = tile, .balances = true});
  }
  if (spec_.packed())
    add({.row_tile = packed_tile(rows_beside_long * spec_.group()),
         .balances = true,
         .skips_long = true});
  if (!target.wgmma) return;
  const int widest = std::max(spec_.head_dim, spec_.value_dim());
  for (const bool combines_tiles : {false, true}) {
    if (spec_.packed() && !combines_tiles) continue;
    for (const int tile : {64, 128}) add({DecodeRows::of_head, tile, combines_tiles});
    // The query of wider heads leaves too few registers, and that of one head needs none.
    if (spec_.group() > 1 && widest <= 128)
      add({DecodeRows::packed_in_registers, 128, combines_tiles});
  }
}

/// Few rows come in tiles that are packed and copied to shared memory, others by wgmma.
bool DecodeChooser::can_have(const DecodeBlocks& blocks, const AttentionProblem& problem) const {
  const int group = spec_.group();
  const bool balances = balances_splits(spec_, problem, model());
  const std::int64_t rows =
      (balances && spec_.packed() ? problem.longest_q_len : problem.q_len) * group;
  const bool are_copied =
      !target_.wgmma || rows <= (group > 1 ? most_decode_rows : most_decode_rows / 2);
  if (blocks.rows != DecodeRows::packed) return !are_copied;
  if (blocks.balances != balances || blocks.skips_long) return false;
  return are_copied && blocks.row_tile == packed_tile(rows);
}

std::optional<DecodeChooser::Mixed> DecodeChooser::as_mixed(const AttentionProblem& problem) const {
  const std::int64_t longest = problem.longest_q_len;
  if (!spec_.packed() || longest <= most_decode_rows / spec_.group()) return std::nullopt;
  // Where the spec fixes one of these, a prediction is for all sequences, and not for a part of them.
  if (spec_.batch || spec_.q_len) return std::nullopt;
  const std::int64_t further_rows = problem.batch * (problem.q_len - 1);
  // The nearest whole number: the mean that is known is rounded up.
  const std::int64_t each = longest - 1;
  const std::int64_t long_ones = std::max<std::int64_t>(1, (further_rows + each / 2) / each);
  const std::int64_t of_one_row = problem.batch - long_ones;
  if (of_one_row < long_ones) return std::nullopt;
  Mixed mixed{problem, problem};
  mixed.long_ones.batch = long_ones, mixed.long_ones.q_len = longest;
  mixed.of_one_row.batch = of_one_row;
  mixed.of_one_row.q_len = mixed.of_one_row.longest_q_len = 1;
  if (!balances_splits(spec_, mixed.of_one_row, model())) return std::nullopt;
  // Of pages only the room that each sequence has is known.
  if (spec_.paged() || !problem.kv_len) return mixed;
  // A long sequence has no fewer keys than rows: of prompts alone none are left for the others.
  mixed.long_ones.kv_len = std::max(problem.kv_len, longest);
  const std::int64_t others = problem.batch * problem.kv_len - long_ones * mixed.long_ones.kv_len;
  mixed.of_one_row.kv_len = std::max<std::int64_t>(0, others) / of_one_row;
  return mixed.of_one_row.kv_len < least_keys() ? std::nullopt : std::optional(mixed);
}

DecodeChooser::MixedCost DecodeChooser::predict_mixed(const Mixed& mixed,
                                                      std::int64_t multiprocessors,
                                                      const ScheduleChooser* whole) const {
  const ScheduleChooser& chooser = chooser_of_whole(whole);
  double long_us = chooser.predict_us(mixed.long_ones, chooser.choose(many_long));
  if (long_us == infinite) long_us = whole_us(mixed.long_ones, multiprocessors, whole);
  const double one_row_us = whole_us(mixed.of_one_row, multiprocessors, whole);
  // In one kernel, each part leaves the other one the multiprocessors that it has no tiles for.
  const auto busy = [&](const AttentionProblem& part) {
    const std::int64_t tiles = part.batch * part.heads * quotient_up(part.q_len, 128);
    return std::min(1., static_cast<double>(tiles) / static_cast<double>(multiprocessors));
  };
  const double together = long_us * busy(mixed.long_ones) + one_row_us * busy(mixed.of_one_row);
  return {fastest(mixed.of_one_row, multiprocessors).us + long_us,
          std::max({long_us, one_row_us, together})};
}

std::vector<DecodeBlocks> DecodeChooser::reachable(const LengthRange& batch,
                                                   const LengthRange& q_len) const {
  // Calls of more rows than a packed tile has can have the same.
  const std::int64_t last = std::min<std::int64_t>(q_len.most, most_decode_rows + 1);
  std::vector<DecodeBlocks> found;
  for (const Way& way : ways_) {
    // Lengths of packed sequences are means: any of them may be long.
    constexpr std::int64_t any_length = std::numeric_limits<std::int32_t>::max();
    if (way.blocks.skips_long &&
        as_mixed({.batch = batch.most, .q_len = 1, .longest_q_len = any_length})) {
      found.push_back(way.blocks);
      continue;
    }
    const auto can = [&](std::int64_t rows) {
      for (const std::int64_t sequences : {batch.least, batch.most})
        for (const std::int64_t longest : {std::int64_t{0}, rows})
          if (can_have(way.blocks, {.batch = sequences, .q_len = rows, .longest_q_len = longest}))
            return true;
      return false;
    };
    std::int64_t rows = std::min(q_len.least, last);
    while (rows <= last && !can(rows)) ++rows;
    if (rows <= last) found.push_back(way.blocks);
  }
  return found;
}

template <class Visit>
void DecodeChooser::for_each_split(const AttentionProblem& problem, std::int64_t multiprocessors,
                                   double enough, const Visit& visit) const {
  for (const auto& [blocks, costs] : ways_) {
    // Most calls with their keys whole end before two programs would have begun.
    if (to_microseconds(costs.launch) >= enough || !can_have(blocks, problem)) continue;
    const CostedSplits<std::int64_t> best =
        decode_splits(decode_problem(spec_, blocks, problem, range_, multiprocessors), costs);
    visit(Split{blocks, best.splits, to_microseconds(best.cost)});
  }
}

DecodeChooser::Split DecodeChooser::fastest(const AttentionProblem& problem,
                                            std::int64_t multiprocessors, double enough) const {
  Split fastest;
  for_each_split(problem, multiprocessors, enough, [&](const Split& split) {
    if (split.us < fastest.us) fastest = split;
  });
  return fastest;
}

const ScheduleChooser& DecodeChooser::chooser_of_whole(const ScheduleChooser* whole) const {
  if (whole) return *whole;
  std::call_once(asked_, [&] { own_whole_.emplace(spec_, target_, "", model_); });
  return *own_whole_;
}

double DecodeChooser::whole_us(const AttentionProblem& problem, std::int64_t multiprocessors,
                               const ScheduleChooser* whole) const {
  if (model_) {
    const double us = chooser_of_whole(whole).predict_us(problem);
    if (us < infinite) return us;
  }
  // Nothing was measured for the target, or for kernels that copy keys row by row, as those of small
  // pages: one block for each head and tile of rows, which copies its keys as those of packed rows do,
  // and the launch of one program.
  const DecodeBlocks of_head{.rows = DecodeRows::of_head, .row_tile = most_decode_rows};
  SplitCosts costs = split_costs(spec_, {}, model());
  costs.launch /= 2;
  costs.split = costs.partial = costs.row = 0;
  return to_microseconds(
      cost_of_splits(decode_problem(spec_, of_head, problem, range_, multiprocessors), costs, 1));
}

bool DecodeChooser::is_considered(const AttentionProblem& problem,
                                  std::int64_t multiprocessors) const {
  if (std::min(problem.kv_len, range_.count(problem.q_len, problem.kv_len)) < least_keys())
    return false;
  if (!target_.wgmma && spec_.group() * problem.q_len > most_decode_rows) return false;
  const std::int64_t tiles = problem.batch * problem.heads * (problem.q_len / 128);
  return static_cast<double>(tiles) <
         model().properties.split_waves * static_cast<double>(multiprocessors);
}

std::optional<DecodeBlocks> DecodeChooser::choose(const AttentionProblem& problem,
                                                  std::int64_t multiprocessors,
                                                  const ScheduleChooser* whole) const {
  if (problem.kv_len < least_keys()) return std::nullopt;
  const std::array lengths{problem.batch,  problem.heads,         problem.q_len,
                           problem.kv_len, problem.longest_q_len, multiprocessors};
  // The place of the blocks; behind all of them where keys are left whole.
  const std::size_t place = remembered_.find(lengths, [&] {
    const ChoiceProperties& known = model().properties;
    const auto place_of = [&](const auto& wanted) {
      const auto found =
          std::ranges::find_if(ways_, [&](const Way& way) { return wanted(way.blocks); });
      return static_cast<std::size_t>(found - ways_.begin());
    };
    if (const std::optional<Mixed> mixed = as_mixed(problem)) {
      const MixedCost cost = predict_mixed(*mixed, multiprocessors, whole);
      if (cost.apart_us * (1 + known.split_gain) < cost.together_us)
        return place_of([](const DecodeBlocks& blocks) { return blocks.skips_long; });
    }
    if (!is_considered(problem, multiprocessors)) return ways_.size();
    const double gain =
        balances_splits(spec_, problem, model()) ? -known.balanced_allowance : known.split_gain;
    const double enough = whole_us(problem, multiprocessors, whole) / (1 + gain);
    const Split split = fastest(problem, multiprocessors, enough);
    // One split of the rows of a head is a kernel that leaves keys whole, and combines for nothing.
    const bool splits = split.splits > 1 || split.blocks.rows != DecodeRows::of_head;
    if (split.us >= enough || !splits) return ways_.size();
    return place_of([&](const DecodeBlocks& blocks) { return blocks == split.blocks; });
  });
  return place < ways_.size() ? std::optional(ways_[place].blocks) : std::nullopt;
}

std::string DecodeChooser::explain(const AttentionProblem& problem,
                                   std::int64_t multiprocessors) const {
  const std::optional<DecodeBlocks> chosen = choose(problem, multiprocessors);
  std::string text;
  if (const std::optional<Mixed> mixed = as_mixed(problem)) {
    const MixedCost cost = predict_mixed(*mixed, multiprocessors, nullptr);
    const bool apart = chosen && chosen->skips_long;
    text = fmt::format(
        "{} of {} sequences may have one query row: {:.1f} us if their keys are split and another "
        "kernel computes the long sequences{}, {:.1f} us if one kernel computes all\n",
        mixed->of_one_row.batch, problem.batch, cost.apart_us, apart ? " (chosen)" : "",
        cost.together_us);
    if (apart) return text;
  }
  if (!is_considered(problem, multiprocessors)) return text;
  text += fmt::format("keys are {}, whole {:.1f} us:\n", chosen ? "split" : "left whole",
                      whole_us(problem, multiprocessors));
  for_each_split(problem, multiprocessors, infinite, [&](const Split& split) {
    text += fmt::format("  {} splits, {} rows {}{}{}: {:.1f} us\n", split.splits,
                        split.blocks.row_tile, name_of(split.blocks.rows),
                        split.blocks.combines_tiles ? ", combined in tiles" : "",
                        split.blocks.balances ? ", balanced over sequences" : "", split.us);
  });
  return text;
}

Alternative attention_with_split_keys(const AttentionSpec& spec, const Target& target,
                                      const DecodeBlocks& blocks, const CostModel& model) {
  const DecodeSpec decode{.attention = spec,
                          .rows = blocks.rows,
                          .combines_tiles = blocks.combines_tiles,
                          .balances = blocks.balances,
                          .skips_long = blocks.skips_long};
  Alternative made{.module = attention_decode(decode, blocks.row_tile, model),
                   .schedules = {attention_decode_split_schedules(decode, target, blocks.row_tile),
                                 attention_decode_combine_schedules(decode, target)}};
  if (decode.balances)
    made.schedules.insert(made.schedules.begin(), attention_decode_plan_schedules(target));
  if (decode.skips_long) made.schedules.push_back(attention_schedules(spec, target, many_long));
  return made;
}

}  // namespace flashcore
