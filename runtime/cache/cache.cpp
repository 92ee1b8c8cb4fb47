#include "runtime/cache/cache.h"

#include "dsl/error.h"
#include "runtime/log.h"
#include "runtime/no_fork.h"
#include "runtime/profiler_range.h"

namespace flashcore {
namespace {

/// Takes the machine code from an entry that is whole and that of the key.
EntryStore::Accept accepting(const CacheKey& key, Compiler compiler,
                             std::shared_ptr<const Cubin>& into) {
  return [&key, compiler, &into](std::string_view file) {
    if (std::optional<Cubin> cubin = decode_entry(key, file, compiler))
      into = std::make_shared<const Cubin>(std::move(*cubin));
    return into != nullptr;
  };
}

}  // namespace

KernelCache& KernelCache::shared() {
  const HookDeferral messages_after_the_lock;  // that of the initialisation
  const NoFork whole;
  static auto* const instance = new KernelCache(CacheSettings::from_environment());
  return *instance;
}

KernelCache::KernelCache(CacheSettings settings)
    : entries_(settings),
      folders_(settings.read_only),
      most_kept_bytes_(settings.max_bytes_in_memory) {
  for (const std::string& path : settings.bundles) {
    try {
      bundles_.push_back(Bundle::open(path));
    } catch (const CacheError& error) {
      log_message(LogLevel::warn, "{}", error.what());
      refused_.push_back(error.complaint().what + ": " + error.complaint().why);
    }
  }
}

void KernelCache::add_bundle(std::shared_ptr<const Bundle> bundle) {
  const std::lock_guard lock(mutex_);
  bundles_.push_back(std::move(bundle));
}

std::vector<std::shared_ptr<const Bundle>> KernelCache::bundles() const {
  const std::lock_guard lock(mutex_);
  return bundles_;
}

void KernelCache::set_remote(std::shared_ptr<RemoteStore> remote) {
  std::shared_ptr<RemoteStore> before = std::move(remote);
  {
    const std::lock_guard lock(mutex_);
    remote_.swap(before);
  }
  if (before) before->close();
}

std::shared_ptr<RemoteStore> KernelCache::remote() const {
  const std::lock_guard lock(mutex_);
  return remote_;
}

std::shared_ptr<const Cubin> KernelCache::find_in_bundles(const CacheKey& key) const {
  for (const std::shared_ptr<const Bundle>& bundle : bundles()) {
    for (const BundledKernel* kernel :
         bundle->find(std::string_view(key.name).substr(0, key.asked_name))) {
      try {
        if (auto cubin = decode_entry(key, bundle->read(*kernel), Compiler::any)) {
          log_message(LogLevel::debug, "{} from {}", key.kernel, bundle->path());
          return std::make_shared<const Cubin>(std::move(*cubin));
        }
      } catch (const CacheError& error) {
        log_message(LogLevel::warn, "{}", error.what());
      }
    }
  }
  return nullptr;
}

std::optional<StoredKernel> KernelCache::find_requested(const std::string& request,
                                                        std::string_view target) const {
  const auto start = CacheCounters::Clock::now();
  for (const std::shared_ptr<const Bundle>& bundle : bundles()) {
    const BundledKernel* const found = bundle->find_requested(request);
    if (found == nullptr) continue;
    try {
      StoredKernel kernel = read_stored_kernel(bundle->read(*found), bundle->path());
      if (kernel.key != found->key || kernel.target != target) continue;
      log_message(LogLevel::debug, "{} for {} from {}", kernel.name, target, bundle->path());
      counters_.add(CacheCounters::Source::bundle, fmt::format("{} for {}", kernel.name, target),
                    start, kernel.cubin.bytes.size());
      return kernel;
    } catch (const Error& error) {
      log_message(LogLevel::warn, "{}", error.what());
    }
  }
  return std::nullopt;
}

KernelCache::Outcome KernelCache::get(const CacheKey& key, const Build& build, Compiler compiler) {
  return share(key, [&] { return find_or_build(key, build, compiler); });
}

KernelCache::Outcome KernelCache::get_here(const CacheKey& key, const Build& build) {
  return share(key, [&] {
    return Found{std::make_shared<const Cubin>(build()), Source::compiled};
  });
}

std::shared_ptr<const Cubin> KernelCache::find(const CacheKey& key, Compiler compiler) {
  const HookDeferral messages_after_the_lock;
  const NoFork whole;
  const auto start = CacheCounters::Clock::now();
  if (auto cubin = find_in_memory(key)) {
    counters_.add(Source::memory, key.kernel, start, 0);
    return cubin;
  }
  const Found found = find_on_disk(key, compiler);
  if (found.cubin == nullptr) return nullptr;
  counters_.add(found.source, key.kernel, start, found.cubin->bytes.size());
  const std::lock_guard lock(mutex_);
  alive_[key.preimage] = found.cubin;
  return found.cubin;
}

std::shared_ptr<const Cubin> KernelCache::find_in_memory(const CacheKey& key) {
  const std::lock_guard lock(mutex_);
  const auto known = alive_.find(key.preimage);
  return known == alive_.end() ? nullptr : known->second.lock();
}

KernelCache::Outcome KernelCache::share(const CacheKey& key, const std::function<Found()>& make) {
  const HookDeferral messages_after_the_flight;
  const NoFork whole;
  const auto start = CacheCounters::Clock::now();
  std::promise<Outcome> promise;
  {
    std::unique_lock lock(mutex_);
    if (const auto known = alive_.find(key.preimage); known != alive_.end()) {
      if (auto cubin = known->second.lock()) {
        counters_.add(Source::memory, key.kernel, start, 0);
        return {.cubin = std::move(cubin), .from_cache = true};
      }
    }
    const auto [slot, first] = in_flight_.try_emplace(key.preimage);
    if (!first) {
      const std::shared_future<Outcome> other = slot->second;
      lock.unlock();
      Outcome outcome{.cubin = other.get().cubin, .from_cache = true};
      counters_.add(Source::memory, key.kernel, start, 0);
      return outcome;
    }
    slot->second = promise.get_future().share();
  }
  try {
    const Found found = make();
    counters_.add(found.source, key.kernel, start, found.cubin->bytes.size());
    const Outcome outcome{.cubin = found.cubin, .from_cache = found.source != Source::compiled};
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(alive_, [](const auto& known) { return known.second.expired(); });
      alive_[key.preimage] = outcome.cubin;
      if (directory() == nullptr) keep(outcome.cubin);
      in_flight_.erase(key.preimage);
    }
    promise.set_value(outcome);
    return outcome;
  } catch (...) {
    counters_.add(Source::failed, key.kernel, start, 0);
    {
      const std::lock_guard lock(mutex_);
      in_flight_.erase(key.preimage);
    }
    promise.set_exception(std::current_exception());
    throw;
  }
}

