#include "runtime/cache/key.h"

#include <fmt/format.h>

#include "runtime/cache/digest.h"
#include "runtime/cache/envelope.h"

namespace flashcore {
namespace {

// The length in front keeps ("ab", "c") and ("a", "bc") apart.
void add(std::string& preimage, std::string_view field) {
  preimage += fmt::format("{}:", field.size());
  preimage += field;
  preimage += '\n';
}

}  // namespace

CacheKey make_key(const KernelSource& source, const std::string& architecture,
                  std::span<const std::string> options, const Toolchain& toolchain) {
  CacheKey key;
  add(key.preimage, fmt::format("flashcore kernel {}", cache_schema));
  add(key.preimage, toolchain.version.text());
  add(key.preimage, toolchain.digest);
  add(key.preimage, architecture);
  add(key.preimage, std::to_string(options.size()));
  for (const std::string& option : options) add(key.preimage, option);
  add(key.preimage, source.name);
  add(key.preimage, source.text());
  key.name = digest_of(key.preimage);
  key.kernel = fmt::format("{} for {}", source.name, architecture);
  return key;
}

}  // namespace flashcore
