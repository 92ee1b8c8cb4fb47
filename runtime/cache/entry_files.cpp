#include "runtime/cache/entry_files.h"

#include <algorithm>

namespace flashcore {
namespace {

constexpr std::string_view kernel_suffix = ".kernel";
constexpr std::string_view host_code_suffix = ".host";

}  // namespace

std::string file_of(EntryKind kind, const CacheKey& key) {
  return key.name + std::string(kind == EntryKind::host_code ? host_code_suffix : kernel_suffix);
}

bool is_entry(std::string_view file_name) {
  return file_name.ends_with(kernel_suffix) || file_name.ends_with(host_code_suffix);
}

std::vector<std::string> files_alike(const CacheDirectory& directory, EntryKind kind,
                                     const CacheKey& key) {
  std::vector<std::string> names;
  if (key.asked_name == 0) return names;
  const std::string own = file_of(kind, key);
  const std::string_view asked = std::string_view(key.name).substr(0, key.asked_name);
  std::vector<CacheDirectory::File> files = directory.files();
  std::erase_if(files, [&](const CacheDirectory::File& file) {
    return file.name == own || !file.name.starts_with(asked) || !is_entry(file.name);
  });
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return a.last_use > b.last_use; });
  for (CacheDirectory::File& file : files) names.push_back(std::move(file.name));
  return names;
}

}  // namespace flashcore
