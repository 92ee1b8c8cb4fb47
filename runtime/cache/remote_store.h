// A store of kernels that machines share: file server, HTTP, S3. How to reach it is the matter of
// the host program, whose threads carry out what the cache asks for here (Python's do, by fsspec);
// how long that may take, and what to do when it does not work, is decided here.
//
// An object of the store is a bundle of one kernel, so whoever lists signers takes nothing that
// none of them signed.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "runtime/bundle/signature.h"
#include "runtime/cache/entry.h"
#include "runtime/cache/key.h"

namespace flashcore {

struct RemoteSettings {
  std::string url;  ///< for messages
  bool writes = false;
  std::optional<SecretKey> signer;
  std::chrono::milliseconds timeout{2'000};  ///< of one request of the cache
  /// What was not there is not asked for again for so long.
  std::chrono::milliseconds misses_hold{60'000};
  /// After so many failures in a row nothing is asked for that long.
  int failures_before_pause = 3;
  std::chrono::milliseconds pause{60'000};
  std::size_t most_waiting = 256;  ///< kernels to be written; more are dropped
};

/// Thread-safe.
class RemoteStore {
 public:
  explicit RemoteStore(RemoteSettings settings);

  [[nodiscard]] const std::string& url() const { return settings_.url; }

  /// The entry of that key, or one that asks for the same where any compiler's serve; nothing where
  /// there is none, where what is there cannot be believed, and after the time-out.
  std::optional<std::string> fetch(const CacheKey& key, Compiler compiler);

  /// Queues an entry to be written, and does not wait. Does nothing where the store is only read.
  void offer(const CacheKey& key, const std::string& entry);

  /// For the threads that reach the store: what to do next; nothing after `wait`, or once closed.
  struct Job {
    std::uint64_t id = 0;
    bool writes = false;
    std::string object;   ///< its name in the store
    std::string content;  ///< to be written
  };
  std::optional<Job> next(std::chrono::milliseconds wait);

  /// What came of a job: of reading, the content, or nothing if the store has no such object. Else
  /// `failure` says what went wrong.
  void answer(std::uint64_t id, std::optional<std::string> content, const std::string& failure);

  /// Waits until what is to be written was; false after `timeout`.
  bool wait_until_written(std::chrono::milliseconds timeout);
  /// No job is given out from now on, and nobody waits for one.
  void close();
  [[nodiscard]] bool is_closed() const;

  /// Why `fetch` found nothing, in words.
  [[nodiscard]] std::string reason_of_miss(const CacheKey& key) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Answer {
    std::optional<std::string> content;
    std::string failure;
  };

  std::optional<std::string> request(const std::string& object);
  void note_failure(const std::string& failure);  // under the lock

  const RemoteSettings settings_;
  mutable std::mutex mutex_;
  std::condition_variable has_jobs_, has_answers_;
  std::deque<Job> jobs_;
  std::map<std::uint64_t, std::optional<Answer>> awaited_;  ///< by those who asked
  std::unordered_map<std::string, Clock::time_point> missing_;
  std::uint64_t next_id_ = 1;
  std::set<std::uint64_t> writing_;  ///< jobs that have no answer yet
  int failures_ = 0;                 ///< in a row
  Clock::time_point paused_until_{};
  std::string last_failure_;
  bool closed_ = false;
};

}  // namespace flashcore
