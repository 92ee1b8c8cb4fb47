// Offers programs of a shared library to Python:
// fc.load("libmy_kernels.so").my_attention(head_dim=64).
//
//   flashcore::Exported my_attention(const flashcore::Arguments& arguments) {
//     ProgramBuilder b("my_attention");
//     const int head_dim = arguments.integer("head_dim", 64);
//     ...
//     return {b.finish(), [](const flashcore::Target& target) { return flashcore::Schedule{...};
//     }};
//   }
//   FLASHCORE_EXPORT_PROGRAM(my_attention)
//
// A module (dsl/module.h) is offered likewise: a function that returns ExportedModule, and
// FLASHCORE_EXPORT_MODULE.
//
// Only C crosses the library's border, and programs cross as text: a library works with any
// FlashCore that reads its programs, whatever compiler built either.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dsl/flashcore.h"

namespace flashcore {

/// What a caller passes by name. Asking with a default makes an argument optional.
class Arguments {
 public:
  /// `json` is an object of numbers, texts and booleans. Throws SpecError for anything else.
  explicit Arguments(const std::string& json);

  /// Throw SpecError with the argument's name where it is missing or has another type.
  [[nodiscard]] int integer(const std::string& name) const;
  [[nodiscard]] int integer(const std::string& name, int fallback) const;
  [[nodiscard]] bool flag(const std::string& name, bool fallback) const;
  [[nodiscard]] DType dtype(const std::string& name, DType fallback) const;

  /// Throws SpecError if the caller passed what nobody has asked for.
  void check_all_used() const;

 private:
  [[nodiscard]] const std::string* find(const std::string& name) const;

  std::map<std::string, std::string> values_;  ///< as JSON
  mutable std::map<std::string, bool> used_;
};

struct Exported {
  Program program;
  /// The schedule that ships for a target; may be empty, then the caller has to bring one.
  std::function<Schedule(const Target&)> schedule;
};

struct ExportedModule {
  Module module;
  /// The schedules that ship for a target, one a kernel; may be empty.
  std::function<std::vector<Schedule>(const Target&)> schedules;
};

namespace detail {

/// Receives the answer of an exported program: a JSON object, with "program", the "places" [file,
/// line] of its ops, and perhaps "schedule", or with "error" and the parts of its complaint.
using ExportAnswer = void (*)(void* context, const char* json, std::size_t size);

/// Builds and answers. `target` may be null: then no schedule is asked for.
void answer_export(Exported (*build)(const Arguments&), const char* arguments, const char* target,
                   void* context, ExportAnswer answer) noexcept;
/// The same with "module", "schedules", and "places" a kernel.
void answer_export(ExportedModule (*build)(const Arguments&), const char* arguments,
                   const char* target, void* context, ExportAnswer answer) noexcept;

}  // namespace detail
}  // namespace flashcore

/// Makes `build`, a function Exported(const Arguments&), callable from Python under its own name.
#define FLASHCORE_EXPORT_PROGRAM(build)                                               \
  extern "C" __attribute__((visibility("default"))) void flashcore_program_##build(   \
      const char* arguments, const char* target, void* context,                       \
      ::flashcore::detail::ExportAnswer answer) noexcept {                            \
    ::flashcore::detail::answer_export(&(build), arguments, target, context, answer); \
  }

/// The same of a function ExportedModule(const Arguments&).
#define FLASHCORE_EXPORT_MODULE(build) FLASHCORE_EXPORT_PROGRAM(build)
