#include "runtime/cache/cache.h"

#include "dsl/error.h"
#include "runtime/log.h"
#include "runtime/no_fork.h"

namespace flashcore {

KernelCache& KernelCache::shared() {
  const LogDeferral messages_after_the_lock;  // that of the initialisation
  const NoFork whole;
  static auto* const instance = new KernelCache(CacheSettings::from_environment());
  return *instance;
}

KernelCache::KernelCache(CacheSettings settings) : entries_(settings) {
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
      counters_.add(CacheCounters::Source::bundle, start, kernel.cubin.bytes.size());
      return kernel;
    } catch (const Error& error) {
      log_message(LogLevel::warn, "{}", error.what());
    }
  }
  return std::nullopt;
}

KernelCache::Outcome KernelCache::get(const CacheKey& key, const Build& build, Compiler compiler) {
  const LogDeferral messages_after_the_flight;
  const NoFork whole;
  using Source = CacheCounters::Source;
  const auto start = CacheCounters::Clock::now();
  std::promise<Outcome> promise;
  {
    std::unique_lock lock(mutex_);
    if (const auto known = alive_.find(key.preimage); known != alive_.end()) {
      if (auto cubin = known->second.lock()) {
        counters_.add(Source::memory, start, 0);
        return {.cubin = std::move(cubin), .from_cache = true};
      }
    }
    const auto [slot, first] = in_flight_.try_emplace(key.preimage);
    if (!first) {
      const std::shared_future<Outcome> other = slot->second;
      lock.unlock();
      Outcome outcome{.cubin = other.get().cubin, .from_cache = true};
      counters_.add(Source::memory, start, 0);
      return outcome;
    }
    slot->second = promise.get_future().share();
  }
  try {
    Outcome outcome = find_or_build(key, build, compiler);
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(alive_, [](const auto& known) { return known.second.expired(); });
      alive_[key.preimage] = outcome.cubin;
      if (directory() == nullptr) kept_.push_back(outcome.cubin);
      in_flight_.erase(key.preimage);
    }
    promise.set_value(outcome);
    return outcome;
  } catch (...) {
    counters_.add(Source::failed, start, 0);
    {
      const std::lock_guard lock(mutex_);
      in_flight_.erase(key.preimage);
    }
    promise.set_exception(std::current_exception());
    throw;
  }
}

KernelCache::Outcome KernelCache::find_or_build(const CacheKey& key, const Build& build,
                                                Compiler compiler) {
  using Source = CacheCounters::Source;
  const auto start = CacheCounters::Clock::now();
  Outcome outcome;
  const auto found_in = [&](Source source) {
    outcome.from_cache = source != Source::compiled;
    counters_.add(source, start, outcome.cubin->bytes.size());
    return outcome;
  };
  if (key.asked_name > 0) outcome.cubin = find_in_bundles(key);
  if (outcome.cubin) return found_in(Source::bundle);
  const auto take = [&](Cubin cubin) {
    outcome.cubin = std::make_shared<const Cubin>(std::move(cubin));
  };
  const auto accept = [&](std::string_view file) {
    std::optional<Cubin> cubin = decode_entry(key, file, compiler);
    if (cubin) take(std::move(*cubin));
    return cubin.has_value();
  };
  if (compiler == Compiler::any && entries_.find_alike(EntryKind::kernel, key, accept))
    return found_in(Source::directory);
  const bool found = entries_.find_or_build(EntryKind::kernel, key, accept, [&] {
    take(build());
    return encode_entry(key, *outcome.cubin);
  });
  return found_in(found ? Source::directory : Source::compiled);
}

}  // namespace flashcore
