// Reads tables of coefficients, the shipped one and users' own.
#include "templates/choice/cost_coefficients.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <string>
#include <type_traits>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "dsl/error.h"
#include "dsl/json.h"

namespace flashcore {
namespace {

using Json = nlohmann::ordered_json;

// What tables call the coefficients of a struct is what its fields are called; those that have one for
// each of measured_dims stand behind the others.
#define FLASHCORE_VISIT_FIELD(field) visit(#field, costs.field);
#define FLASHCORE_COST_FIELDS(Costs, ...)                                         \
  template <class Visit>                                                          \
  void for_each_field(Costs& costs, const Visit& visit) {                         \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(FLASHCORE_VISIT_FIELD, __VA_ARGS__)) \
  }
FLASHCORE_COST_FIELDS(GpuCosts, bytes_per_us, cluster_share, scan_us, score_operation_us)
FLASHCORE_COST_FIELDS(ChoiceProperties, tie_share, split_gain, least_split_keys, split_waves,
                      two_heads_waves, paged_share, own_element_us, l2_share, reread_share,
                      grouped_us, staged_us, tail, static_share, segment_us, balanced_turn_us,
                      least_balanced_batch, balanced_allowance)
FLASHCORE_COST_FIELDS(FamilyCosts, launch_us, spread_us, fill_share, stall_share, iteration_us,
                      contention, mask_us, split_us, split_dim_us, block_us, columns_us, row_share)
FLASHCORE_COST_FIELDS(DecodeCosts, launch_us, block_us, lone_share, read_factor, stall_share,
                      split_us, partial_us, row_us, tiled_row_us, columns_us)

/// Blocks of decoding, by their rows and how many; every table has them.
constexpr std::string_view decode_families[]{
    "packed/16", "packed/32", "packed/64", "of_head/64", "of_head/128", "packed_in_registers/128"};

[[noreturn]] void refuse(std::string why) {
  throw ScheduleError({.what = "cannot read a table of cost coefficients",
                       .why = std::move(why),
                       .fix = "remove it, or measure a new one: flashcore calibrate",
                       .where = {}});
}

double checked(const Json& value, std::string_view field, const std::string& where) {
  if (!value.is_number()) refuse(fmt::format("{} has no number {}", where, field));
  const auto number = value.get<double>();
  if (!std::isfinite(number) || number < 0)
    refuse(fmt::format("{} of {} is {}, where a number from 0 on is meant", field, where, number));
  return number;
}

double number_of(const Json& object, const char* field, const std::string& where) {
  return checked(object.value(field, Json()), field, where);
}

template <class Costs>
Costs read_costs(const Json& object, const std::string& where) {
  if (!object.is_object()) refuse(where + " is no object");
  Costs costs;
  for_each_field(costs, [&](const char* name, auto& field) {
    if constexpr (std::is_same_v<decltype(field), double&>) {
      field = number_of(object, name, where);
    } else {
      const Json of_dims = object.value(name, Json());
      if (!of_dims.is_array() || of_dims.size() != std::size(measured_dims))
        refuse(fmt::format("{} has no {} for each head_dim of {}", where, name,
                           fmt::join(measured_dims, ", ")));
      for (const Json& one : of_dims) field.push_back(checked(one, name, where));
    }
  });
  return costs;
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

template <class Costs>
Costs costs_from_json(std::string_view text) {
  return read_costs<Costs>(Json::parse(text, nullptr, /*allow_exceptions=*/false), "an object");
}
template FamilyCosts costs_from_json(std::string_view text);
template DecodeCosts costs_from_json(std::string_view text);

const CostModel& CostModel::first() {
  static const CostModel model =
      *find(parsed(shipped_costs()).front()["target"].get<std::string>());
  return model;
}

std::optional<CostModel> CostModel::find(std::string_view target, const GpuFacts& gpu,
                                         std::string_view table) {
  const Json mine = table.empty() ? Json::array() : parsed(table);
  static const Json shipped = parsed(shipped_costs());
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
  model.measured_on = measured_gpu(entry).value_or(name);
  model.gpu = gpu;
  if (gpu.multiprocessors == 0)
    model.gpu = {.name = name,
                 .multiprocessors = static_cast<int>(number_of(entry, "multiprocessors", where)),
                 .l2_bytes = static_cast<std::int64_t>(number_of(entry, "l2_bytes", where))};
  model.costs = read_costs<GpuCosts>(*measured, where);
  model.costs.bytes_per_us = number_of(entry, "bytes_per_us", where);
  if (model.costs.bytes_per_us == 0) refuse("bytes_per_us of " + where + " is 0");
  const bool has_own = entry.contains("properties") || first_shipped == nullptr;
  model.properties = read_costs<ChoiceProperties>(
      (has_own ? entry : *first_shipped).value("properties", Json()), where + ", properties");
  if (model.properties.tie_share >= 1)
    refuse(fmt::format("tie_share of {}, properties is no share below 1", where));
  for (const auto& [kind, family] : named_objects(*measured, "families", where).items())
    model.families[kind] = read_costs<FamilyCosts>(family, where + ", " + kind);
  const Json& decoding = named_objects(*measured, "decoding", where);
  for (const std::string_view family : decode_families) {
    const std::string rows(family);
    model.decoding[rows] =
        read_costs<DecodeCosts>(decoding.value(rows, Json()), where + ", decoding " + rows);
  }
  return model;
}

}  // namespace flashcore
