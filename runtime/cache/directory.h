// A private directory of small files. Every access goes through its descriptor, so that nobody can
// exchange a part of the path between the check and the use.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cache/files.h"

namespace flashcore {

/// An exclusive lock between processes; whoever dies gives it back.
class FileLock {
 public:
  FileLock() = default;
  explicit FileLock(Descriptor file) : file_(std::move(file)) {}
  FileLock(FileLock&&) = default;
  FileLock& operator=(FileLock&&) = default;
  ~FileLock();

  [[nodiscard]] bool is_held() const { return file_.is_open(); }

 private:
  Descriptor file_;
};

class CacheDirectory {
 public:
  enum class Missing { is_made, is_refused };
  /// Opens; one that is missing may be made (0700). It has to be a directory, not a link to one,
  /// owned by this user or root, and writable by nobody else. Otherwise nothing, and `why` tells.
  static std::optional<CacheDirectory> open(const std::string& path, std::string& why,
                                            Missing missing = Missing::is_made);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Whether this is still what lies at that path: somebody may have deleted it.
  [[nodiscard]] bool is_at_path() const;

  /// Whose files are read. Root may own a cache that is baked into an image.
  enum class Owner {
    user_or_root,
    user,  ///< the directory has to be this user's as well
  };

  /// The content of a regular file that passes the same policy; nothing when there is none.
  [[nodiscard]] std::optional<std::string> read(const std::string& name,
                                                Owner owner = Owner::user_or_root) const;

  /// Writes aside, then renames: readers see the old content or the new one, also after a crash.
  /// Returns the reason of a failure, or an empty text.
  [[nodiscard]] std::string write(const std::string& name, std::string_view content) const {
    return write_whole(descriptor_.number(), name, unfinished_prefix, content, 0600);
  }

  /// Counts as a use for `files()`, unless one was noted less than `interval` ago: loads should not
  /// all write. Does nothing where that is not allowed.
  void touch(const std::string& name, std::chrono::seconds interval) const;
  void remove(const std::string& name) const;
  /// Whether that went well.
  bool rename(const std::string& name, const std::string& other) const;

  using File = ListedFile;
  [[nodiscard]] std::vector<File> files() const { return list_files(descriptor_.number()); }

  /// Removes what writers that died left of their files.
  void sweep() const { sweep_unfinished(descriptor_.number(), unfinished_prefix); }

  /// Waits until this process alone holds the lock of that number. Gives one that is not held
  /// after `timeout`, or where files cannot be locked: it saves work, nothing depends on it.
  [[nodiscard]] FileLock lock(int number, std::chrono::milliseconds timeout) const;

 private:
  static constexpr std::string_view unfinished_prefix = "unfinished.";

  CacheDirectory(std::string path, Descriptor descriptor)
      : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

  std::string path_;
  Descriptor descriptor_;
};

}  // namespace flashcore
