#include "dsl/json.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "dsl/error.h"
#include "dsl/shortened.h"

namespace flashcore {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* attention_kind = "attention";

// Every enumeration that JSON holds names its values from 0 on and answers "?" behind the last.
template <class Enum>
std::vector<std::string_view> names_of() {
  std::vector<std::string_view> names;
  for (int i = 0; name_of(static_cast<Enum>(i)) != "?"; ++i) {
    names.push_back(name_of(static_cast<Enum>(i)));
  }
  return names;
}

std::string is_called_now(std::string_view present) {
  return fmt::format("it is called {} now", present);
}

template <class Enum>
Enum parse_enum(const std::string& text) {
  const std::vector<std::string_view> names = names_of<Enum>();
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == text) return static_cast<Enum>(i);
    if (names[i] == present_name(text))
      throw std::invalid_argument(fmt::format("\"{}\": {}", text, is_called_now(names[i])));
  }
  throw std::invalid_argument(fmt::format("\"{}\" is not one of {}", text, fmt::join(names, ", ")));
}

template <class Field>
requires std::is_enum_v<Field> Json write(Field field) { return name_of(field); }
template <class Field>
requires(!std::is_enum_v<Field> && !std::is_base_of_v<Expression, Field>) Json
    write(const Field& field) {
  return field;
}
Json write(const std::optional<int>& field) { return field ? Json(*field) : Json(nullptr); }
Json write(const Expression& expression) {
  Json tensors = Json::array();
  for (const Captured& tensor : expression.tensors) {
    Json& written = tensors.emplace_back(
        Json{{"name", tensor.name}, {"dtype", name_of(tensor.dtype)}, {"rank", tensor.rank}});
    if (tensor.unit_stride) written["unit_stride"] = true;
    if (tensor.aligned_rows) written["aligned_rows"] = true;
  }
  return {{"text", expression.text}, {"tensors", std::move(tensors)}};
}

template <class Field>
requires std::is_enum_v<Field>
void read(const Json& value, Field& field) { field = parse_enum<Field>(value.get<std::string>()); }
void read(const Json& value, DType& field) {
  const auto text = value.get<std::string>();
  const std::optional<DType> type = parse_dtype(text);
  if (!type)
    throw std::invalid_argument(
        fmt::format("\"{}\" is not one of f16, bf16, f32; captured tensors may also be "
                    "f64, i64, i32, i16, i8, u8 and i1",
                    text));
  field = *type;
}
void read(const Json& value, int& field) {
  if (!value.is_number_integer()) throw std::invalid_argument("expected a whole number");
  constexpr std::int64_t least = std::numeric_limits<int>::min(),
                         most = std::numeric_limits<int>::max();
  // Above the signed range JSON holds a number without a sign.
  const bool fits = value.is_number_unsigned()
                        ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most)
                        : value.get<std::int64_t>() >= least && value.get<std::int64_t>() <= most;
  if (!fits)
    throw std::invalid_argument(fmt::format(
        "{} does not fit in a whole number of 32 bits, {} to {}", value.dump(), least, most));
  field = value.get<int>();
}
void read(const Json& value, bool& field) { field = value.get<bool>(); }
void read(const Json& value, std::map<std::string, int>& field) {
  if (!value.is_object()) throw std::invalid_argument("expected an object of whole numbers");
  for (const auto& [name, entry] : value.items()) read(entry, field[name]);
}
void read(const Json& value, std::optional<int>& field) {
  if (value.is_null()) {
    field.reset();
  } else {
    read(value, field.emplace());
  }
}
/// An expression without captured tensors may also be its text alone.
void read(const Json& value, Expression& field) {
  field.tensors.clear();
  if (value.is_string()) {
    field.text = value.get<std::string>();
    return;
  }
  field.text = value.at("text").get<std::string>();
  for (const Json& tensor : value.value("tensors", Json::array())) {
    Captured& captured = field.tensors.emplace_back();
    captured.name = tensor.at("name").get<std::string>();
    read(tensor.at("dtype"), captured.dtype);
    read(tensor.at("rank"), captured.rank);
    captured.unit_stride = tensor.value("unit_stride", false);
    captured.aligned_rows = tensor.value("aligned_rows", false);
  }
}

// The one list of a spec's fields.
template <class Spec, class Visit>
requires std::is_same_v<std::remove_const_t<Spec>, AttentionSpec>
void for_each_field(Spec& spec, Visit&& visit) {
  visit("head_dim", spec.head_dim);
  visit("head_dim_v", spec.head_dim_v);
  visit("heads", spec.heads);
  visit("kv_heads", spec.kv_heads);
  visit("dtype", spec.dtype);
  visit("products", spec.products);
  visit("mask", spec.mask);
  visit("score", spec.score);
  visit("sink", spec.sink);
  visit("layout", spec.layout);
  visit("lse", spec.lse);
  visit("q_lens", spec.q_lens);
  visit("kv_lens", spec.kv_lens);
  visit("page_size", spec.page_size);
  visit("large_scores", spec.large_scores);
  visit("deterministic", spec.deterministic);
  visit("batch", spec.batch);
  visit("q_len", spec.q_len);
  visit("kv_len", spec.kv_len);
}

