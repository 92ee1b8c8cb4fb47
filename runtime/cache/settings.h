// What the environment says of the cache: where it is, how large it may get, how long to wait.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace flashcore {

/// Where kernels are kept unless that is turned off; empty where there is no home directory.
std::string cache_directory_path();

struct CacheSettings {
  std::string directory;  ///< empty: nothing on disk
  std::uint64_t max_bytes = std::uint64_t{1} << 30;
  /// Of machine code that nobody uses and no directory keeps.
  std::uint64_t max_bytes_in_memory = std::uint64_t{256} << 20;
  std::chrono::milliseconds lock_timeout{60'000};

  std::vector<std::string> bundles;    ///< paths
  std::vector<std::string> read_only;  ///< directories besides, which are never written to
  /// How long a directory that could not be opened is left alone.
  std::chrono::milliseconds open_again_after{5'000};
  static CacheSettings from_environment();
};

}  // namespace flashcore
