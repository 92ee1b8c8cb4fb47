#include "runtime/cache/entry.h"

#include <array>

#include <nlohmann/json.hpp>

#include "runtime/cache/envelope.h"

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
  Resources r;
  json.at("registers").get_to(r.registers);
  json.at("stack_bytes").get_to(r.stack_bytes);
  json.at("spill_store_bytes").get_to(r.spill_store_bytes);
  json.at("spill_load_bytes").get_to(r.spill_load_bytes);
  json.at("static_shared_bytes").get_to(r.static_shared_bytes);
  json.at("barriers").get_to(r.barriers);
  json.at("serialised").get_to(r.serialised);
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
