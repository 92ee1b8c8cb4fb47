#include "runtime/cache/files.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace flashcore {
namespace {

constexpr std::chrono::hours unfinished_age{1};

std::string reason(const char* step) { return fmt::format("{}: {}", step, std::strerror(errno)); }

bool write_all(int file, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(file, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

// Another for every file of every process, also of those forked from this one.
std::string unfinished_name(std::string_view prefix) {
  static std::atomic<unsigned> counter{0};
  return fmt::format("{}{}.{}.{:08x}", prefix, getpid(), ++counter, std::random_device()());
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

std::chrono::system_clock::time_point time_of(const timespec& time) {
  // File systems have room for years that nanoseconds in 64 bits have not.
  constexpr time_t year_2242 = time_t{1} << 33;
  const std::chrono::seconds seconds(std::clamp<time_t>(time.tv_sec, 0, year_2242));
  return std::chrono::system_clock::time_point(seconds + std::chrono::nanoseconds(time.tv_nsec));
}

std::vector<ListedFile> list_files(int folder) {
  std::vector<ListedFile> found;
  const int again = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (again < 0) return found;
  const std::unique_ptr<DIR, int (*)(DIR*)> list(fdopendir(again), closedir);
  if (list == nullptr) {
    ::close(again);
    return found;
  }
  const auto latest = std::chrono::system_clock::now() + clock_tolerance;
  while (const dirent* entry = readdir(list.get())) {
    struct stat status {};
    if (fstatat(again, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(status.st_mode)) continue;
    const auto last_use = time_of(status.st_mtim);
    found.push_back(
        {.name = entry->d_name,
         .bytes = static_cast<std::uint64_t>(status.st_size),
         .last_use = last_use > latest ? std::chrono::system_clock::time_point() : last_use});
  }
  return found;
}

std::string write_whole(int folder, const std::string& name, std::string_view prefix,
                        std::string_view content, mode_t mode) {
  const std::string aside = unfinished_name(prefix);
  std::string why;
  {
    const Descriptor file(::openat(folder, aside.c_str(),
                                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    if (!file.is_open()) return reason("create");
    if (!write_all(file.number(), content)) {
      why = reason("write");
    } else if (fsync(file.number()) != 0) {
      why = reason("fsync");
    }
  }
  if (why.empty() && renameat(folder, aside.c_str(), folder, name.c_str()) != 0)
    why = reason("rename");
  if (!why.empty()) {
    unlinkat(folder, aside.c_str(), 0);
    return why;
  }
  fsync(folder);  // the name too survives a power failure; where not, the next run makes it again
  return "";
}

void sweep_unfinished(int folder, std::string_view prefix) {
  const auto now = std::chrono::system_clock::now();
  for (const ListedFile& file : list_files(folder)) {
    if (file.name.starts_with(prefix) && now - file.last_use > unfinished_age)
      unlinkat(folder, file.name.c_str(), 0);
  }
}

}  // namespace flashcore
