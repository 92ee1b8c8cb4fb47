#include "templates/attention_winners.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cstdint>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dsl/error.h"
#include "dsl/json.h"

namespace flashcore {
namespace {

using Json = nlohmann::ordered_json;
/// What an entry says of the problems that it is for. A length is the power of two that theirs does
/// not exceed.
struct Winner {
  std::optional<std::int64_t> q_len, kv_len;
  std::string blocks;
  Schedule schedule;
};
struct Winners {
  std::map<std::string, std::vector<Winner>> by_kind;  ///< by the fields that ask for no problem
  std::vector<std::string> unusable;                   ///< why an entry is left aside
};

constexpr bool keep_numbers = true;

bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
bool in_number(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '.'; }

/// The expression without what differs between uses of one kind of attention: what a caller's
/// tensors are called and, unless they are kept, numbers.
std::string form_of(const Expression& expression, bool numbers) {
  const std::string& text = expression.text;
  std::string form;
  for (std::size_t at = 0; at < text.size();) {
    const char first = text[at];
    const bool digit = std::isdigit(static_cast<unsigned char>(first)) != 0;
    if (!in_name(first)) {
      form += text[at++];
      continue;
    }
    std::size_t end = at;
    while (end < text.size() && (digit ? in_number(text[end]) : in_name(text[end]))) {
      // The sign of an exponent, as in 1e-05.
      const bool exponent = digit && (text[end] == 'e' || text[end] == 'E');
      ++end;
      if (exponent && end < text.size() && (text[end] == '-' || text[end] == '+')) ++end;
    }
    const std::string_view word = std::string_view(text).substr(at, end - at);
    at = end;
    const auto tensor =
        std::find_if(expression.tensors.begin(), expression.tensors.end(),
                     [&](const Captured& captured) { return captured.name == word; });
    if (digit && !numbers) {
      form += '#';
    } else if (tensor != expression.tensors.end()) {
      form += fmt::format("t{}", tensor - expression.tensors.begin());
    } else {
      form += word;
    }
  }
  return form;
}

std::string mask_class(const Mask& mask) {
  if (mask.is_full()) return "full";
  for (const Align align : {Align::bottom_right, Align::top_left})
    if (mask == causal(align)) return "causal";
  return form_of(mask, keep_numbers);
}

Json length_class(std::int64_t length) {
  if (length <= 0) return nullptr;
  return std::bit_ceil(static_cast<std::uint64_t>(length));
}

constexpr int multiprocessors = 132;
constexpr int block_rows = 128;

/// How full the last wave of blocks of 128 rows is matters most if there are few waves.
std::string_view block_class(ProblemQuestions& problem) {
  if (!problem.knows_rows() || problem.blocks_below(block_rows, 1)) return "many";
  if (problem.blocks_below(block_rows, multiprocessors)) return "few";
  return problem.blocks_below(block_rows, 4. * multiprocessors) ? "some" : "many";
}

/// The fields of a key in their order, with the values of plain full attention.
Json plain_key() {
  return {{"target", ""},      {"head_dim", 0},   {"head_dim_v", nullptr}, {"mask", "full"},
          {"score", ""},       {"sink", ""},      {"lengths", "open"},     {"q_len", nullptr},
          {"kv_len", nullptr}, {"blocks", "many"}};
}

/// A key that says nothing of the problem.
Json without_problem(Json key) {
  for (const char* field : {"q_len", "kv_len", "blocks"}) key[field] = nullptr;
  return key;
}

Json kind_of(const AttentionSpec& spec, const Target& target) {
  Json key = plain_key();
  key["target"] = target.name;
  key["head_dim"] = spec.stored_dim();
  key["head_dim_v"] = spec.stored_value_dim();
  key["mask"] = mask_class(spec.mask);
  key["score"] = form_of(spec.score, !keep_numbers);
  key["sink"] = form_of(spec.sink, !keep_numbers);
  if (spec.dtype == DType::f32) key["products"] = name_of(spec.products);
  key["lengths"] = spec.packed() ? "packed" : spec.q_lens || spec.kv_lens ? "padded" : "open";
  return without_problem(std::move(key));
}

Json key_of(const AttentionSpec& spec, const Target& target, const AttentionProblem& given) {
  const AttentionProblem problem = as_fixed_by(spec, given);
  KnownProblem questions(problem);
  Json key = kind_of(spec, target);
  key["q_len"] = length_class(problem.q_len);
  key["kv_len"] = length_class(problem.kv_len);
  key["blocks"] = block_class(questions);
  return key;
}

[[noreturn]] void refuse(std::string why) {
  throw ScheduleError(
      {.what = "cannot read a table of winning schedules",
       .why = std::move(why),
       .fix =
           "it is an array of objects with target, head_dim and schedule; python -m flashcore.tune "
           "--write makes one",
       .where = {}});
}

std::optional<std::int64_t> length_of(const Json& field) {
  return field.is_number_integer() ? std::optional(field.get<std::int64_t>()) : std::nullopt;
}

void add(Winners& winners, Json key, Schedule schedule) {
  Winner winner{.q_len = length_of(key["q_len"]),
                .kv_len = length_of(key["kv_len"]),
                .blocks = key["blocks"].is_string() ? key["blocks"].get<std::string>() : "",
                .schedule = std::move(schedule)};
  std::vector<Winner>& alike = winners.by_kind[without_problem(std::move(key)).dump()];
  const auto is_same = [&](const Winner& other) {
    return other.q_len == winner.q_len && other.kv_len == winner.kv_len &&
           other.blocks == winner.blocks;
  };
  std::erase_if(alike, is_same);
  alike.push_back(std::move(winner));
}

Winners read_table(std::string_view text) {
  if (too_deep_for_json(text))
    refuse(fmt::format("its brackets nest more than {} deep", deepest_json));
  const Json table = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!table.is_array()) refuse("it is not a JSON array");
  Winners winners;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const Json& entry = table[i];
    const auto missing = [&](const char* field) {
      return !entry.is_object() || !entry.contains(field);
    };
    constexpr std::array needed{"target", "head_dim", "schedule"};
    if (const auto lacks = std::find_if(needed.begin(), needed.end(), missing);
        lacks != needed.end()) {
      winners.unusable.push_back(fmt::format("entry {} has no {}", i, *lacks));
      continue;
    }
    Json key = plain_key();
    for (auto& [name, value] : key.items())
      if (entry.contains(name)) value = entry[name];
    if (entry.contains("products")) key["products"] = entry["products"];
    if (key["head_dim_v"].is_null()) key["head_dim_v"] = key["head_dim"];
    try {
      add(winners, std::move(key), schedule_from_json(entry["schedule"].dump()));
    } catch (const ScheduleError& error) {
      const Complaint& c = error.complaint();
      winners.unusable.push_back(fmt::format("entry {}: {}: {}", i, c.what, c.why));
    }
  }
  return winners;
}

