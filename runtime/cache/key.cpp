#include "runtime/cache/key.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "runtime/cache/digest.h"
#include "runtime/cache/envelope.h"

namespace flashcore {

CacheKey make_key(std::span<const std::string_view> fields, std::string kernel) {
  CacheKey key;
  // The length in front keeps ("ab", "c") and ("a", "bc") apart.
  for (const std::string_view field : fields)
    key.preimage += fmt::format("{}:{}\n", field.size(), field);
  key.name = digest_of(key.preimage);
  key.kernel = std::move(kernel);
  return key;
}

CacheKey make_key(const KernelSource& source, const std::string& architecture,
                  std::span<const std::string> options, const Toolchain& toolchain) {
  const std::string schema = fmt::format("flashcore kernel {}", cache_schema),
                    version = toolchain.version.text(), count = std::to_string(options.size()),
                    text = source.text();
  std::vector<std::string_view> fields = {schema, version, toolchain.digest, architecture, count};
  fields.insert(fields.end(), options.begin(), options.end());
  fields.insert(fields.end(), {source.entry, text});
  return make_key(fields, fmt::format("{} for {}", source.name, architecture));
}

}  // namespace flashcore
