#include "templates/schedule_chooser.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include <fmt/format.h>

#include "dsl/error.h"
#include "dsl/inline_list.h"
#include "templates/schedules/schedule_lists.h"

namespace flashcore {
namespace {

/// What tells a schedule from the other candidates of its spec.
std::string in_words(const Schedule& s) {
  std::string text = fmt::format("{} x {}", s.tiles.at("rows"), s.tiles.at("cols"));
  if (s.ping_pong) text += ", ping-pong";
  if (!s.producer) text += ", no producer";
  if (s.producer_warps > 1) text += ", two producer warps";
  if (s.blocks_per_processor > 1)
    text += fmt::format(", {} blocks a multiprocessor", s.blocks_per_processor);
  if (s.cluster_splits > 1) text += fmt::format(", keys split over {} blocks", s.cluster_splits);
  if (s.multicast_blocks > 1) text += fmt::format(", multicast to {} blocks", s.multicast_blocks);
  if (s.positions_per_block > 1) text += fmt::format(", {} heads a block", s.positions_per_block);
  if (s.persistent)
    text += fmt::format(", persistent, {} scheduler, {}", name_of(s.tile_scheduler),
                        name_of(s.grid_order));
  return text;
}

std::array<std::int64_t, 4> numbers_of(const AttentionProblem& problem) {
  return {problem.batch, problem.heads, problem.q_len, problem.kv_len};
}

/// Where a size is not known: enough for many waves of long blocks.
AttentionProblem assumed(const AttentionProblem& problem) {
  const auto known = [](std::int64_t number, std::int64_t otherwise) {
    return number > 0 ? number : otherwise;
  };
  return {.batch = known(problem.batch, 8),
          .heads = known(problem.heads, 16),
          .q_len = known(problem.q_len, 4096),
          .kv_len = known(problem.kv_len, known(problem.q_len, 4096))};
}

/// Of packed sequences whose lengths differ, sequences of one length that take about as long. Most of the
/// work is in the long ones, so their mean says too little: if each length counts by its rows, lengths
/// have a mean of about halfway between that mean and the longest. Of chunks of prompts, which have other
/// numbers of keys than of rows, the longest says nothing about the keys.
AttentionProblem with_one_length(const AttentionProblem& problem) {
  AttentionProblem same = problem;
  same.longest_q_len = 0;
  if (problem.longest_q_len <= problem.q_len || problem.q_len != problem.kv_len) return same;
  const std::int64_t length = (problem.q_len + problem.longest_q_len) / 2;
  same.q_len = same.kv_len = length;
  same.batch = std::max<std::int64_t>(1, (problem.batch * problem.q_len + length / 2) / length);
  return same;
}

/// Problems of every kind: few heads and many, short sequences and long ones, more keys than query
/// rows. A spec that has heads gets many by its batch.
std::vector<AttentionProblem> sample_problems(const AttentionSpec& spec) {
  std::vector<AttentionProblem> problems;
  for (const std::int64_t heads : {1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024})
    for (const std::int64_t q_len : {1, 64, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 16384})
      for (const std::int64_t keys : {1, 4, 16})
        problems.push_back(as_fixed_by(
            spec, AttentionProblem{
                      .batch = std::max<std::int64_t>(1, spec.heads ? heads / spec.heads : 1),
                      .heads = heads,
                      .q_len = q_len,
                      .kv_len = q_len * keys}));
  return problems;
}

/// As few candidates as leave no sampled problem far from its best one: each of them is a kernel to
/// compile. `times` are those of a problem for all candidates. The result is sorted.
std::vector<std::size_t> pick_portfolio(const std::vector<std::vector<double>>& times) {
  constexpr double most_loss = 0.01;
  std::vector<std::size_t> picked;
  std::vector<double> best, so_far(times.size(), std::numeric_limits<double>::infinity());
  for (const std::vector<double>& of_problem : times) best.push_back(std::ranges::min(of_problem));
  const auto loss_with = [&](std::size_t candidate) {
    double sum = 0, most = 0;
    for (std::size_t i = 0; i < times.size(); ++i) {
      if (std::isinf(best[i])) continue;  // a problem that no candidate has a time for
      const double loss = std::min(times[i][candidate], so_far[i]) / best[i] - 1;
      sum += std::min(loss, 1.0);
      most = std::max(most, loss);
    }
    return std::pair(sum / static_cast<double>(times.size()), most);
  };
  for (std::pair loss(1.0, 1.0); loss.second > most_loss;) {
    std::size_t next = 0;
    std::pair least(std::numeric_limits<double>::infinity(), 0.0);
    for (std::size_t c = 0; c < times.front().size(); ++c)
      if (const std::pair with = loss_with(c); with.first < least.first) least = with, next = c;
    if (!picked.empty() && least.first >= loss.first) break;
    loss = least;
    picked.push_back(next);
    for (std::size_t i = 0; i < times.size(); ++i) so_far[i] = std::min(so_far[i], times[i][next]);
  }
  std::ranges::sort(picked);
  return picked;
}

}  // namespace

ScheduleChooser::ScheduleChooser(AttentionSpec spec, const Target& target, std::string_view winners,
                                 std::optional<CostModel> model)
    : traits_(std::move(spec)),
      fixed_(as_fixed_by(traits_.spec, AttentionProblem{})),
      model_(model ? std::move(model) : CostModel::find(target.name)) {
  const AttentionSpec& own = traits_.spec;
  const std::array<const char*, 4> names{"B", "H", own.packed() ? "Tq" : "Sq",
                                         own.paged()    ? "max_pages"
                                         : own.packed() ? "Tk"
                                                        : "Sk"};
  for (std::size_t i = 0; i < names.size(); ++i)
    if (numbers_of(fixed_)[i] == 0) extents_.emplace_back(names[i]);
  if (own.packed()) extents_.emplace_back("max_q_len");
  add_candidates(target);
  add_table(Winners::of(winners, traits_.spec, target, multiprocessors(model_)));
  add_table(Winners::shipped(traits_.spec, target, multiprocessors(model_)));
}

void ScheduleChooser::add_candidates(const Target& target) {
  const std::vector<std::vector<Schedule>> lists = schedule_lists(traits_, target);
  if (lists.size() == 1 || !model_) {
    lists_.push_back(lists.front());
    return;
  }
  std::vector<CostedSchedule> costed;
  for (const std::vector<Schedule>& list : lists)
    costed.emplace_back(traits_, list.front(), *model_);
  std::vector<std::vector<double>> times;
  for (const AttentionProblem& problem : sample_problems(traits_.spec)) {
    std::vector<double>& row = times.emplace_back();
    for (const CostedSchedule& cost : costed)
      row.push_back(cost.time_us(problem, traits_.mask.visible_keys(problem, cost.row_tiles())));
  }
  for (const std::size_t picked : pick_portfolio(times)) {
    const RowTiles tiles = costed[picked].row_tiles();
    const auto known = std::ranges::find(row_tiles_, tiles);
    const auto place = static_cast<std::size_t>(known - row_tiles_.begin());
    if (known == row_tiles_.end()) row_tiles_.push_back(tiles);
    candidates_.push_back({number_of(lists[picked]), place, costed[picked]});
  }
  if (candidates_.size() > most_candidates || row_tiles_.size() > most_row_tiles)
    throw InternalError("more candidates than a choice has room for");
}

void ScheduleChooser::add_table(Winners winners) {
  for (Winner& winner : winners.all) {
    std::vector<Schedule> list =
        lists_.at(find_fastest(as_fixed_by(traits_.spec, winner.largest_problem())));
    list.insert(list.begin(), winner.schedule);
    winner.list = number_of(std::move(list));
  }
  tables_.push_back(std::move(winners));
}

std::size_t ScheduleChooser::number_of(std::vector<Schedule> list) {
  // Its first schedule is what a list is chosen for; another list with it would compile it twice.
  const auto first = [](const std::vector<Schedule>& one) -> const Schedule& {
    return one.front();
  };
  const auto known = std::ranges::find(lists_, list.front(), first);
  if (known != lists_.end()) return static_cast<std::size_t>(known - lists_.begin());
  lists_.push_back(std::move(list));
  return lists_.size() - 1;
}

std::size_t ScheduleChooser::find_winner(const AttentionProblem& problem) const {
  for (const Winners& table : tables_)
    if (const std::size_t winner = table.find(problem); winner < table.all.size())
      return table.all[winner].list;
  return unknown;
}

// Most candidates are so far from the fastest that a bound tells: the one with the least bound is
// predicted first, and then those that may come near it.
ScheduleChooser::Prediction ScheduleChooser::predict(const AttentionProblem& given) const {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  if (candidates_.empty()) return {.list = 0, .us = infinite};
  const AttentionProblem problem = assumed(given);
  InlineList<VisibleKeys, most_row_tiles> of_tiles;
  for (const RowTiles tiles : row_tiles_)
    of_tiles.push_made([&] { return traits_.mask.visible_keys(problem, tiles); });
  const std::span<const VisibleKeys> visible = of_tiles.span();
  std::array<double, most_candidates> times;
  std::size_t likely = 0;
  double least = infinite;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& candidate = candidates_[i];
    times[i] = candidate.cost.least_us(problem, visible[candidate.row_tiles]);
    if (times[i] < least) likely = i;
    least = std::min(least, times[i]);
  }
  // Of candidates that come out alike the earlier ones do well for more problems.
  const double enough = 1 / (1 - model_->properties.tie_share);
  double best = infinite;
  const auto predict_one = [&](std::size_t i) {
    const Candidate& candidate = candidates_[i];
    times[i] = candidate.cost.time_us(problem, visible[candidate.row_tiles], enough * best);
    best = std::min(best, times[i]);
  };
  predict_one(likely);
  for (std::size_t i = 0; i < candidates_.size(); ++i)
    if (i != likely && times[i] < enough * best) predict_one(i);
  std::size_t first = 0;
  while (first < candidates_.size() && times[first] > enough * best) ++first;
  if (best == infinite) first = 0;  // none has a time
  return {.list = candidates_[first].list, .us = times[first]};
}

