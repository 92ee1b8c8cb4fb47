#include "runtime/emulator/host_prelude.h"

#include <set>

#include <fmt/format.h>

#include "dsl/error.h"

namespace flashcore {
namespace {

/// A file of the device's prelude that asks for another one gets the emulator's counterpart of
/// that.
const PreludeFile& file_named(std::string_view name) {
  const std::string counterpart = fmt::format("{}.h", name.substr(0, name.find('.')));
  for (const PreludeFile& file : emulator_prelude())
    if (file.name == name || file.name == counterpart) return file;
  for (const PreludeFile& file : device_prelude())
    if (file.name == name) return file;
  throw InternalError(
      fmt::format("the emulator's prelude includes {}, which is not embedded", name));
}

void append(std::string& text, std::set<std::string_view>& seen, std::string_view name) {
  constexpr std::string_view include = "#include \"";
  const PreludeFile& file = file_named(name);
  if (!seen.insert(file.name).second) return;
  text += fmt::format("#line 1 \"{}\"\n", file.name);
  int number = 1;
  for (std::string_view rest = file.text; !rest.empty(); ++number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end);
    if (line.starts_with(include)) {
      const std::string_view inner = line.substr(include.size());
      append(text, seen, inner.substr(0, inner.find('"')));
      text += fmt::format("#line {} \"{}\"\n", number + 1, file.name);
    } else {
      text += line.starts_with("#pragma once") ? "\n" : line;
    }
  }
}

}  // namespace

std::string expand_prelude(std::string_view name) {
  std::string text;
  std::set<std::string_view> seen;
  append(text, seen, name);
  return text;
}

}  // namespace flashcore
