// A cache in a directory of the test's own, and "compilers" that are counted.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "runtime/cache/cache.h"
#include "runtime/log.h"
#include "tests/runtime/support/kernels.h"
#include "tests/runtime/support/temporary_directory.h"

namespace flashcore::test {

inline CacheKey key_of(const std::string& body) {
  KernelSource source = test::scale_kernel();
  source.body = body;
  return make_key(source, "sm_80", {}, {});
}

class KernelCacheTest : public testing::Test {
 protected:
  KernelCacheTest() {
    set_log_hook([this](LogLevel level, std::string_view text) {
      if (level == LogLevel::warn) warnings.emplace_back(text);
    });
  }
  ~KernelCacheTest() override { set_log_hook({}); }

  KernelCache::Outcome get(KernelCache& cache, const std::string& body = "a",
                           std::size_t bytes = 1000) {
    return cache.get(key_of(body), [&] {
      ++builds;
      return Cubin{.bytes = body + std::string(bytes, 'c'), .resources = {}};
    });
  }
  [[nodiscard]] std::string file_of(const std::string& body) const {
    return directory + "/" + key_of(body).name + ".kernel";
  }
  // A user who is not root, who could write anywhere.
  static bool unprivileged() { return geteuid() != 0 || seteuid(12345) == 0; }

  TemporaryDirectory temporary;
  std::string directory = temporary / "cache";
  std::atomic<int> builds = 0;
  std::vector<std::string> warnings;
};

}  // namespace flashcore::test
