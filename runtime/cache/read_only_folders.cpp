#include "runtime/cache/read_only_folders.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "runtime/cache/entry_files.h"
#include "runtime/log.h"

namespace flashcore {

ReadOnlyFolders::ReadOnlyFolders(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    std::string why;
    if (auto folder = CacheDirectory::open(path, why, CacheDirectory::Missing::is_refused)) {
      folders_.push_back(std::move(*folder));
      continue;
    }
    refused_.push_back(fmt::format("the folder {} is not read: {}", path, why));
    log_message(LogLevel::warn, "{}", refused_.back());
  }
}

bool ReadOnlyFolders::find(const CacheKey& key, Compiler compiler,
                           const std::function<bool(std::string_view file)>& accept) const {
  for (const CacheDirectory& folder : folders_) {
    const auto take = [&](const std::string& name) {
      const std::optional<std::string> file = folder.read(name);
      if (!file) return false;
      if (accept(*file)) {
        log_message(LogLevel::debug, "{}: {} from {}", key.kernel, name, folder.path());
        return true;
      }
      log_message(LogLevel::warn, "{}/{} is damaged or foreign and not used", folder.path(), name);
      return false;
    };
    if (take(file_of(EntryKind::kernel, key))) return true;
    if (compiler != Compiler::any) continue;
    const std::vector<std::string> alike = files_alike(folder, EntryKind::kernel, key);
    if (std::any_of(alike.begin(), alike.end(), take)) return true;
  }
  return false;
}

std::vector<std::string> ReadOnlyFolders::reasons_of_miss(const CacheKey& key) const {
  std::vector<std::string> reasons = refused_;
  for (const CacheDirectory& folder : folders_) {
    const bool damaged = folder.read(file_of(EntryKind::kernel, key)).has_value() ||
                         !files_alike(folder, EntryKind::kernel, key).empty();
    const std::string_view asked = std::string_view(key.name).substr(0, key.asked_name);
    reasons.push_back(damaged
                          ? fmt::format("it is damaged in the folder {}", folder.path())
                          : fmt::format("the folder {} has no {}*.kernel", folder.path(), asked));
  }
  return reasons;
}

}  // namespace flashcore
