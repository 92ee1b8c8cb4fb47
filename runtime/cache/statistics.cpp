#include "runtime/cache/statistics.h"

namespace flashcore {

void CacheCounters::add(Source source, const std::string& kernel, Clock::time_point start,
                        std::uint64_t bytes) {
  const auto ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
  constexpr double ms = 1e-6;
  tell({.kind = source, .kernel = kernel, .ms = static_cast<double>(ns) * ms, .bytes = bytes});
  counts_[static_cast<int>(source)].fetch_add(1, std::memory_order_relaxed);
  if (source == Source::compiled) {
    bytes_compiled_.fetch_add(bytes, std::memory_order_relaxed);
    compile_ns_.fetch_add(ns, std::memory_order_relaxed);
  } else if (source != Source::memory && source != Source::failed) {
    bytes_loaded_.fetch_add(bytes, std::memory_order_relaxed);
    load_ns_.fetch_add(ns, std::memory_order_relaxed);
  }
}

CacheStatistics CacheCounters::read() const {
  const auto count = [&](Source source) {
    return counts_[static_cast<int>(source)].load(std::memory_order_relaxed);
  };
  constexpr double ms = 1e-6;
  return {.memory = count(Source::memory),
          .bundle = count(Source::bundle),
          .directory = count(Source::directory),
          .folder = count(Source::folder),
          .remote = count(Source::remote),
          .compiled = count(Source::compiled),
          .failed = count(Source::failed),
          .bytes_loaded = bytes_loaded_,
          .bytes_compiled = bytes_compiled_,
          .load_ms = static_cast<double>(load_ns_) * ms,
          .compile_ms = static_cast<double>(compile_ns_) * ms};
}

}  // namespace flashcore