AttentionProblem ScheduleChooser::comparable(const AttentionProblem& given) const {
  return with_one_length(as_fixed_by(traits_.spec, given));
}

std::size_t ScheduleChooser::choose(const AttentionProblem& given) const {
  const AttentionProblem problem = comparable(given);
  const std::size_t winner = find_winner(problem);
  return winner != unknown ? winner : find_fastest(problem);
}

double ScheduleChooser::predict_us(const AttentionProblem& given) const {
  const AttentionProblem problem = comparable(given);
  const Prediction fastest = predict(problem);
  const std::size_t winner = find_winner(problem);
  remembered_.keep(numbers_of(problem), winner != unknown ? winner : fastest.list);
  return fastest.us;
}

double ScheduleChooser::predict_us(const AttentionProblem& given, std::size_t list) const {
  const AttentionProblem problem = assumed(comparable(given));
  const auto found = std::ranges::find(candidates_, list, &Candidate::list);
  if (found == candidates_.end()) return std::numeric_limits<double>::infinity();
  const CostedSchedule& cost = found->cost;
  return cost.time_us(problem, traits_.mask.visible_keys(problem, cost.row_tiles()));
}

std::vector<std::size_t> ScheduleChooser::choose_all(const AttentionProblems& given) const {
  AttentionProblems problems = as_fixed_by(traits_.spec, given);
  // Packed sequences that differ in length are predicted as fewer, longer ones.
  if (traits_.spec.packed()) problems.batch.least = std::min<std::int64_t>(problems.batch.least, 1);
  std::vector<std::size_t> numbers{choose(AttentionProblem{})};
  const auto add = [&](std::size_t number) {
    if (std::ranges::find(numbers, number) == numbers.end()) numbers.push_back(number);
  };
  constexpr double most_enumerated = 2048;
  const auto count = [](const LengthRange& r) { return static_cast<double>(r.most - r.least + 1); };
  if (count(problems.batch) * count(problems.heads) * count(problems.q_len) *
          count(problems.kv_len) <=
      most_enumerated) {
    for (std::int64_t b = problems.batch.least; b <= problems.batch.most; ++b)
      for (std::int64_t h = problems.heads.least; h <= problems.heads.most; ++h)
        for (std::int64_t q = problems.q_len.least; q <= problems.q_len.most; ++q)
          for (std::int64_t k = problems.kv_len.least; k <= problems.kv_len.most; ++k)
            add(choose(AttentionProblem{b, h, q, k}));
    return numbers;
  }
  for (const Candidate& candidate : candidates_) add(candidate.list);
  for (const Winners& table : tables_)
    for (const Winner& winner : table.all)
      if (winner.may_be_for(problems)) add(winner.list);
  return numbers;
}

