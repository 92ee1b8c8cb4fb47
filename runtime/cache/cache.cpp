#include "runtime/cache/cache.h"

#include <algorithm>

#include <pwd.h>
#include <unistd.h>

#include "dsl/error.h"
#include "runtime/environment.h"
#include "runtime/log.h"
#include "runtime/no_fork.h"

namespace flashcore {
namespace {

constexpr std::string_view kernel_suffix = ".kernel";
constexpr int lock_count = 256;

// How long a kernel may be used without its time being renewed, and how long a writer may take.
constexpr std::chrono::minutes touch_interval{10};
constexpr std::chrono::hours unfinished_age{1};

std::string file_of(const CacheKey& key) { return key.name + std::string(kernel_suffix); }

// A fixed set of lock files, so that none has to be removed. Two kernels that share one wait for
// each other in vain now and then.
int lock_of(const CacheKey& key) {
  return std::stoi(key.name.substr(0, 2), nullptr, 16) % lock_count;
}

std::string home_directory() {
  if (std::string home = system_variable("HOME"); !home.empty()) return home;
  const passwd* user = getpwuid(geteuid());
  return user != nullptr && user->pw_dir != nullptr ? user->pw_dir : "";
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
  if (value_of(EnvironmentVariable::cache) != "off") settings.directory = cache_directory_path();
  settings.max_bytes = number_of(EnvironmentVariable::cache_max_bytes, settings.max_bytes);
  settings.lock_timeout =
      std::chrono::seconds(number_of(EnvironmentVariable::cache_lock_seconds, 60));
  return settings;
}

KernelCache& KernelCache::shared() {
  const LogDeferral messages_after_the_lock;  // that of the initialisation
  const NoFork whole;
  static auto* const instance = new KernelCache(CacheSettings::from_environment());
  return *instance;
}

// The first kernel a process writes also has it look at the size: many short processes would else
// never do.
KernelCache::KernelCache(CacheSettings settings)
    : settings_(std::move(settings)), written_since_trim_(settings_.max_bytes) {
  if (settings_.directory.empty()) {
    log_message(LogLevel::info, "kernels are not cached on disk");
    return;
  }
  std::string why;
  disk_ = CacheDirectory::open(settings_.directory, why);
  if (!disk_) {
    log_message(LogLevel::warn,
                "the cache directory {} is not used: {}. Every process compiles its kernels anew; "
                "set {} to a directory that only you can write to",
                settings_.directory, why, name_of(EnvironmentVariable::cache_dir));
  }
}

KernelCache::Outcome KernelCache::get(const CacheKey& key, const Build& build) {
  const LogDeferral messages_after_the_flight;
  const NoFork whole;
  std::promise<Outcome> promise;
  {
    std::unique_lock lock(mutex_);
    if (const auto known = alive_.find(key.name); known != alive_.end()) {
      if (auto cubin = known->second.lock()) return {.cubin = std::move(cubin), .from_cache = true};
    }
    const auto [slot, first] = in_flight_.try_emplace(key.name);
    if (!first) {
      const std::shared_future<Outcome> other = slot->second;
      lock.unlock();
      return {.cubin = other.get().cubin, .from_cache = true};
    }
    slot->second = promise.get_future().share();
  }
  try {
    Outcome outcome = find_or_build(key, build);
    {
      const std::lock_guard lock(mutex_);
      alive_[key.name] = outcome.cubin;
      if (!disk_) kept_.push_back(outcome.cubin);
      in_flight_.erase(key.name);
    }
    promise.set_value(outcome);
    return outcome;
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      in_flight_.erase(key.name);
    }
    promise.set_exception(std::current_exception());
    throw;
  }
}

KernelCache::Outcome KernelCache::find_or_build(const CacheKey& key, const Build& build) {
  const auto found = [&]() -> std::optional<Outcome> {
    std::optional<Cubin> cubin = load(key);
    if (!cubin) return std::nullopt;
    return Outcome{.cubin = std::make_shared<const Cubin>(std::move(*cubin)), .from_cache = true};
  };
  if (auto hit = found()) return *hit;
  FileLock lock;
  if (disk_) {
    lock = disk_->lock(lock_of(key), settings_.lock_timeout);
    if (auto hit = found()) return *hit;  // another process has compiled it meanwhile
  }
  // What was built is used as it is, whether or not it could be stored and read back.
  Outcome outcome{.cubin = std::make_shared<const Cubin>(build()), .from_cache = false};
  store(key, *outcome.cubin);
  return outcome;
}

std::optional<Cubin> KernelCache::load(const CacheKey& key) {
  if (!disk_) return std::nullopt;
  const std::string name = file_of(key);
  const std::optional<std::string> file = disk_->read(name);
  if (!file) return std::nullopt;
  std::optional<Cubin> cubin = decode_entry(key, *file);
  if (cubin) {
    disk_->touch(name, touch_interval);
    log_message(LogLevel::debug, "{}: {} from the cache", key.kernel, name);
  } else {
    log_message(LogLevel::warn, "{}/{} is damaged or foreign; {} is compiled again", disk_->path(),
                name, key.kernel);
  }
  return cubin;
}

void KernelCache::store(const CacheKey& key, const Cubin& cubin) {
  if (!disk_) return;
  const std::string entry = encode_entry(key, cubin);
  const std::string failure = disk_->write(file_of(key), entry);
  bool tell = false;
  bool full = false;
  {
    const std::lock_guard lock(mutex_);
    if (failure.empty()) {
      // A look at every file costs little next to a compile, yet not nothing: it waits until a good
      // part of the allowance has been written.
      written_since_trim_ += entry.size();
      full = written_since_trim_ >= settings_.max_bytes / 16;
      if (full) written_since_trim_ = 0;
    } else {
      tell = !std::exchange(write_failure_told_, true);
    }
  }
  if (full) trim();
  if (tell) {
    log_message(LogLevel::warn,
                "cannot write to the cache directory {} ({}); kernels compiled by this "
                "process are lost with it",
                disk_->path(), failure);
  }
}

void KernelCache::trim() {
  std::vector<CacheDirectory::File> files = disk_->files();
  const auto now = std::chrono::system_clock::now();
  std::uint64_t total = 0;
  for (const CacheDirectory::File& file : files) {
    if (file.name.starts_with(CacheDirectory::unfinished_prefix) &&
        now - file.last_use > unfinished_age) {
      disk_->remove(file.name);
    } else {
      total += file.bytes;
    }
  }
  if (total <= settings_.max_bytes) return;
  std::erase_if(files, [](const auto& file) { return !file.name.ends_with(kernel_suffix); });
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return a.last_use < b.last_use; });
  // Some room, so that the next kernel does not make this necessary again.
  const std::uint64_t goal = settings_.max_bytes / 8 * 7;
  std::size_t removed = 0;
  for (const CacheDirectory::File& file : files) {
    if (total <= goal) break;
    disk_->remove(file.name);
    total -= file.bytes;
    ++removed;
  }
  log_message(LogLevel::info,
              "{} of {} kernels left the cache directory {} to keep it below {} bytes", removed,
              files.size(), disk_->path(), settings_.max_bytes);
}

}  // namespace flashcore
