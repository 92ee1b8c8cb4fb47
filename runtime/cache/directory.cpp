#include "runtime/cache/directory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <thread>

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

}  // namespace

FileLock::~FileLock() {
  // Not left to close(): a child forked meanwhile shares the descriptor and would keep the lock.
  if (file_.is_open()) flock(file_.number(), LOCK_UN);
}

std::optional<CacheDirectory> CacheDirectory::open(const std::string& path, std::string& why,
                                                   Missing missing) {
  const std::filesystem::path place = std::filesystem::path(path).lexically_normal();
  if (!place.is_absolute()) {
    why = "it is not an absolute path";
    return std::nullopt;
  }
  // A trailing slash would make the system follow a link.
  std::string name = place.string();
  while (name.size() > 1 && name.back() == '/') name.pop_back();

  std::error_code unmade;  // what matters is whether the directory opens; this says why not
  if (missing == Missing::is_made) {
    std::filesystem::create_directories(std::filesystem::path(name).parent_path(), unmade);
    if (mkdir(name.c_str(), 0700) != 0 && errno != EEXIST && !unmade)
      unmade.assign(errno, std::generic_category());
  }
  Descriptor descriptor(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!descriptor.is_open() || fstat(descriptor.number(), &status) != 0) {
    struct stat link {};
    const int error = errno;
    const bool is_link = lstat(name.c_str(), &link) == 0 && S_ISLNK(link.st_mode);
    why = is_link  ? "it is a symbolic link"
          : unmade ? "it cannot be made: " + unmade.message()
                   : std::strerror(error);
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

void CacheDirectory::touch(const std::string& name, std::chrono::seconds interval) const {
  struct stat status {};
  if (fstatat(descriptor_.number(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return;
  const auto age = std::chrono::system_clock::now() - time_of(status.st_mtim);
  if (age < interval && age > -clock_tolerance) return;
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
