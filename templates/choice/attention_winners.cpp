#include "templates/choice/attention_winners.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cstdint>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dsl/error.h"
#include "dsl/json.h"

namespace flashcore {
namespace {

using Json = nlohmann::ordered_json;

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

/// The greatest length of the class that a length is in: 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20,
/// ..., four to an octave. A schedule that wins at one length need not win at half of it.
std::int64_t class_of(std::int64_t length) {
  const auto number = static_cast<std::uint64_t>(length);
  // A power of two: multiples of it need no division.
  const std::uint64_t step = std::max<std::uint64_t>(1, std::bit_floor(number - 1) / 4);
  return static_cast<std::int64_t>((number + step - 1) & ~(step - 1));
}

Json length_class(std::int64_t length) {
  if (length <= 0) return nullptr;
  return class_of(length);
}

constexpr int block_rows = 128;

std::int64_t blocks_of(const AttentionProblem& problem) {
  return problem.batch * problem.heads * ((problem.q_len + block_rows - 1) / block_rows);
}

/// How full the last wave of blocks of 128 rows is matters most if there are few waves.
std::size_t block_class(const AttentionProblem& problem, int multiprocessors) {
  constexpr std::size_t few = 0, some = 1, many = 2;
  const std::int64_t blocks = problem.q_len > 0 ? blocks_of(problem) : 0;
  if (blocks == 0) return many;
  if (blocks < multiprocessors) return few;
  return blocks < std::int64_t{4} * multiprocessors ? some : many;
}
constexpr std::array<std::string_view, 3> block_classes{"few", "some", "many"};
/// As many as there are classes for what is none of them.
std::size_t block_class_named(const Json& name) {
  const auto* const found = std::ranges::find(
      block_classes, name.is_string() ? name.get<std::string_view>() : std::string_view());
  return static_cast<std::size_t>(found - block_classes.begin());
}

/// The fields of a key in their order, with the values of plain full attention.
Json plain_key() {
  return {{"target", ""},     {"head_dim", 0},     {"head_dim_v", nullptr}, {"mask", "full"},
          {"score", ""},      {"sink", ""},        {"lengths", "open"},     {"heads", nullptr},
          {"q_len", nullptr}, {"kv_len", nullptr}, {"blocks", "many"}};
}

/// A key that says nothing of the problem.
Json without_problem(Json key) {
  for (const char* field : {"heads", "q_len", "kv_len", "blocks"}) key[field] = nullptr;
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

Json key_of(const AttentionSpec& spec, const Target& target, int multiprocessors,
            const AttentionProblem& given) {
  const AttentionProblem problem = as_fixed_by(spec, given);
  Json key = kind_of(spec, target);
  key["heads"] = length_class(problem.batch * problem.heads);
  key["q_len"] = length_class(problem.q_len);
  key["kv_len"] = length_class(problem.kv_len);
  key["blocks"] = block_classes[block_class(problem, multiprocessors)];
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

/// An entry of a table with all fields of its key, and its schedule.
struct Winner {
  Json key;
  Schedule schedule;
};
struct Table {
  std::vector<Winner> winners;        ///< the last of those with equal keys
  std::vector<std::string> unusable;  ///< why an entry is left aside
};

Table read_table(std::string_view text) {
  if (too_deep_for_json(text))
    refuse(fmt::format("its brackets nest more than {} deep", deepest_json));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) refuse("it is not a JSON array");
  Table table;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const Json& entry = json[i];
    const auto missing = [&](const char* field) {
      return !entry.is_object() || !entry.contains(field);
    };
    constexpr std::array needed{"target", "head_dim", "schedule"};
    if (const auto lacks = std::find_if(needed.begin(), needed.end(), missing);
        lacks != needed.end()) {
      table.unusable.push_back(fmt::format("entry {} has no {}", i, *lacks));
      continue;
    }
    Json key = plain_key();
    for (auto& [name, value] : key.items())
      if (entry.contains(name)) value = entry[name];
    if (entry.contains("products")) key["products"] = entry["products"];
    if (key["head_dim_v"].is_null()) key["head_dim_v"] = key["head_dim"];
    try {
      Schedule schedule = schedule_from_json(entry["schedule"].dump());
      std::erase_if(table.winners, [&](const Winner& other) { return other.key == key; });
      table.winners.push_back({std::move(key), std::move(schedule)});
    } catch (const ScheduleError& error) {
      const Complaint& c = error.complaint();
      table.unusable.push_back(fmt::format("entry {}: {}: {}", i, c.what, c.why));
    }
  }
  return table;
}

/// Whether one of these lengths is in the class whose greatest length is given.
bool in_class(std::int64_t greatest, const LengthRange& lengths) {
  if (greatest <= 0 || class_of(greatest) != greatest || lengths.least > greatest) return false;
  return class_of(std::max<std::int64_t>(1, std::min(lengths.most, greatest))) == greatest;
}

}  // namespace

struct WinnersReader {
  static Winners read(const Table& table, const AttentionSpec& spec, const Target& target,
                      int multiprocessors) {
    Winners winners(multiprocessors);
    const Json kind = kind_of(spec, target);
    for (const Winner& winner : table.winners)
      if (without_problem(winner.key) == kind)
        winners.entries_.push_back({.heads = length_of(winner.key["heads"]),
                                    .q_len = length_of(winner.key["q_len"]),
                                    .kv_len = length_of(winner.key["kv_len"]),
                                    .blocks = block_class_named(winner.key["blocks"]),
                                    .schedule = winner.schedule});
    return winners;
  }
};

std::vector<std::string> winner_keys(const AttentionSpec& spec, const Target& target,
                                     int multiprocessors, const AttentionProblem& problem) {
  const Json closest = key_of(spec, target, multiprocessors, problem);
  std::vector<std::string> keys;
  for (const bool any_keys : {false, true})
    for (const bool any_rows : {false, true})
      for (const bool any_heads : {false, true}) {
        Json key = closest;
        if (any_heads) key["heads"] = nullptr;
        if (any_rows) key["q_len"] = nullptr;
        if (any_keys) key["kv_len"] = nullptr;
        std::string text = key.dump();
        if (std::find(keys.begin(), keys.end(), text) == keys.end())
          keys.push_back(std::move(text));
      }
  return keys;
}

Winners Winners::of(std::string_view table, const AttentionSpec& spec, const Target& target,
                    int multiprocessors) {
  if (table.empty()) return Winners(multiprocessors);
  return WinnersReader::read(read_table(table), spec, target, multiprocessors);
}

Winners Winners::shipped(const AttentionSpec& spec, const Target& target, int multiprocessors) {
  static const Table table = read_table(shipped_winners().front().text);
  return WinnersReader::read(table, spec, target, multiprocessors);
}

std::size_t Winners::find(const AttentionProblem& problem) const {
  if (entries_.empty()) return size();
  const std::size_t blocks = block_class(problem, multiprocessors_);
  constexpr std::int64_t unknown = 0;
  const auto class_if_known = [](std::int64_t length) {
    return length > 0 ? class_of(length) : unknown;
  };
  const auto fits = [](const std::optional<std::int64_t>& greatest, std::int64_t own) {
    return !greatest || (own != unknown && *greatest == own);
  };
  const std::int64_t heads = class_if_known(problem.batch * problem.heads),
                     q_len = class_if_known(problem.q_len), kv_len = class_if_known(problem.kv_len);
  std::size_t closest = size();
  int most = -1;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& e = entries_[i];
    if (e.blocks != blocks || !fits(e.heads, heads) || !fits(e.q_len, q_len) ||
        !fits(e.kv_len, kv_len))
      continue;
    // In the order of winner_keys.
    const int closeness = (e.kv_len ? 4 : 0) + (e.q_len ? 2 : 0) + (e.heads ? 1 : 0);
    if (closeness > most) most = closeness, closest = i;
  }
  return closest;
}

AttentionProblem Winners::largest_problem(std::size_t entry) const {
  const Entry& e = entries_.at(entry);
  return {.batch = e.heads ? 1 : 0,
          .heads = e.heads.value_or(0),
          .q_len = e.q_len.value_or(0),
          .kv_len = e.kv_len.value_or(0)};
}

bool Winners::may_find(std::size_t entry, const AttentionProblems& problems) const {
  const Entry& e = entries_.at(entry);
  const LengthRange heads{problems.batch.least * problems.heads.least,
                          problems.batch.most * problems.heads.most};
  return (!e.heads || in_class(*e.heads, heads)) &&
         (!e.q_len || in_class(*e.q_len, problems.q_len)) &&
         (!e.kv_len || in_class(*e.kv_len, problems.kv_len));
}

std::vector<std::string> unusable_winners(std::string_view table) {
  return read_table(table).unusable;
}

}  // namespace flashcore
