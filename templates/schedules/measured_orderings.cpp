#include "templates/schedules/measured_orderings.h"

#include <cstddef>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dsl/json.h"
#include "templates/schedules/schedule_parts.h"

namespace flashcore {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t step = 16;  // columns of head_dim that have an ordering in common

std::string_view kind_of_mask(const MaskTraits& mask) {
  if (mask.is_full()) return "full";
  if (!mask.bounds_loop()) return "scan";
  return mask.several() ? "window" : "causal";
}

std::string_view kind_of_score(const SpecTraits& traits) {
  if (traits.score.looks_up) return "lookups";
  if (traits.score.softcap)
    return traits.spec.dtype == DType::f16 ? "softcap_with_maximum" : "softcap";
  if (traits.score.loaded_elements + traits.mask.loaded_elements() > 0) return "loads";
  return traits.spec.score.text.empty() ? "plain" : "positions";
}

struct Table {
  std::map<std::string, Schedule> orderings;
  std::map<std::string, std::vector<const Schedule*>> measured;  ///< by the columns of head_dim

  explicit Table(const Json& json) {
    for (const auto& [number, fields] : json["orderings"].items())
      orderings[number] = schedule_from_json(fields.dump());
    for (const auto& [kind, text] : json["measured"].items()) {
      std::istringstream numbers(text.get<std::string>());
      for (std::string number; numbers >> number;) {
        const auto found = orderings.find(number);
        measured[kind].push_back(found == orderings.end() ? nullptr : &found->second);
      }
    }
  }
};

}  // namespace

const Schedule* measured_ordering(const SpecTraits& traits, std::string_view family) {
  static const Table table(Json::parse(shipped_orderings()));
  const AttentionSpec& spec = traits.spec;
  const bool ragged =
      traits.ragged && (!traits.mask.bounds_loop() || spec.q_lens || family == "64/no_producer");
  const auto found =
      table.measured.find(fmt::format("{} {} {} {}", family, kind_of_mask(traits.mask),
                                      kind_of_score(traits), ragged ? "ragged" : "open"));
  const auto at = static_cast<std::size_t>(widest(spec) - 1) / step;
  return found != table.measured.end() && at < found->second.size() ? found->second[at] : nullptr;
}

}  // namespace flashcore
