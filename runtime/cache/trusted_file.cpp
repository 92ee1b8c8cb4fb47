#include "runtime/cache/trusted_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "dsl/error.h"
#include "runtime/cache/directory.h"

namespace flashcore {
namespace {

[[noreturn]] void refuse(const std::string& path, std::string why, std::string fix) {
  throw CacheError({.what = fmt::format("{} is not read", path),
                    .why = std::move(why),
                    .fix = std::move(fix),
                    .where = {}});
}

void check_owner(const std::string& path, const char* what, const struct stat& status) {
  const std::string why = distrust(status);
  if (!why.empty())
    refuse(path, fmt::format("{}: {}", what, why),
           "let it belong to you or to root, with chmod go-w");
}

}  // namespace

std::string distrust(const struct stat& status) {
  if (status.st_uid != geteuid() && status.st_uid != 0) {
    return fmt::format("it belongs to user {}, not to {}", status.st_uid, geteuid());
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return fmt::format("others may write to it (mode {:04o})", status.st_mode & 07777);
  }
  return "";
}

std::string read_trusted_file(const std::string& path, std::size_t largest) {
  const std::filesystem::path place(path);
  const std::string name = place.filename().string();
  const std::string above = place.has_parent_path() ? place.parent_path().string() : ".";
  const Descriptor folder(::open(above.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status {};
  if (name.empty()) refuse(path, "it is no regular file", "name a regular file");
  if (!folder.is_open() || fstat(folder.number(), &status) != 0)
    refuse(path, "its folder cannot be opened: " + std::string(std::strerror(errno)),
           "name a file that is there");
  check_owner(path, "its folder", status);

  // O_NONBLOCK: opening a pipe that somebody put there must not hang.
  const Descriptor file(
      ::openat(folder.number(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open() || fstat(file.number(), &status) != 0)
    refuse(path, errno == ELOOP ? "it is a symbolic link" : std::strerror(errno),
           "name a file that is there");
  if (!S_ISREG(status.st_mode)) refuse(path, "it is no regular file", "name a regular file");
  check_owner(path, "the file", status);

  std::string content(largest + 1, '\0');
  std::size_t filled = 0;
  while (filled < content.size()) {
    const ssize_t got = ::read(file.number(), content.data() + filled, content.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(path, std::strerror(errno), "name a file that can be read");
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  if (filled > largest)
    refuse(path, fmt::format("it has more than the {} bytes that are read", largest),
           "name a smaller file");
  content.resize(filled);
  return content;
}

}  // namespace flashcore
