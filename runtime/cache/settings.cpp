#include "runtime/cache/settings.h"

#include <sstream>

#include <pwd.h>
#include <unistd.h>

#include "runtime/environment.h"

namespace flashcore {
namespace {

std::string home_directory() {
  if (std::string home = system_variable("HOME"); !home.empty()) return home;
  const passwd* user = getpwuid(geteuid());
  return user != nullptr && user->pw_dir != nullptr ? user->pw_dir : "";
}

std::vector<std::string> paths_of(EnvironmentVariable variable) {
  std::vector<std::string> paths;
  std::istringstream text(value_of(variable).value_or(""));
  for (std::string path; std::getline(text, path, ':');)
    if (!path.empty()) paths.push_back(path);
  return paths;
}

}  // namespace

std::string cache_directory_path() {
  if (const auto named = value_of(EnvironmentVariable::cache_dir)) return *named;
  if (const std::string base = system_variable("XDG_CACHE_HOME"); base.starts_with('/')) {
    return base + "/flashcore";
  }
  const std::string home = home_directory();
  return home.empty() ? "" : home + "/.cache/flashcore";
}

CacheSettings CacheSettings::from_environment() {
  CacheSettings settings;
  if (choice_of(EnvironmentVariable::cache) != "off") settings.directory = cache_directory_path();
  settings.max_bytes = number_of(EnvironmentVariable::cache_max_bytes, settings.max_bytes);
  settings.lock_timeout =
      std::chrono::seconds(number_of(EnvironmentVariable::cache_lock_seconds, 60));
  settings.bundles = paths_of(EnvironmentVariable::bundles);
  settings.read_only = paths_of(EnvironmentVariable::cache_read);
  return settings;
}

}  // namespace flashcore
