#include "runtime/cache/entry_store.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "runtime/environment.h"
#include "runtime/log.h"

namespace flashcore {
namespace {

constexpr int lock_count = 256;

// How long an entry may be used without its time being renewed, and how long a writer may take.
constexpr std::chrono::minutes touch_interval{10};
constexpr std::chrono::hours unfinished_age{1};

constexpr std::string_view kernel_suffix = ".kernel";
constexpr std::string_view host_code_suffix = ".host";

std::string file_of(EntryKind kind, const CacheKey& key) {
  return key.name + std::string(kind == EntryKind::host_code ? host_code_suffix : kernel_suffix);
}

bool is_entry(const CacheDirectory::File& file) {
  return file.name.ends_with(kernel_suffix) || file.name.ends_with(host_code_suffix);
}

CacheDirectory::Owner owner_of(EntryKind kind) {
  return kind == EntryKind::host_code ? CacheDirectory::Owner::user
                                      : CacheDirectory::Owner::user_or_root;
}

// A fixed set of lock files, so that none has to be removed. Two entries that share one wait for
// each other in vain now and then.
int lock_of(const CacheKey& key) {
  return std::stoi(key.name.substr(0, 2), nullptr, 16) % lock_count;
}

}  // namespace

// The first entry a process writes also has it look at the size: many short processes would else
// never do.
EntryStore::EntryStore(CacheSettings settings)
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

bool EntryStore::find_or_build(EntryKind kind, const CacheKey& key, const Accept& accept,
                               const Build& build) {
  const std::string name = file_of(kind, key);
  if (load(kind, name, key, accept)) return true;
  FileLock lock;
  if (disk_) {
    lock = disk_->lock(lock_of(key), settings_.lock_timeout);
    if (load(kind, name, key, accept)) return true;  // another process has compiled it meanwhile
  }
  // What was built is used as it is, whether or not it could be stored and read back.
  store(kind, key, build());
  return false;
}

bool EntryStore::find_alike(EntryKind kind, const CacheKey& key, const Accept& accept) const {
  if (!disk_) return false;
  const std::string own = file_of(kind, key);
  if (load(kind, own, key, accept)) return true;
  if (key.asked_name == 0) return false;
  const std::string_view asked = std::string_view(key.name).substr(0, key.asked_name);
  std::vector<CacheDirectory::File> files = disk_->files();
  std::erase_if(files, [&](const CacheDirectory::File& file) {
    return file.name == own || !file.name.starts_with(asked) || !is_entry(file);
  });
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return a.last_use > b.last_use; });
  return std::any_of(files.begin(), files.end(), [&](const CacheDirectory::File& file) {
    return load(kind, file.name, key, accept);
  });
}

bool EntryStore::load(EntryKind kind, const std::string& name, const CacheKey& key,
                      const Accept& accept) const {
  if (!disk_) return false;
  const std::optional<std::string> file = disk_->read(name, owner_of(kind));
  if (!file) return false;
  if (!accept(*file)) {
    log_message(LogLevel::warn, "{}/{} is damaged or foreign; {} is compiled again", disk_->path(),
                name, key.kernel);
    return false;
  }
  disk_->touch(name, touch_interval);
  log_message(LogLevel::debug, "{}: {} from the cache", key.kernel, name);
  return true;
}

void EntryStore::store(EntryKind kind, const CacheKey& key, std::string_view file) {
  if (!disk_) return;
  const std::string failure = disk_->write(file_of(kind, key), file);
  bool tell = false;
  bool full = false;
  {
    const std::lock_guard lock(mutex_);
    if (failure.empty()) {
      // A look at every file costs little next to a compile, yet not nothing: it waits until a good
      // part of the allowance has been written.
      written_since_trim_ += file.size();
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

void EntryStore::trim() const {
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
  std::erase_if(files, [](const auto& file) { return !is_entry(file); });
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
