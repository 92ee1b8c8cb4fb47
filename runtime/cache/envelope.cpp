#include "runtime/cache/envelope.h"

#include <cstdint>
#include <cstring>

#include "runtime/cache/digest.h"

namespace flashcore {
namespace {

constexpr std::string_view magic = "FCKERNEL";

// Little endian, like every machine that CUDA runs on.
template <class Integer>
void append(std::string& text, Integer value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class Integer>
Integer take(std::string_view& text) {
  Integer value;
  std::memcpy(&value, text.data(), sizeof value);
  text.remove_prefix(sizeof value);
  return value;
}

}  // namespace

std::string seal(std::span<const std::string_view> sections) {
  std::string file(magic);
  append(file, cache_schema);
  append(file, static_cast<std::uint32_t>(sections.size()));
  for (const std::string_view section : sections) append<std::uint64_t>(file, section.size());
  for (const std::string_view section : sections) file += section;
  return file + raw_digest_of(file);
}

std::optional<std::vector<std::string_view>> unseal(std::string_view file, std::size_t sections) {
  const std::size_t head =
      magic.size() + 2 * sizeof(std::uint32_t) + sections * sizeof(std::uint64_t);
  if (file.size() < head + digest_bytes || !file.starts_with(magic)) return std::nullopt;
  const std::string_view sealed = file.substr(0, file.size() - digest_bytes);
  if (raw_digest_of(sealed) != file.substr(sealed.size())) return std::nullopt;

  // Whole; it may still be of another schema or kind.
  std::string_view rest = sealed.substr(magic.size());
  if (take<std::uint32_t>(rest) != cache_schema || take<std::uint32_t>(rest) != sections) {
    return std::nullopt;
  }
  std::vector<std::uint64_t> sizes(sections);
  for (std::uint64_t& size : sizes) size = take<std::uint64_t>(rest);
  std::vector<std::string_view> found;
  for (const std::uint64_t size : sizes) {
    if (size > rest.size()) return std::nullopt;
    found.push_back(rest.substr(0, size));
    rest.remove_prefix(size);
  }
  if (!rest.empty()) return std::nullopt;
  return found;
}

}  // namespace flashcore
