// Files in a folder that is open: listed, written so that a reader sees all of one or nothing, and
// swept of what writers that died left behind.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/types.h>
#include <time.h>

namespace flashcore {

/// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();

  [[nodiscard]] bool is_open() const { return number_ >= 0; }
  [[nodiscard]] int number() const { return number_; }

 private:
  int number_;
};

struct ListedFile {
  std::string name;
  std::uint64_t bytes = 0;
  /// When it was written or used last. The epoch where that lies more than `clock_tolerance` ahead:
  /// a clock went wrong, and such a file must not pass for the newest one until that day.
  std::chrono::system_clock::time_point last_use;
};

constexpr std::chrono::hours clock_tolerance{1};

/// Years before 1970 count as that one, and those beyond 2242 as that.
std::chrono::system_clock::time_point time_of(const timespec& time);

/// The regular files; none where the folder cannot be read.
std::vector<ListedFile> list_files(int folder);

/// Writes a file whose name begins with `prefix`, flushes it, then renames it to `name`: whoever
/// reads `name` gets the old content or the new one, also after a crash. A link of that name is
/// replaced, not followed. Returns the reason of a failure, or an empty text.
std::string write_whole(int folder, const std::string& name, std::string_view prefix,
                        std::string_view content, mode_t mode);

/// Removes files of that prefix whose writers must be dead by now: they are older than an hour.
void sweep_unfinished(int folder, std::string_view prefix);

}  // namespace flashcore
