// Compiled kernels, kept between runs. One compile a kernel, however many threads and processes
// ask; and a cache that is damaged, foreign, full or read-only costs time, never a failure.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/cache/directory.h"
#include "runtime/cache/entry.h"

namespace flashcore {

/// Where kernels are kept unless that is turned off; empty where there is no home directory.
std::string cache_directory_path();

struct CacheSettings {
  std::string directory;  ///< empty: nothing on disk
  std::uint64_t max_bytes = std::uint64_t{1} << 30;
  std::chrono::milliseconds lock_timeout{60'000};

  static CacheSettings from_environment();
};

class KernelCache {
 public:
  /// The cache of this process, set up from the environment at first use.
  static KernelCache& shared();

  explicit KernelCache(CacheSettings settings);

  struct Outcome {
    std::shared_ptr<const Cubin> cubin;
    bool from_cache = false;
  };
  using Build = std::function<Cubin()>;

  /// The kernel of that key, from memory or disk, else from `build`. Threads that ask for one key
  /// meanwhile wait and get the same object; an exception of `build` reaches all of them.
  Outcome get(const CacheKey& key, const Build& build);

  /// The directory in use; null when everything stays in memory.
  [[nodiscard]] const CacheDirectory* directory() const { return disk_ ? &*disk_ : nullptr; }

 private:
  Outcome find_or_build(const CacheKey& key, const Build& build);
  std::optional<Cubin> load(const CacheKey& key);
  void store(const CacheKey& key, const Cubin& cubin);
  void trim();

  CacheSettings settings_;
  std::optional<CacheDirectory> disk_;

  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_future<Outcome>> in_flight_;
  std::unordered_map<std::string, std::weak_ptr<const Cubin>> alive_;
  std::vector<std::shared_ptr<const Cubin>> kept_;  ///< what no directory keeps
  std::uint64_t written_since_trim_;
  bool write_failure_told_ = false;
};

}  // namespace flashcore
