// The files of the cache, whatever they hold: each is made once among all processes, read back only
// where its owner can be trusted, and they stay within one size together.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cache/directory.h"
#include "runtime/cache/entry_files.h"
#include "runtime/cache/key.h"
#include "runtime/cache/settings.h"

namespace flashcore {

/// Thread-safe.
class EntryStore {
 public:
  explicit EntryStore(CacheSettings settings);

  /// The directory in use; null when nothing is on disk. One that was deleted is made again when
  /// something is to be kept, and what was returned before stays valid.
  [[nodiscard]] const CacheDirectory* directory() const { return disk_; }
  /// In words.
  [[nodiscard]] std::string why_no_directory() const;

  /// Takes what it needs from an entry's file; false if that is damaged or foreign.
  using Accept = std::function<bool(std::string_view file)>;
  /// Makes the entry, and returns its file; empty if that cannot be kept.
  using Build = std::function<std::string()>;

  /// Whether `accept` took the file of that key. If not, `build` has been called, and what it
  /// returned is kept for others where that is possible. Processes that ask for one key at the same
  /// time wait for the first. Passes on what the two throw.
  bool find_or_build(EntryKind kind, const CacheKey& key, const Accept& accept, const Build& build);

  /// Whether `accept` took the file of that key.
  bool find(EntryKind kind, const CacheKey& key, const Accept& accept);

  /// Whether `accept` took the file of that key or of one that asks for the same, those of the
  /// latest use first.
  bool find_alike(EntryKind kind, const CacheKey& key, const Accept& accept) const;

 private:
  bool load(EntryKind kind, const std::string& name, const CacheKey& key,
            const Accept& accept) const;
  void store(EntryKind kind, const CacheKey& key, std::string_view file);
  /// `file` under the key's name in the directory, which is made again if it was deleted. The
  /// reason of a failure, or an empty text.
  std::string write(EntryKind kind, const CacheKey& key, std::string_view file);
  void open();
  void open_again_if_due();
  void trim(const CacheDirectory& disk) const;

  CacheSettings settings_;
  std::atomic<const CacheDirectory*> disk_ = nullptr;

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<const CacheDirectory>> opened_;
  std::chrono::steady_clock::time_point tried_;
  std::string why_no_directory_;
  std::uint64_t written_since_trim_;
  bool write_failure_told_ = false;
};

}  // namespace flashcore
