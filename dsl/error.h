// The one exception family. Every message says what failed, where (the author's file and line), why
// with the numbers, and what would work.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace flashcore {

/// A place in the author's program: the C++ or Python line that made a tile operation.
struct Location {
  std::string file;
  int line = 0;

  Location() = default;
  Location(std::string file, int line) : file(std::move(file)), line(line) {}
  Location(const std::source_location& at)  // NOLINT(google-explicit-constructor)
      : file(at.file_name()), line(static_cast<int>(at.line())) {}

  [[nodiscard]] bool known() const { return line > 0; }
};

/// The four parts of a message. `where` may be unknown and `fix` empty; `what` and `why` may not.
struct Complaint {
  std::string what;
  std::string why;
  std::string fix;
  Location where;
};

/// Base of everything FlashCore throws on purpose.
class Error : public std::runtime_error {
 public:
  explicit Error(Complaint complaint);
  [[nodiscard]] const Complaint& complaint() const { return complaint_; }

 private:
  Complaint complaint_;
};

/// A program or attention spec that contradicts itself.
class SpecError : public Error {
 public:
  using Error::Error;
};
/// A schedule that the program or the target cannot run.
class ScheduleError : public Error {
 public:
  using Error::Error;
};
/// A compiler that is missing or refuses, or a kernel over its budget.
class CompileError : public Error {
 public:
  using Error::Error;
};
/// A kernel that is not in the cache where nothing may be compiled.
class CacheMissError : public CompileError {
 public:
  using CompileError::CompileError;
};
/// A cache directory, a bundle or a key that cannot serve an explicit request. (A damaged cache is
/// a miss, not an error.)
class CacheError : public Error {
 public:
  using Error::Error;
};
/// The driver, the GPU, or the arrays given to a launch.
class DeviceError : public Error {
 public:
  using Error::Error;
};
/// A bug in FlashCore itself; the message asks for a report.
class InternalError : public Error {
 public:
  explicit InternalError(std::string what,
                         const std::source_location& at = std::source_location::current());
};

}  // namespace flashcore
