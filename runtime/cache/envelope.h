// The form of every file in the cache: a magic number, the sizes of its sections, the sections, and
// a digest over all of it. A file is whole or it is not there.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace flashcore {

/// Counts up when the form or the meaning of a section changes; older files are then misses.
constexpr std::uint32_t cache_schema = 3;

std::string seal(std::span<const std::string_view> sections);

/// Views into `file`; nothing unless it is exactly what `seal` wrote, with this many sections.
std::optional<std::vector<std::string_view>> unseal(std::string_view file, std::size_t sections);

}  // namespace flashcore
