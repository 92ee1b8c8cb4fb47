// Compiled kernels, kept between runs. One compile a kernel, however many threads and processes
// ask; and a cache that is damaged, foreign, full or read-only costs time, never a failure.
#pragma once

#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/bundle/bundle.h"
#include "runtime/cache/entry.h"
#include "runtime/cache/entry_store.h"
#include "runtime/cache/read_only_folders.h"
#include "runtime/cache/remote_store.h"
#include "runtime/cache/statistics.h"
#include "runtime/cache/stored_kernel.h"

namespace flashcore {

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
  Outcome get(const CacheKey& key, const Build& build, Compiler compiler = Compiler::this_one);

  /// The same for what is not worth keeping: once in this process, and nothing on disk.
  Outcome get_here(const CacheKey& key, const Build& build);

  /// The kernel of that key, from memory or disk; null where it would have to be built.
  std::shared_ptr<const Cubin> find(const CacheKey& key, Compiler compiler = Compiler::this_one);

  /// From now on kernels of this bundle serve, whichever compiler made them, before the directory
  /// is looked into.
  void add_bundle(std::shared_ptr<const Bundle> bundle);
  [[nodiscard]] std::vector<std::shared_ptr<const Bundle>> bundles() const;
  /// Why bundles of the environment are not used, a sentence each.
  [[nodiscard]] const std::vector<std::string>& refused_bundles() const { return refused_; }

  [[nodiscard]] const ReadOnlyFolders& folders() const { return folders_; }

  /// From now on the last place to look before something is compiled; null: there is none.
  void set_remote(std::shared_ptr<RemoteStore> remote);
  [[nodiscard]] std::shared_ptr<RemoteStore> remote() const;

  /// What a bundle in use keeps for a request (runtime/request.h) of that target.
  [[nodiscard]] std::optional<StoredKernel> find_requested(const std::string& request,
                                                           std::string_view target) const;

  [[nodiscard]] CacheStatistics statistics() const { return counters_.read(); }

  /// Where they are kept on disk, beside what else is.
  [[nodiscard]] EntryStore& entries() { return entries_; }
  [[nodiscard]] const EntryStore& entries() const { return entries_; }
  /// The directory in use; null when everything stays in memory.
  [[nodiscard]] const CacheDirectory* directory() const { return entries_.directory(); }

 private:
  using Source = CacheCounters::Source;
  struct Found {
    std::shared_ptr<const Cubin> cubin;
    Source source = Source::memory;
  };
  using Accept = EntryStore::Accept;

  Outcome share(const CacheKey& key, const std::function<Found()>& make);
  [[nodiscard]] std::shared_ptr<const Cubin> find_in_memory(const CacheKey& key);
  [[nodiscard]] Found find_on_disk(const CacheKey& key, Compiler compiler);
  Found find_or_build(const CacheKey& key, const Build& build, Compiler compiler);
  void keep(std::shared_ptr<const Cubin> cubin);
  [[nodiscard]] std::shared_ptr<const Cubin> find_in_bundles(const CacheKey& key) const;

  EntryStore entries_;
  const ReadOnlyFolders folders_;
  mutable CacheCounters counters_;

  mutable std::mutex mutex_;
  /// By the whole preimage of their key: digests could be equal.
  std::unordered_map<std::string, std::shared_future<Outcome>> in_flight_;
  std::unordered_map<std::string, std::weak_ptr<const Cubin>> alive_;
  std::vector<std::shared_ptr<const Bundle>> bundles_;
  std::vector<std::string> refused_;
  std::shared_ptr<RemoteStore> remote_;
  std::deque<std::shared_ptr<const Cubin>> kept_;  ///< what no directory keeps, the latest last
  std::uint64_t kept_bytes_ = 0;
  const std::uint64_t most_kept_bytes_;
};

}  // namespace flashcore
