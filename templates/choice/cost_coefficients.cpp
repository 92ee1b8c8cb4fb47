// Reads tables of coefficients, the shipped one and users' own.
#include "templates/choice/cost_coefficients.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dsl/error.h"
#include "dsl/json.h"

namespace flashcore {
namespace {

using Json = nlohmann::ordered_json;

/// A coefficient in a table, and where it goes; or one for each of measured_dims.
template <class Costs, class Value = double>
struct Field {
  std::string_view name;
  Value Costs::*value;
};
template <class Costs>
using FieldByDim = Field<Costs, std::vector<double>>;

constexpr Field<FamilyCosts> family_fields[] = {
    {"launch_us", &FamilyCosts::launch_us},       {"spread_us", &FamilyCosts::spread_us},
    {"fill_share", &FamilyCosts::fill_share},     {"stall_share", &FamilyCosts::stall_share},
    {"iteration_us", &FamilyCosts::iteration_us}, {"contention", &FamilyCosts::contention},
    {"mask_us", &FamilyCosts::mask_us},           {"split_us", &FamilyCosts::split_us},
    {"split_dim_us", &FamilyCosts::split_dim_us},
};

constexpr Field<ChoiceProperties> property_fields[] = {
    {"tie_share", &ChoiceProperties::tie_share},
    {"split_gain", &ChoiceProperties::split_gain},
    {"least_split_keys", &ChoiceProperties::least_split_keys},
    {"split_waves", &ChoiceProperties::split_waves},
    {"two_heads_waves", &ChoiceProperties::two_heads_waves},
    {"paged_share", &ChoiceProperties::paged_share},
    {"own_element_us", &ChoiceProperties::own_element_us},
    {"l2_share", &ChoiceProperties::l2_share},
    {"reread_share", &ChoiceProperties::reread_share},
    {"dynamic_us", &ChoiceProperties::dynamic_us},
    {"staged_us", &ChoiceProperties::staged_us},
    {"tail", &ChoiceProperties::tail},
};

constexpr Field<DecodeCosts> decode_fields[] = {
    {"launch_us", &DecodeCosts::launch_us},       {"block_us", &DecodeCosts::block_us},
    {"lone_share", &DecodeCosts::lone_share},     {"read_factor", &DecodeCosts::read_factor},
    {"stall_share", &DecodeCosts::stall_share},   {"split_us", &DecodeCosts::split_us},
    {"partial_us", &DecodeCosts::partial_us},     {"row_us", &DecodeCosts::row_us},
    {"tiled_row_us", &DecodeCosts::tiled_row_us},
};

constexpr FieldByDim<FamilyCosts> family_fields_by_dim[] = {
    {"block_us", &FamilyCosts::block_us},
    {"columns_us", &FamilyCosts::columns_us},
    {"row_share", &FamilyCosts::row_share},
};

constexpr FieldByDim<DecodeCosts> decode_fields_by_dim[] = {
    {"columns_us", &DecodeCosts::columns_us},
};

template <class Fields>
std::vector<std::string_view> names_of(const Fields& fields) {
  std::vector<std::string_view> names;
  for (const auto& field : fields) names.push_back(field.name);
  return names;
}

/// `numbers` are those of `fields`, in their order, and then those of each of `by_dim`.
template <class Costs, std::size_t count, std::size_t count_by_dim>
Costs costs_from(const Field<Costs> (&fields)[count],
                 const FieldByDim<Costs> (&by_dim)[count_by_dim], std::span<const double> numbers) {
  constexpr std::size_t dims = std::size(measured_dims), all = count + count_by_dim * dims;
  if (numbers.size() != all)
    throw InternalError(fmt::format("{} coefficients, where {} are meant", numbers.size(), all));
  Costs costs;
  for (std::size_t i = 0; i < count; ++i) costs.*fields[i].value = numbers[i];
  for (std::size_t i = 0; i < count_by_dim; ++i) {
    const std::span<const double> own = numbers.subspan(count + i * dims, dims);
    (costs.*by_dim[i].value).assign(own.begin(), own.end());
  }
  return costs;
}

[[noreturn]] void refuse(std::string why) {
  throw ScheduleError({.what = "cannot read a table of cost coefficients",
                       .why = std::move(why),
                       .fix = "remove it, or measure a new one: flashcore calibrate",
                       .where = {}});
}

double number_of(const Json& object, std::string_view field, const std::string& where) {
  const auto found = object.find(std::string(field));
  if (found == object.end() || !found->is_number())
    refuse(fmt::format("{} has no number {}", where, field));
  const double number = found->get<double>();
  if (!std::isfinite(number) || number < 0)
    refuse(fmt::format("{} of {} is {}, where a number from 0 on is meant", field, where, number));
  return number;
}

template <class Costs>
Costs read_costs(const Json& object, const std::string& where) {
  if (!object.is_object()) refuse(where + " is no object");
  std::vector<double> numbers;
  for (const std::string_view name : Costs::names())
    numbers.push_back(number_of(object, name, where));
  for (const std::string_view name : Costs::names_by_dim()) {
    const auto by_dim = object.find(std::string(name));
    if (by_dim == object.end() || !by_dim->is_object())
      refuse(fmt::format("{} has no {} by head_dim", where, name));
    for (const int dim : measured_dims)
      numbers.push_back(number_of(*by_dim, std::to_string(dim), fmt::format("{} {}", where, name)));
  }
  return Costs::from(numbers);
}

ChoiceProperties properties_from(const Json& object, const std::string& where) {
  if (!object.is_object()) refuse(where + " is no object");
  ChoiceProperties properties;
  for (const auto& [name, value] : property_fields)
    properties.*value = number_of(object, name, where);
  if (properties.tie_share >= 1) refuse("tie_share of " + where + " is no share below 1");
  return properties;
}

/// The objects of a field by their names.
const Json& named_objects(const Json& entry, const char* field, const std::string& where) {
  if (!entry.contains(field) || !entry[field].is_object())
    refuse(fmt::format("{} has no {}", where, field));
  return entry[field];
}

/// A GPU may have the coefficients of one that is alike and was measured in its place: then its entry has
/// no families, and names that GPU.
std::optional<std::string> measured_gpu(const Json& entry) {
  const auto measured = entry.find("measured");
  if (measured == entry.end() || !measured->is_object()) return std::nullopt;
  const auto gpu = measured->find("gpu");
  if (gpu == measured->end() || !gpu->is_string()) return std::nullopt;
  return gpu->get<std::string>();
}

Json parsed(std::string_view text) {
  if (too_deep_for_json(text))
    refuse(fmt::format("its brackets nest more than {} deep", deepest_json));
  Json table = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!table.is_array()) refuse("it is not a JSON array");
  for (const Json& entry : table) {
    const bool named = entry.is_object() && entry.contains("target") &&
                       entry["target"].is_string() && entry.contains("gpu") &&
                       entry["gpu"].is_string();
    if (!named) refuse("an entry names no target and gpu");
  }
  return table;
}

}  // namespace