// Of two lengths with one hash the second gets the list of the first: a kernel that computes any
// lengths, if not the fastest.
std::size_t ScheduleChooser::find(std::span<const std::int64_t> lengths) const {
  const AttentionProblem problem = with_one_length(problem_of(lengths));
  return remembered_.find(numbers_of(problem), [&] { return choose(problem); });
}

AttentionProblem ScheduleChooser::problem_of(std::span<const std::int64_t> lengths) const {
  AttentionProblem problem = fixed_;
  auto length = lengths.begin();
  for (std::int64_t* number : {&problem.batch, &problem.heads, &problem.q_len, &problem.kv_len})
    if (*number == 0) *number = *length++;
  if (traits_.spec.packed()) {
    const std::int64_t sequences = std::max<std::int64_t>(problem.batch, 1);
    // Where nobody says how long the longest sequence is, it is as long as all of them.
    if (sequences == 1 || *length < problem.q_len) problem.longest_q_len = *length;
    problem.q_len = (problem.q_len + sequences - 1) / sequences;
    if (!traits_.spec.paged()) problem.kv_len = (problem.kv_len + sequences - 1) / sequences;
  }
  if (traits_.spec.paged()) problem.kv_len *= traits_.spec.page_size;
  return problem;
}

std::string ScheduleChooser::describe(std::span<const std::int64_t> lengths) const {
  const AttentionProblem problem = problem_of(lengths);
  return fmt::format("{} query rows and {} keys", problem.q_len, problem.kv_len);
}

