// A directory of a test's own, removed with everything in it.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

namespace flashcore::test {

/// Where files are in memory, so that flushing thousands of them takes no time; else on disk.
inline std::filesystem::path quick_place() {
  constexpr const char* shared_memory = "/dev/shm";
  return access(shared_memory, W_OK) == 0 ? shared_memory : std::filesystem::temp_directory_path();
}

class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(
      const std::filesystem::path& place = std::filesystem::temp_directory_path())
      : path_(place / "flashcore_test_XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) ADD_FAILURE() << "no temporary directory";
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all, ignored);
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
  // As the cache itself writes, whatever the umask of the test is.
  std::filesystem::permissions(path, std::filesystem::perms(0600));
}

}  // namespace flashcore::test
