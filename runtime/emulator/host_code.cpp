#include "runtime/emulator/host_code.h"

#include <array>
#include <fstream>

#include <fmt/format.h>

#include "runtime/cache/envelope.h"

namespace flashcore {
const std::string& boot_of_machine() {
  static const std::string boot = [] {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string line;
    std::getline(file, line);
    return line;
  }();
  return boot;
}

CacheKey host_code_key(const HostCodeOrigin& origin, const std::string& kernel) {
  const std::string schema = fmt::format("flashcore host code {}", cache_schema),
                    count = std::to_string(origin.flags.size());
  std::vector<std::string_view> fields = {schema, origin.boot, origin.compiler, count};
  fields.insert(fields.end(), origin.flags.begin(), origin.flags.end());
  fields.emplace_back(origin.text);
  return make_key(fields, fmt::format("{} for the CPU", kernel));
}

std::string encode_host_code(const CacheKey& key, std::string_view library) {
  return seal(std::array<std::string_view, 2>{key.preimage, library});
}

std::optional<std::string_view> decode_host_code(const CacheKey& key, std::string_view file) {
  const auto sections = unseal(file, 2);
  if (!sections || (*sections)[0] != key.preimage) return std::nullopt;
  return (*sections)[1];
}

}  // namespace flashcore