double at_dim(std::span<const double> of_measured_dims, double head_dim) {
  constexpr std::size_t last = std::size(measured_dims) - 1;
  if (head_dim <= measured_dims[0]) return of_measured_dims[0];
  if (head_dim >= measured_dims[last])
    return of_measured_dims[last] * head_dim / measured_dims[last];
  const auto above = static_cast<std::size_t>(std::ranges::lower_bound(measured_dims, head_dim) -
                                              std::begin(measured_dims));
  const double part =
      (head_dim - measured_dims[above - 1]) / (measured_dims[above] - measured_dims[above - 1]);
  return of_measured_dims[above - 1] * (1 - part) + of_measured_dims[above] * part;
}

std::span<const std::string_view> FamilyCosts::names() {
  static const auto all = names_of(family_fields);
  return all;
}

std::span<const std::string_view> FamilyCosts::names_by_dim() {
  static const auto all = names_of(family_fields_by_dim);
  return all;
}

FamilyCosts FamilyCosts::from(std::span<const double> numbers) {
  FamilyCosts costs = costs_from(family_fields, family_fields_by_dim, numbers);
  for (double& share : costs.row_share) share = std::min(share, 1.0);
  return costs;
}

std::span<const std::string_view> DecodeCosts::names() {
  static const auto all = names_of(decode_fields);
  return all;
}

