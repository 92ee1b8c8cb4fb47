#include "templates/choice/attention_winners.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dsl/error.h"
#include "dsl/json.h"

namespace flashcore {
namespace {

using Json = nlohmann::ordered_json;

constexpr bool keep_numbers = true;

bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// The expression without what differs between uses of one kind of attention: what a caller's
/// tensors are called and, unless they are kept, numbers.
std::string form_of(const Expression& expression, bool numbers) {
  std::string form;
  const std::string& text = expression.text;
  for (const char *at = text.data(), *const end = at + text.size(); at != end;) {
    double number = 0;
    const bool digit = std::isdigit(static_cast<unsigned char>(*at)) != 0;
    const char* const behind =
        digit ? std::from_chars(at, end, number).ptr : std::find_if_not(at, end, in_name);
    const std::string_view word(at, behind == at ? at + 1 : behind);
    const auto tensor = std::ranges::find(expression.tensors, word, &Captured::name);
    if (digit && !numbers)
      form += '#';
    else if (tensor != expression.tensors.end())
      form += fmt::format("t{}", tensor - expression.tensors.begin());
    else
      form += word;
    at += word.size();
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
  return length > 0 ? Json(class_of(length)) : Json(nullptr);
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

/// What a key says of plain full attention, the fields in their order.
Json plain_kind() {
  return {{"target", ""}, {"head_dim", 0}, {"head_dim_v", nullptr}, {"mask", "full"},
          {"score", ""},  {"sink", ""},    {"lengths", "open"}};
}

Json kind_of(const AttentionSpec& spec, const Target& target) {
  Json kind = plain_kind();
  kind["target"] = target.name;
  kind["head_dim"] = spec.stored_dim();
  kind["head_dim_v"] = spec.stored_value_dim();
  kind["mask"] = mask_class(spec.mask);
  kind["score"] = form_of(spec.score, !keep_numbers);
  kind["sink"] = form_of(spec.sink, !keep_numbers);
  kind["lengths"] = spec.paged()                  ? "paged"
                    : spec.packed()               ? "packed"
                    : spec.q_lens || spec.kv_lens ? "padded"
                                                  : "open";
  if (spec.dtype == DType::f32) kind["products"] = name_of(spec.products);
  return kind;
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

/// The winner of an entry, with what its key says of specs.
struct TableEntry {
  Json kind;
  Winner winner;

  /// Whether both have one key.
  [[nodiscard]] bool is_for_the_same(const TableEntry& other) const {
    const auto problem = [](const Winner& w) {
      return std::tie(w.heads, w.q_len, w.kv_len, w.blocks);
    };
    return kind == other.kind && problem(winner) == problem(other.winner);
  }
};

TableEntry read_entry(const Json& json) {
  Json kind = plain_kind();
  for (auto& [name, value] : kind.items())
    if (json.contains(name)) value = json[name];
  if (json.contains("products")) kind["products"] = json["products"];
  if (kind["head_dim_v"].is_null()) kind["head_dim_v"] = kind["head_dim"];
  const auto length = [&](const char* field) {
    if (!json.contains(field) || !json[field].is_number_integer()) return Winner::any;
    const auto number = json[field].get<std::int64_t>();
    return number > 0 && class_of(number) == number ? number : Winner::none;
  };
  return {std::move(kind),
          {.heads = length("heads"),
           .q_len = length("q_len"),
           .kv_len = length("kv_len"),
           .blocks = block_class_named(json.value("blocks", Json("many"))),
           .schedule = schedule_from_json(json["schedule"].dump())}};
}

struct Table {
  std::vector<TableEntry> entries;    ///< the last of those with equal keys
  std::vector<std::string> unusable;  ///< why an entry is left aside
};

Table read_table(std::string_view text) {
  if (too_deep_for_json(text))
    refuse(fmt::format("its brackets nest more than {} deep", deepest_json));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) refuse("it is not a JSON array");
  Table table;
  for (std::size_t i = 0; i < json.size(); ++i) {
    constexpr std::array needed{"target", "head_dim", "schedule"};
    const auto* const lacks = std::ranges::find_if(needed, [&](const char* field) {
      return !json[i].is_object() || !json[i].contains(field);
    });
    if (lacks != needed.end()) {
      table.unusable.push_back(fmt::format("entry {} has no {}", i, *lacks));
      continue;
    }
    try {
      TableEntry read = read_entry(json[i]);
      std::erase_if(table.entries, [&](const auto& other) { return other.is_for_the_same(read); });
      table.entries.push_back(std::move(read));
    } catch (const ScheduleError& error) {
      const Complaint& c = error.complaint();
      table.unusable.push_back(fmt::format("entry {}: {}: {}", i, c.what, c.why));
    }
  }
  return table;
}

std::vector<Winner> winners_for(const AttentionSpec& spec, const Target& target,
                                const Table& table) {
  std::vector<Winner> winners;
  const Json kind = kind_of(spec, target);
  for (const TableEntry& entry : table.entries)
    if (entry.kind == kind) winners.push_back(entry.winner);
  return winners;
}

/// Whether one of these lengths is in the class whose greatest length is given.
bool in_class(std::int64_t greatest, const LengthRange& lengths) {
  if (greatest == Winner::any) return true;
  if (greatest == Winner::none || lengths.least > greatest) return false;
  return class_of(std::max<std::int64_t>(1, std::min(lengths.most, greatest))) == greatest;
}

}  // namespace

std::string winner_key(const AttentionSpec& spec, const Target& target, int multiprocessors,
                       const AttentionProblem& given) {
  const AttentionProblem problem = as_fixed_by(spec, given);
  Json key = kind_of(spec, target);
  key["heads"] = length_class(problem.batch * problem.heads);
  key["q_len"] = length_class(problem.q_len);
  key["kv_len"] = length_class(problem.kv_len);
  key["blocks"] = block_classes[block_class(problem, multiprocessors)];
  return key.dump();
}

bool Winner::may_be_for(const AttentionProblems& problems) const {
  const LengthRange all_heads{problems.batch.least * problems.heads.least,
                              problems.batch.most * problems.heads.most};
  return in_class(heads, all_heads) && in_class(q_len, problems.q_len) &&
         in_class(kv_len, problems.kv_len);
}

Winners Winners::of(std::string_view table, const AttentionSpec& spec, const Target& target,
                    int multiprocessors) {
  if (table.empty()) return {{}, multiprocessors};
  return {winners_for(spec, target, read_table(table)), multiprocessors};
}

Winners Winners::shipped(const AttentionSpec& spec, const Target& target, int multiprocessors) {
  static const Table table = read_table(shipped_winners());
  return {winners_for(spec, target, table), multiprocessors};
}

std::size_t Winners::find(const AttentionProblem& problem) const {
  if (all.empty()) return 0;
  const std::size_t blocks = block_class(problem, multiprocessors);
  // What is not known of a problem is in no class.
  const auto class_if_known = [](std::int64_t length) { return length > 0 ? class_of(length) : 0; };
  const auto fits = [](std::int64_t greatest, std::int64_t own) {
    return greatest == Winner::any || greatest == own;
  };
  const std::int64_t heads = class_if_known(problem.batch * problem.heads),
                     q_len = class_if_known(problem.q_len), kv_len = class_if_known(problem.kv_len);
  std::size_t closest = all.size();
  int most = -1;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Winner& w = all[i];
    if (w.blocks != blocks || !fits(w.heads, heads) || !fits(w.q_len, q_len) ||
        !fits(w.kv_len, kv_len))
      continue;
    // Keys tell more of which schedule is best than query rows, and these more than heads.
    const int closeness = (w.kv_len ? 4 : 0) + (w.q_len ? 2 : 0) + (w.heads ? 1 : 0);
    if (closeness > most) most = closeness, closest = i;
  }
  return closest;
}

std::vector<std::string> unusable_winners(std::string_view table) {
  return read_table(table).unusable;
}

}  // namespace flashcore