std::string ScheduleChooser::preparation(std::span<const std::int64_t> lengths) const {
  const AttentionProblem problem = with_one_length(problem_of(lengths));
  return fmt::format("kernel.prepare(lengths={}, q_lengths={})", problem.kv_len, problem.q_len);
}

std::string ScheduleChooser::explain(const AttentionProblem& given) const {
  const AttentionProblem fixed = comparable(given), problem = assumed(fixed);
  std::string text = fmt::format("schedules for batch {}, {} heads, {} query rows and {} keys",
                                 problem.batch, problem.heads, problem.q_len, problem.kv_len);
  if (fixed.q_len != given.q_len && given.longest_q_len > given.q_len)
    text += fmt::format(", which take about as long as the {} packed sequences of up to {} rows",
                        given.batch, given.longest_q_len);
  const std::size_t winner = find_winner(fixed);
  if (candidates_.empty()) return text + ": one for all problems\n";
  text += fmt::format(", predicted for {} with coefficients of {}:\n", model_->gpu.name,
                      model_->measured_on);
  if (winner != unknown)
    text += fmt::format("  {}: won a measured search\n", in_words(lists_[winner].front()));
  std::multimap<double, std::string> lines;
  for (const Candidate& candidate : candidates_) {
    const VisibleKeys visible = traits_.mask.visible_keys(problem, candidate.cost.row_tiles());
    const double us = candidate.cost.time_us(problem, visible);
    lines.emplace(us, fmt::format("  {}: {:.1f} us, {}\n", in_words(lists_[candidate.list].front()),
                                  us, candidate.cost.describe(problem, visible)));
  }
  for (const auto& [us, line] : lines) text += line;
  return text;
}

}  // namespace flashcore
