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

// How long an entry may be used without its time being renewed.
constexpr std::chrono::minutes touch_interval{10};

constexpr std::string_view damaged_suffix = ".damaged";

bool is_damaged(const CacheDirectory::File& file) { return file.name.ends_with(damaged_suffix); }

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
    why_no_directory_ = "kernels are not kept on disk";
    return;
  }
  const std::lock_guard lock(mutex_);
  open();
  if (directory() == nullptr) {
    log_message(LogLevel::warn,
                "{}. Every process compiles its kernels anew; set {} to a directory that only you "
                "can write to",
                why_no_directory_, name_of(EnvironmentVariable::cache_dir));
  }
}

// Under the lock.
void EntryStore::open() {
  tried_ = std::chrono::steady_clock::now();
  std::string why;
  if (std::optional<CacheDirectory> opened = CacheDirectory::open(settings_.directory, why)) {
    opened_.push_back(std::make_unique<const CacheDirectory>(std::move(*opened)));
    disk_ = opened_.back().get();
  } else {
    why_no_directory_ =
        fmt::format("the cache directory {} is not used: {}", settings_.directory, why);
  }
}

void EntryStore::open_again_if_due() {
  if (directory() != nullptr || settings_.directory.empty()) return;
  const std::lock_guard lock(mutex_);
  if (directory() == nullptr &&
      std::chrono::steady_clock::now() - tried_ >= settings_.open_again_after)
    open();
}

std::string EntryStore::why_no_directory() const {
  const std::lock_guard lock(mutex_);
  return why_no_directory_;
}

bool EntryStore::find_or_build(EntryKind kind, const CacheKey& key, const Accept& accept,
                               const Build& build) {
  const std::string name = file_of(kind, key);
  open_again_if_due();
  if (load(kind, name, key, accept)) return true;
  FileLock lock;
  if (const CacheDirectory* const disk = directory()) {
    lock = disk->lock(lock_of(key), settings_.lock_timeout);
    if (load(kind, name, key, accept)) return true;  // another process has compiled it meanwhile
  }
  // What was built is used as it is, whether or not it could be stored and read back.
  store(kind, key, build());
  return false;
}

bool EntryStore::find(EntryKind kind, const CacheKey& key, const Accept& accept) {
  open_again_if_due();
  return load(kind, file_of(kind, key), key, accept);
}

bool EntryStore::find_alike(EntryKind kind, const CacheKey& key, const Accept& accept) const {
  const CacheDirectory* const disk = directory();
  if (disk == nullptr) return false;
  if (load(kind, file_of(kind, key), key, accept)) return true;
  const std::vector<std::string> alike = files_alike(*disk, kind, key);
  return std::any_of(alike.begin(), alike.end(),
                     [&](const std::string& name) { return load(kind, name, key, accept); });
}

bool EntryStore::load(EntryKind kind, const std::string& name, const CacheKey& key,
                      const Accept& accept) const {
  const CacheDirectory* const disk = directory();
  if (disk == nullptr) return false;
  const std::optional<std::string> file = disk->read(name, owner_of(kind));
  if (!file) return false;
  if (!accept(*file)) {
    // Set aside, for whoever wants to know what happened to it; it is the first to leave.
    const std::string aside = fmt::format("{}{}", name, damaged_suffix);
    const bool renamed = disk->rename(name, aside);
    log_message(LogLevel::warn, "{}/{} is damaged or foreign{}; {} is compiled again", disk->path(),
                name, renamed ? " and set aside as *" + std::string(damaged_suffix) : "",
                key.kernel);
    return false;
  }
  disk->touch(name, touch_interval);
  log_message(LogLevel::debug, "{}: {} from the cache", key.kernel, name);
  return true;
}

std::string EntryStore::write(EntryKind kind, const CacheKey& key, std::string_view file) {
  const CacheDirectory* disk = directory();
  std::string failure = disk->write(file_of(kind, key), file);
  if (failure.empty() || disk->is_at_path()) return failure;
  {
    const std::lock_guard lock(mutex_);
    if (disk == directory()) open();
    if (disk == directory()) return failure;
  }
  return directory()->write(file_of(kind, key), file);
}

void EntryStore::store(EntryKind kind, const CacheKey& key, std::string_view file) {
  if (directory() == nullptr || file.empty()) return;
  const std::string failure = write(kind, key, file);
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
  if (full) trim(*directory());
  if (tell) {
    log_message(LogLevel::warn,
                "cannot write to the cache directory {} ({}); kernels compiled by this "
                "process are lost with it",
                directory()->path(), failure);
  }
}

void EntryStore::trim(const CacheDirectory& disk) const {
  disk.sweep();
  std::vector<CacheDirectory::File> files = disk.files();
  std::uint64_t total = 0;
  for (const CacheDirectory::File& file : files) total += file.bytes;
  if (total <= settings_.max_bytes) return;
  std::erase_if(files, [](const auto& file) { return !is_entry(file.name) && !is_damaged(file); });
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) {
    return is_damaged(a) != is_damaged(b) ? is_damaged(a) : a.last_use < b.last_use;
  });
  // Some room, so that the next kernel does not make this necessary again.
  const std::uint64_t goal = settings_.max_bytes / 8 * 7;
  std::size_t removed = 0;
  for (const CacheDirectory::File& file : files) {
    if (total <= goal) break;
    disk.remove(file.name);
    total -= file.bytes;
    ++removed;
  }
  log_message(LogLevel::info,
              "{} of {} kernels left the cache directory {} to keep it below {} bytes", removed,
              files.size(), disk.path(), settings_.max_bytes);
}

}  // namespace flashcore