KernelCache::Found KernelCache::find_on_disk(const CacheKey& key, Compiler compiler) {
  const ProfilerRange range("look for a kernel");
  Found found;
  if (key.asked_name > 0) found = {find_in_bundles(key), Source::bundle};
  if (found.cubin) return found;
  const Accept accept = accepting(key, compiler, found.cubin);
  found.source = Source::directory;
  if (compiler == Compiler::any ? entries_.find_alike(EntryKind::kernel, key, accept)
                                : entries_.find(EntryKind::kernel, key, accept))
    return found;
  found.source = Source::folder;
  (void)folders_.find(key, compiler, accept);
  return found;
}

KernelCache::Found KernelCache::find_or_build(const CacheKey& key, const Build& build,
                                              Compiler compiler) {
  Found found = find_on_disk(key, compiler);
  if (found.cubin) return found;
  const Accept accept = accepting(key, compiler, found.cubin);
  found.source = Source::directory;
  // Under the lock of the directory, so that one process of a host asks the store, or compiles.
  entries_.find_or_build(EntryKind::kernel, key, accept, [&] {
    const std::shared_ptr<RemoteStore> store = remote();
    if (store) {
      std::optional<std::string> entry = store->fetch(key, compiler);
      found.source = Source::remote;
      if (entry && accept(*entry)) return std::move(*entry);
    }
    found = {std::make_shared<const Cubin>(build()), Source::compiled};
    std::string entry = encode_entry(key, *found.cubin);
    if (store) store->offer(key, entry);
    return entry;
  });
  return found;
}

// Under the lock.
void KernelCache::keep(std::shared_ptr<const Cubin> cubin) {
  kept_bytes_ += cubin->bytes.size();
  kept_.push_back(std::move(cubin));
  while (kept_bytes_ > most_kept_bytes_ && kept_.size() > 1) {
    kept_bytes_ -= kept_.front()->bytes.size();
    kept_.pop_front();
  }
}

}  // namespace flashcore
