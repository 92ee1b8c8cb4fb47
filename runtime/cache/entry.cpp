#include "runtime/cache/entry.h"

#include <array>
#include <limits>

#include <nlohmann/json.hpp>

#include "runtime/cache/envelope.h"
#include "runtime/cache/strict_fields.h"

namespace flashcore {
namespace {

nlohmann::json to_json(const Resources& r) {
  return {{"registers", r.registers},
          {"stack_bytes", r.stack_bytes},
          {"spill_store_bytes", r.spill_store_bytes},
          {"spill_load_bytes", r.spill_load_bytes},
          {"static_shared_bytes", r.static_shared_bytes},
          {"barriers", r.barriers},
          {"serialised", r.serialised}};
}

Resources resources_from(const nlohmann::json& json) {
  constexpr int most = std::numeric_limits<int>::max();
  Resources r;
  StrictFields fields(json);
  fields.whole("registers", r.registers, 0, most);
  fields.whole("stack_bytes", r.stack_bytes, 0, most);
  fields.whole("spill_store_bytes", r.spill_store_bytes, 0, most);
  fields.whole("spill_load_bytes", r.spill_load_bytes, 0, most);
  fields.whole("static_shared_bytes", r.static_shared_bytes, 0, most);
  fields.whole("barriers", r.barriers, 0, most);
  fields.list("serialised", r.serialised,
              [](const nlohmann::json& line) { return line.get<std::string>(); });
  fields.finish();
  return r;
}

}  // namespace

std::string encode_entry(const CacheKey& key, const Cubin& cubin) {
  // No time, path or host in it: the same kernel is the same file everywhere.
  const std::string header = nlohmann::json{
      {"kernel", key.kernel},
      {"key", key.name},
      {"resources",
       to_json(cubin.resources)}}.dump(2);
  return seal(std::array<std::string_view, 3>{header, key.preimage, cubin.bytes});
}

std::optional<EntryParts> read_entry(std::string_view file) {
  const auto sections = unseal(file, 3);
  if (!sections) return std::nullopt;
  const auto header = nlohmann::json::parse((*sections)[0], nullptr, false);
  try {
    return EntryParts{.kernel = header.at("kernel").get<std::string>(),
                      .key = header.at("key").get<std::string>(),
                      .resources = resources_from(header.at("resources")),
                      .preimage = (*sections)[1],
                      .code = (*sections)[2]};
  } catch (const nlohmann::json::exception&) {  // whole, yet not ours: written by hand
    return std::nullopt;
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
}

std::optional<Cubin> decode_entry(const CacheKey& key, std::string_view file, Compiler compiler) {
  const std::optional<EntryParts> parts = read_entry(file);
  if (!parts) return std::nullopt;
  if (parts->preimage != key.preimage &&
      !(compiler == Compiler::any && key.asks_for(parts->preimage)))
    return std::nullopt;
  return Cubin{.bytes = std::string(parts->code),
               .resources = parts->resources,
               .made_by = std::string(parts->preimage.substr(key.asked_preimage))};
}

}  // namespace flashcore