std::span<const std::string_view> DecodeCosts::names_by_dim() {
  static const auto all = names_of(decode_fields_by_dim);
  return all;
}

std::span<const std::string_view> DecodeCosts::families() {
  static constexpr std::string_view all[]{"packed/16",  "packed/32",   "packed/64",
                                          "of_head/64", "of_head/128", "packed_in_registers/128"};
  return all;
}

DecodeCosts DecodeCosts::from(std::span<const double> numbers) {
  return costs_from(decode_fields, decode_fields_by_dim, numbers);
}

const CostModel& CostModel::first() {
  static const CostModel model =
      *find(parsed(shipped_costs().front().text).front()["target"].get<std::string>());
  return model;
}

const DecodeCosts& CostModel::decoding(const std::string& name) const {
  const auto found = decoding_.find(name);
  if (found == decoding_.end()) throw InternalError("no coefficients of decoding for " + name);
  return found->second;
}

const FamilyCosts* CostModel::family(const std::string& name) const {
  const auto found = families_.find(name);
  return found == families_.end() ? nullptr : &found->second;
}

std::optional<CostModel> CostModel::find(std::string_view target, const GpuFacts& gpu,
                                         std::string_view table) {
  const Json mine = table.empty() ? Json::array() : parsed(table);
  static const Json shipped = parsed(shipped_costs().front().text);
  // Of any GPU, if none is named.
  const auto first_of = [&](const Json& entries, std::optional<std::string> name) -> const Json* {
    for (const Json& entry : entries)
      if (entry["target"].get<std::string>() == target &&
          (!name || entry["gpu"].get<std::string>() == *name))
        return &entry;
    return nullptr;
  };
  const Json* const first_shipped = first_of(shipped, std::nullopt);
  const Json* chosen = first_of(mine, gpu.name);
  if (chosen == nullptr) chosen = first_of(shipped, gpu.name);
  if (chosen == nullptr) chosen = first_shipped;
  if (chosen == nullptr) return std::nullopt;
  const Json& entry = *chosen;
  const Json* measured = &entry;
  if (const auto alike = measured_gpu(entry); alike && !entry.contains("families"))
    if (const Json* found = first_of(shipped, alike)) measured = found;
  CostModel model;
  const std::string name = entry["gpu"].get<std::string>(), where = "the entry of " + name;
  model.measured_on_ = measured_gpu(entry).value_or(name);
  model.gpu_ = gpu;
  if (gpu.multiprocessors == 0)
    model.gpu_ = {.name = name,
                  .multiprocessors = static_cast<int>(number_of(entry, "multiprocessors", where)),
                  .l2_bytes = static_cast<std::int64_t>(number_of(entry, "l2_bytes", where))};
  model.costs_ = {.bytes_per_us = number_of(entry, "bytes_per_us", where),
                  .cluster_share = number_of(*measured, "cluster_share", where),
                  .scan_us = number_of(*measured, "scan_us", where),
                  .score_operation_us = number_of(*measured, "score_operation_us", where)};
  if (model.costs_.bytes_per_us == 0) refuse("bytes_per_us of " + where + " is 0");
  const bool has_own = entry.contains("properties") || first_shipped == nullptr;
  model.properties_ = properties_from(
      (has_own ? entry : *first_shipped).value("properties", Json()), where + ", properties");
  for (const auto& [kind, family] : named_objects(*measured, "families", where).items())
    model.families_[kind] = read_costs<FamilyCosts>(family, where + ", " + kind);
  const Json& decoding = named_objects(*measured, "decoding", where);
  for (const std::string_view family : DecodeCosts::families()) {
    const std::string rows(family), place = where + ", decoding " + rows;
    if (!decoding.contains(rows)) refuse(place + " is missing");
    model.decoding_[rows] = read_costs<DecodeCosts>(decoding[rows], place);
  }
  return model;
}

}  // namespace flashcore