std::optional<Schedule> find(const Winners& winners, const AttentionSpec& spec,
                             const Target& target, ProblemQuestions& problem) {
  // A call that has to choose among kernels comes here: no keys where there is nothing to find.
  if (winners.by_kind.empty()) return std::nullopt;
  const auto alike = winners.by_kind.find(kind_of(spec, target).dump());
  if (alike == winners.by_kind.end()) return std::nullopt;
  const std::string_view blocks = block_class(problem);
  const auto in_class = [](std::int64_t length, auto up_to) {
    return length > 0 && std::has_single_bit(static_cast<std::uint64_t>(length)) && up_to(length) &&
           !up_to(length / 2);
  };
  // The closest first, as in winner_keys.
  for (const bool any_keys : {false, true})
    for (const bool any_rows : {false, true})
      for (const Winner& winner : alike->second) {
        if (winner.kv_len.has_value() == any_keys || winner.q_len.has_value() == any_rows ||
            winner.blocks != blocks)
          continue;
        const auto rows = [&](std::int64_t length) { return problem.rows_up_to(length); };
        const auto keys = [&](std::int64_t length) { return problem.keys_up_to(length); };
        if ((any_rows || in_class(*winner.q_len, rows)) &&
            (any_keys || in_class(*winner.kv_len, keys)))
          return winner.schedule;
      }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> winner_keys(const AttentionSpec& spec, const Target& target,
                                     const AttentionProblem& problem) {
  const Json closest = key_of(spec, target, problem);
  std::vector<std::string> keys;
  for (const bool any_keys : {false, true})
    for (const bool any_rows : {false, true}) {
      Json key = closest;
      if (any_rows) key["q_len"] = nullptr;
      if (any_keys) key["kv_len"] = nullptr;
      std::string text = key.dump();
      if (std::find(keys.begin(), keys.end(), text) == keys.end()) keys.push_back(std::move(text));
    }
  return keys;
}

std::optional<Schedule> winning_schedule(const AttentionSpec& spec, const Target& target,
                                         const AttentionProblem& problem, std::string_view table) {
  KnownProblem questions(as_fixed_by(spec, problem));
  return find(read_table(table), spec, target, questions);
}

std::optional<Schedule> winning_schedule(const AttentionSpec& spec, const Target& target,
                                         ProblemQuestions& problem) {
  static const Winners winners = read_table(shipped_winners().front().text);
  return find(winners, spec, target, problem);
}

std::optional<Schedule> winning_schedule(const AttentionSpec& spec, const Target& target,
                                         const AttentionProblem& problem) {
  KnownProblem questions(as_fixed_by(spec, problem));
  return winning_schedule(spec, target, questions);
}

WinnerFinder winners_of(std::string_view table, const AttentionSpec& spec, const Target& target) {
  return [winners = read_table(table), spec, &target](ProblemQuestions& problem) {
    return find(winners, spec, target, problem);
  };
}

std::vector<std::string> unusable_winners(std::string_view table) {
  return read_table(table).unusable;
}

}  // namespace flashcore
