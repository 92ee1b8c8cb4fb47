#include "runtime/cache/key.h"

#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "runtime/cache/digest.h"
#include "runtime/cache/envelope.h"
#include "runtime/cache/launch_data.h"

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

std::optional<std::vector<std::string_view>> fields_of(std::string_view preimage) {
  std::vector<std::string_view> fields;
  while (!preimage.empty()) {
    std::size_t size = 0;
    const char* const end = preimage.data() + preimage.size();
    const auto [after, error] = std::from_chars(preimage.data(), end, size);
    const auto left = static_cast<std::size_t>(end - after);
    // A colon in front of the field, the end of the line behind it.
    if (error != std::errc() || left < 2 || *after != ':' || size > left - 2 ||
        after[1 + size] != '\n')
      return std::nullopt;
    fields.emplace_back(after + 1, size);
    preimage.remove_prefix(preimage.size() - left + size + 2);
  }
  return fields;
}

CacheKey make_key(const KernelSource& source, const std::string& architecture,
                  std::span<const std::string> options, const Toolchain& toolchain) {
  const std::string schema = fmt::format("flashcore kernel {}", cache_schema),
                    version = toolchain.version.text(), count = std::to_string(options.size()),
                    text = source.text(), launch = write_launch_data(source);
  // Options go by the compiler's version: they are part of how, not of what.
  std::vector<std::string_view> fields = {schema, architecture, source.entry, text, launch};
  fields.insert(fields.end(), {version, toolchain.digest, count});
  fields.insert(fields.end(), options.begin(), options.end());
  return make_key(fields, fmt::format("{} for {}", source.name, architecture), kernel_fields_asked);
}

}  // namespace flashcore
