// A library opened at run time. It is never closed: NVRTC and the driver keep threads and atexit
// handlers of their own.
#pragma once

#include <string>

namespace flashcore {

class SharedLibrary {
 public:
  enum class Symbols { local, global };

  /// Opens a file (an absolute path) or a name that the loader resolves. On failure `is_open()` is
  /// false and `failure()` says why.
  static SharedLibrary open(const std::string& name, Symbols symbols = Symbols::local);

  [[nodiscard]] bool is_open() const { return handle_ != nullptr; }
  [[nodiscard]] const std::string& failure() const { return failure_; }

  /// The file it was loaded from, links resolved.
  [[nodiscard]] std::string path() const;

  /// Null when there is no such symbol.
  [[nodiscard]] void* symbol(const char* name) const;

 private:
  void* handle_ = nullptr;
  std::string failure_;
};

}  // namespace flashcore