// The one list of a schedule's fields.
template <class Plan, class Visit>
requires std::is_same_v<std::remove_const_t<Plan>, Schedule>
void for_each_field(Plan& schedule, Visit&& visit) {
  visit("tiles", schedule.tiles);
  visit("warps_m", schedule.warps_m);
  visit("warps_n", schedule.warps_n);
  visit("instruction", schedule.instruction);
  visit("copy", schedule.copy);
  visit("softmax", schedule.softmax);
  visit("keep_operands", schedule.keep_operands);
  visit("load_vectors", schedule.load_vectors);
  visit("staged_stores", schedule.staged_stores);
  visit("keep_addresses", schedule.keep_addresses);
  visit("last_tiles_first", schedule.last_tiles_first);
  visit("end_aligned_tiles", schedule.end_aligned_tiles);
  visit("grid_order", schedule.grid_order);
  visit("flat_grid", schedule.flat_grid);
  visit("persistent", schedule.persistent);
  visit("tile_scheduler", schedule.tile_scheduler);
  visit("positions_per_block", schedule.positions_per_block);
  visit("multicast_blocks", schedule.multicast_blocks);
  visit("producer", schedule.producer);
  visit("producer_warps", schedule.producer_warps);
  visit("blocks_per_processor", schedule.blocks_per_processor);
  visit("stages", schedule.stages);
  visit("outer_stages", schedule.outer_stages);
  visit("peel_masks", schedule.peel_masks);
  visit("overlap_products", schedule.overlap_products);
  visit("late_products", schedule.late_products);
  visit("rescale_before_product", schedule.rescale_before_product);
  visit("rescale_before_wait", schedule.rescale_before_wait);
  visit("lazy_scaling", schedule.lazy_scaling);
  visit("reduction_chains", schedule.reduction_chains);
  visit("ping_pong", schedule.ping_pong);
  visit("descending", schedule.descending);
  visit("product_split", schedule.product_split);
  visit("cluster_splits", schedule.cluster_splits);
  visit("sums_by_products", schedule.sums_by_products);
}

template <class Failure>
Json parse_object(std::string_view text, const char* what) {
  const bool deep = too_deep_for_json(text);
  Json json = deep ? Json() : Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_object()) return json;
  throw Failure({.what = fmt::format("cannot read the {}", what),
                 .why = deep ? fmt::format("its brackets nest more than {} deep", deepest_json)
                             : "the text is not a JSON object",
                 .fix = "save it with to_json()",
                 .where = {}});
}

// Fills `value` from `json`, and collects what is wrong with it rather than stop at the first.
template <class Failure, class Value>
Value read_fields(Json json, const char* what) {
  Value value;
  std::vector<std::string> reasons, known;
  for_each_field(value, [&](const char* name, auto& field) {
    known.emplace_back(name);
    if (!json.contains(name)) return;
    try {
      read(json[name], field);
    } catch (const nlohmann::json::exception&) {
      reasons.push_back(
          fmt::format("{}: {} has the wrong type", name, shortened(json[name].dump())));
    } catch (const std::exception& error) {
      reasons.push_back(fmt::format("{}: {}", name, error.what()));
    }
    json.erase(name);
  });
  for (const auto& [name, ignored] : json.items()) {
    const std::string_view present = present_name(name);
    const bool renamed = std::find(known.begin(), known.end(), present) != known.end();
    reasons.push_back(
        fmt::format("{}: {}", name, renamed ? is_called_now(present) : "no such field"));
  }
  if (reasons.empty()) return value;
  throw Failure({.what = fmt::format("cannot read the {}", what),
                 .why = fmt::format("{}", fmt::join(reasons, "; ")),
                 .fix = fmt::format("the fields are {}", fmt::join(known, ", ")),
                 .where = {}});
}

template <class Value>
std::string write_fields(Json json, const Value& value) {
  for_each_field(value, [&](const char* name, const auto& field) { json[name] = write(field); });
  // A text that is no UTF-8 is refused when it is read, not here.
  return json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace

std::string_view present_name(std::string_view old_name) {
  constexpr std::pair<std::string_view, std::string_view> renamed[] = {
#define FC_RENAMED(old, now) {#old, #now},
#include "dsl/renamed_fields.def"
#undef FC_RENAMED
  };
  for (const auto& [old, now] : renamed)
    if (old == old_name) return now;
  return {};
}

bool too_deep_for_json(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > deepest_json) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

std::string to_json(const AttentionSpec& spec) {
  return write_fields(Json{{"kind", attention_kind}}, spec);
}

std::string to_json(const Schedule& schedule) { return write_fields(Json::object(), schedule); }

AttentionSpec attention_spec_from_json(std::string_view text) {
  Json json = parse_object<SpecError>(text, "attention spec");
  if (json.contains("kind") && json["kind"] != attention_kind) {
    throw SpecError({.what = "cannot read the attention spec",
                     .why = fmt::format("its kind is {}", json["kind"].dump()),
                     .fix = fmt::format("the kind of a spec is \"{}\"", attention_kind),
                     .where = {}});
  }
  json.erase("kind");
  return read_fields<SpecError, AttentionSpec>(std::move(json), "attention spec");
}

Schedule schedule_from_json(std::string_view text) {
  return read_fields<ScheduleError, Schedule>(parse_object<ScheduleError>(text, "schedule"),
                                              "schedule");
}

}  // namespace flashcore
