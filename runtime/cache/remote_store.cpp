#include "runtime/cache/remote_store.h"

#include <array>
#include <utility>

#include "dsl/error.h"
#include "runtime/bundle/bundle.h"
#include "runtime/log.h"

namespace flashcore {
namespace {

constexpr std::string_view suffix = ".fcb";
// Misses that are remembered: beyond, all are forgotten.
constexpr std::size_t most_missing = 4096;

/// Found by what exactly was asked for and which compiler made it, or by the former alone.
std::string exact_object(const CacheKey& key) { return key.name + std::string(suffix); }
std::string alike_object(const CacheKey& key) {
  std::string name = key.name.substr(0, key.asked_name);
  if (name.ends_with('-')) name.pop_back();
  return name + std::string(suffix);
}

std::string object_of(const CacheKey& key, Compiler compiler) {
  return compiler == Compiler::any && key.asked_name > 0 ? alike_object(key) : exact_object(key);
}

}  // namespace

RemoteStore::RemoteStore(RemoteSettings settings) : settings_(std::move(settings)) {}

std::optional<std::string> RemoteStore::fetch(const CacheKey& key, Compiler compiler) {
  const std::string object = object_of(key, compiler);
  std::optional<std::string> content = request(object);
  if (!content) return std::nullopt;
  const std::string where = settings_.url + "/" + object;
  try {
    const auto bundle = Bundle::from_bytes(std::move(*content), where);
    for (const BundledKernel& kernel : bundle->kernels()) {
      std::string entry = bundle->read(kernel);
      if (decode_entry(key, entry, compiler)) return entry;
    }
    log_message(LogLevel::warn, "{} is of another kernel and not used", where);
  } catch (const CacheError& error) {
    log_message(LogLevel::warn, "{}", error.what());
  }
  return std::nullopt;
}

std::optional<std::string> RemoteStore::request(const std::string& object) {
  const HookDeferral messages_after_the_lock;
  std::unique_lock lock(mutex_);
  const auto now = Clock::now();
  if (closed_ || now < paused_until_) return std::nullopt;
  if (const auto known = missing_.find(object); known != missing_.end()) {
    if (now - known->second < settings_.misses_hold) return std::nullopt;
    missing_.erase(known);
  }
  const std::uint64_t id = next_id_++;
  awaited_.emplace(id, std::nullopt);
  // In front of what is to be written: somebody waits.
  jobs_.push_front({.id = id, .writes = false, .object = object, .content = {}});
  has_jobs_.notify_one();
  has_answers_.wait_for(lock, settings_.timeout,
                        [&] { return closed_ || awaited_.at(id).has_value(); });
  std::optional<Answer> answer = std::move(awaited_.at(id));
  awaited_.erase(id);
  std::erase_if(jobs_, [&](const Job& job) { return job.id == id; });
  if (!answer) {
    if (!closed_) note_failure(fmt::format("no answer in {} ms", settings_.timeout.count()));
    return std::nullopt;
  }
  if (!answer->failure.empty()) {
    note_failure(answer->failure);
    return std::nullopt;
  }
  failures_ = 0;
  if (!answer->content) {
    if (missing_.size() >= most_missing) missing_.clear();
    missing_[object] = Clock::now();
  }
  return std::move(answer->content);
}

void RemoteStore::note_failure(const std::string& failure) {
  last_failure_ = failure;
  if (++failures_ < settings_.failures_before_pause) {
    log_message(LogLevel::info, "the store {} failed: {}", settings_.url, failure);
    return;
  }
  failures_ = 0;
  paused_until_ = Clock::now() + settings_.pause;
  log_message(LogLevel::warn, "the store {} is left alone for {} s, as it failed {} times: {}",
              settings_.url, settings_.pause.count() / 1000, settings_.failures_before_pause,
              failure);
}

void RemoteStore::offer(const CacheKey& key, const std::string& entry) {
  if (!settings_.writes) return;
  const std::string bundle =
      write_bundle({entry}, "[]", settings_.signer ? &*settings_.signer : nullptr);
  const HookDeferral messages_after_the_lock;
  const std::lock_guard lock(mutex_);
  std::array objects{exact_object(key), alike_object(key)};
  for (std::string& object : objects) {
    if (object == suffix) continue;
    if (closed_ || Clock::now() < paused_until_ || writing_.size() >= settings_.most_waiting) {
      log_message(LogLevel::info, "{} is not written to the store {}", object, settings_.url);
      continue;
    }
    missing_.erase(object);
    writing_.insert(next_id_);
    jobs_.push_back(
        {.id = next_id_++, .writes = true, .object = std::move(object), .content = bundle});
    has_jobs_.notify_one();
  }
}

std::optional<RemoteStore::Job> RemoteStore::next(std::chrono::milliseconds wait) {
  std::unique_lock lock(mutex_);
  has_jobs_.wait_for(lock, wait, [&] { return closed_ || !jobs_.empty(); });
  if (closed_ || jobs_.empty()) return std::nullopt;
  Job job = std::move(jobs_.front());
  jobs_.pop_front();
  return job;
}

void RemoteStore::answer(std::uint64_t id, std::optional<std::string> content,
                         const std::string& failure) {
  const HookDeferral messages_after_the_lock;
  const std::lock_guard lock(mutex_);
  if (const auto awaited = awaited_.find(id); awaited != awaited_.end()) {
    awaited->second = Answer{std::move(content), failure};
  } else if (writing_.erase(id) > 0 && !failure.empty()) {
    note_failure(failure);
  }
  has_answers_.notify_all();
}

bool RemoteStore::wait_until_written(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return has_answers_.wait_for(lock, timeout, [&] { return closed_ || writing_.empty(); });
}

void RemoteStore::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  jobs_.clear();
  writing_.clear();
  has_jobs_.notify_all();
  has_answers_.notify_all();
}

bool RemoteStore::is_closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

std::string RemoteStore::reason_of_miss(const CacheKey& key) const {
  const std::lock_guard lock(mutex_);
  if (closed_) return fmt::format("the store {} is closed", settings_.url);
  if (Clock::now() < paused_until_)
    return fmt::format("the store {} is left alone, as it failed: {}", settings_.url,
                       last_failure_);
  return fmt::format("the store {} has no {} that can be used", settings_.url,
                     object_of(key, Compiler::any));
}

}  // namespace flashcore
