#include "runtime/cache/key.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "runtime/cache/digest.h"
#include "runtime/cache/envelope.h"

namespace flashcore {

CacheKey make_key(std::span<const std::string_view> fields, std::string kernel, std::size_t asked) {
  CacheKey key;
  // The length in front keeps ("ab", "c") and ("a", "bc") apart.
  for (std::size_t i = 0; i < fields.size(); ++i) {
    key.preimage += fmt::format("{}:{}\n", fields[i].size(), fields[i]);
    if (i + 1 == asked) key.asked_preimage = key.preimage.size();
  }
  if (asked > 0) {
    key.name = digest_of(std::string_view(key.preimage).substr(0, key.asked_preimage)) + "-";
    key.asked_name = key.name.size();
  }
  key.name += digest_of(key.preimage);
  key.kernel = std::move(kernel);
  return key;
}

CacheKey make_key(const KernelSource& source, const std::string& architecture,
                  std::span<const std::string> options, const Toolchain& toolchain) {
  const std::string schema = fmt::format("flashcore kernel {}", cache_schema),
                    version = toolchain.version.text(), count = std::to_string(options.size()),
                    text = source.text();
  // Options go by the compiler's version: they are part of how, not of what.
  std::vector<std::string_view> fields = {schema, architecture, source.entry, text};
  const std::size_t asked = fields.size();
  fields.insert(fields.end(), {version, toolchain.digest, count});
  fields.insert(fields.end(), options.begin(), options.end());
  return make_key(fields, fmt::format("{} for {}", source.name, architecture), asked);
}

}  // namespace flashcore
