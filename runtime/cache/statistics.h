// What the cache of a process has done so far.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "runtime/events.h"

namespace flashcore {

/// Kernels that were asked for, by where they were found, with times and sizes.
struct CacheStatistics {
  std::uint64_t memory = 0;  ///< found where this process keeps it, or compiled by another thread
  std::uint64_t bundle = 0;  ///< read from a bundle
  std::uint64_t directory = 0;  ///< read from the cache's directory, or compiled there meanwhile
  std::uint64_t folder = 0;     ///< read from a read-only folder
  std::uint64_t remote = 0;     ///< read from the store that machines share
  std::uint64_t compiled = 0;   ///< by this process
  std::uint64_t failed = 0;     ///< neither found nor compiled
  std::uint64_t bytes_loaded = 0, bytes_compiled = 0;  ///< of machine code
  double load_ms = 0, compile_ms = 0;                  ///< together; reading with all its checks
};

/// Counts for a CacheStatistics, from any thread.
class CacheCounters {
 public:
  using Source = KernelEventKind;
  using Clock = std::chrono::steady_clock;

  /// Counts, and tells who listens (runtime/events.h).
  void add(Source source, const std::string& kernel, Clock::time_point start, std::uint64_t bytes);
  [[nodiscard]] CacheStatistics read() const;

 private:
  std::atomic<std::uint64_t> counts_[7] = {};
  std::atomic<std::uint64_t> bytes_loaded_ = 0, bytes_compiled_ = 0;
  std::atomic<std::int64_t> load_ns_ = 0, compile_ns_ = 0;
};

}  // namespace flashcore
