#include "runtime/cache/directory.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <thread>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/cache/trusted_file.h"

namespace flashcore {
namespace {

// More than any kernel takes; a larger file is not ours.
constexpr off_t largest_file = off_t{256} << 20;

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

std::chrono::system_clock::time_point time_of(const timespec& time) {
  return std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::microseconds>(
          std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec)));
}

// Another for every file of every process, also of those forked from this one.
std::string unfinished_name() {
  static std::atomic<unsigned> counter{0};
  return fmt::format("{}{}.{}.{:08x}", CacheDirectory::unfinished_prefix, getpid(), ++counter,
                     std::random_device()());
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

FileLock::~FileLock() {
  // Not left to close(): a child forked meanwhile shares the descriptor and would keep the lock.
  if (file_.is_open()) flock(file_.number(), LOCK_UN);
}

std::optional<CacheDirectory> CacheDirectory::open(const std::string& path, std::string& why) {
  const std::filesystem::path place = std::filesystem::path(path).lexically_normal();
  if (!place.is_absolute()) {
    why = "it is not an absolute path";
    return std::nullopt;
  }
  // A trailing slash would make the system follow a link.
  std::string name = place.string();
  while (name.size() > 1 && name.back() == '/') name.pop_back();

  std::error_code ignored;  // what matters is whether the directory opens
  std::filesystem::create_directories(std::filesystem::path(name).parent_path(), ignored);
  mkdir(name.c_str(), 0700);
  Descriptor descriptor(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!descriptor.is_open() || fstat(descriptor.number(), &status) != 0) {
    struct stat link {};
    const int error = errno;
    const bool is_link = lstat(name.c_str(), &link) == 0 && S_ISLNK(link.st_mode);
    why = is_link ? "it is a symbolic link" : std::strerror(error);
    return std::nullopt;
  }
  why = distrust(status);
  if (!why.empty()) return std::nullopt;
  return CacheDirectory(std::move(name), std::move(descriptor));
}

std::optional<std::string> CacheDirectory::read(const std::string& name, Owner owner) const {
  const auto is_strange = [&](const struct stat& of) {
    return !distrust(of).empty() || (owner == Owner::user && of.st_uid != geteuid());
  };
  struct stat directory {};
  if (fstat(descriptor_.number(), &directory) != 0 || is_strange(directory)) return std::nullopt;
  // O_NONBLOCK: opening a pipe that somebody put there must not hang.
  const Descriptor file(
      ::openat(descriptor_.number(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file.is_open() || fstat(file.number(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_size > largest_file || is_strange(status)) {
    return std::nullopt;
  }
  std::string content(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t filled = 0;
  while (filled < content.size()) {
    const ssize_t got = ::read(file.number(), content.data() + filled, content.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    filled += static_cast<std::size_t>(got);
  }
  return content;
}

std::string CacheDirectory::write(const std::string& name, std::string_view content) const {
  const int directory = descriptor_.number();
  const std::string aside = unfinished_name();
  std::string why;
  {
    const Descriptor file(::openat(directory, aside.c_str(),
                                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file.is_open()) return reason("create");
    if (!write_all(file.number(), content)) {
      why = reason("write");
    } else if (fsync(file.number()) != 0) {
      why = reason("fsync");
    }
  }
  if (why.empty() && renameat(directory, aside.c_str(), directory, name.c_str()) != 0) {
    why = reason("rename");
  }
  if (!why.empty()) {
    unlinkat(directory, aside.c_str(), 0);
    return why;
  }
  fsync(
      directory);  // the name too survives a power failure; where not, the next run compiles again
  return "";
}

void CacheDirectory::touch(const std::string& name, std::chrono::seconds interval) const {
  struct stat status {};
  if (fstatat(descriptor_.number(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return;
  if (std::chrono::system_clock::now() - time_of(status.st_mtim) < interval) return;
  constexpr timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
  utimensat(descriptor_.number(), name.c_str(), now, AT_SYMLINK_NOFOLLOW);
}

void CacheDirectory::remove(const std::string& name) const {
  unlinkat(descriptor_.number(), name.c_str(), 0);
}

bool CacheDirectory::rename(const std::string& name, const std::string& other) const {
  return renameat(descriptor_.number(), name.c_str(), descriptor_.number(), other.c_str()) == 0;
}

bool CacheDirectory::is_at_path() const {
  struct stat own {
  }, there{};
  return fstat(descriptor_.number(), &own) == 0 && stat(path_.c_str(), &there) == 0 &&
         own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

std::vector<CacheDirectory::File> CacheDirectory::files() const {
  std::vector<File> found;
  const int again = ::openat(descriptor_.number(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (again < 0) return found;
  const std::unique_ptr<DIR, int (*)(DIR*)> list(fdopendir(again), closedir);
  if (list == nullptr) {
    ::close(again);
    return found;
  }
  while (const dirent* entry = readdir(list.get())) {
    struct stat status {};
    if (fstatat(again, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(status.st_mode)) continue;
    found.push_back({.name = entry->d_name,
                     .bytes = static_cast<std::uint64_t>(status.st_size),
                     .last_use = time_of(status.st_mtim)});
  }
  return found;
}

FileLock CacheDirectory::lock(int number, std::chrono::milliseconds timeout) const {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  Descriptor file(::openat(descriptor_.number(), fmt::format("lock.{:02x}", number).c_str(),
                           O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.is_open()) return {};
  std::chrono::milliseconds pause{1};
  while (flock(file.number(), LOCK_EX | LOCK_NB) != 0) {
    const bool held = errno == EWOULDBLOCK || errno == EINTR;
    if (!held || std::chrono::steady_clock::now() >= deadline) return {};
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(20));
  }
  return FileLock(std::move(file));
}

}  // namespace flashcore
