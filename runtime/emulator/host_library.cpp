#include "runtime/emulator/host_library.h"

#include <optional>
#include <regex>
#include <string_view>

#include <fmt/format.h>

#include "dsl/error.h"
#include "runtime/cache/cache.h"
#include "runtime/cache/digest.h"
#include "runtime/emulator/host_code.h"
#include "runtime/emulator/host_toolchain.h"
#include "runtime/environment.h"

namespace flashcore {
namespace {

namespace fs = std::filesystem;

/// The first complaint of GCC or Clang in what they print: "file:line:column: error: words".
struct FirstError {
  Location where;
  std::string words;
};

FirstError first_error_in(const std::string& log) {
  static const std::regex line("(^|\n)([^\n:]+):([0-9]+):([0-9]+:)? (fatal )?error: ([^\n]*)");
  std::smatch found;
  if (!std::regex_search(log, found, line)) return {.where = {}, .words = log.substr(0, 2000)};
  return {.where = Location(found[2], std::stoi(found[3])), .words = found[6]};
}

class LibraryCompile {
 public:
  LibraryCompile(const HostLibrarySource& what, std::string compiler)
      : what_(what), compiler_(std::move(compiler)), directory_("") {
    // The visible symbols are those of exported programs alone: two libraries may be loaded.
    flags_ = {"-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", "-DFMT_HEADER_ONLY=1"};
    for (const std::string& folder : what_.includes) flags_.push_back("-I" + folder);
  }

  /// The source and what it includes, but for the system's headers, with their content.
  std::string text() {
    const fs::path list = directory_.path() / "dependencies";
    run({"-MM", "-MF", list.string(), what_.source.string()});
    std::string text;
    for (const std::string& file : files_in(read_file(list))) {
      const std::string content = read_file(file);
      text += fmt::format("{} {}\n{}\n", file, content.size(), content);
    }
    for (const std::string& library : what_.libraries)
      text += fmt::format("{} {}\n", library, digest_of(read_file(library)));
    return text;
  }

  std::string build() {
    const fs::path library = directory_.path() / "library.so";
    std::vector<std::string> arguments = {"-shared", "-o", library.string(), what_.source.string()};
    arguments.insert(arguments.end(), what_.libraries.begin(), what_.libraries.end());
    arguments.emplace_back("-Wl,--exclude-libs,ALL");
    run(arguments);
    return read_file(library);
  }

  [[nodiscard]] const std::string& compiler() const { return compiler_; }
  [[nodiscard]] const std::vector<std::string>& flags() const { return flags_; }

 private:
  void run(const std::vector<std::string>& arguments) const {
    std::vector<std::string> command = {compiler_};
    command.insert(command.end(), flags_.begin(), flags_.end());
    command.insert(command.end(), arguments.begin(), arguments.end());
    const fs::path log = directory_.path() / "log";
    if (run_program(command, log) == 0) return;
    const FirstError error = first_error_in(read_file(log));
    throw CompileError({.what = fmt::format("{} does not compile", what_.source.string()),
                        .why = fmt::format("{} says: {}", compiler_, error.words),
                        .fix = fmt::format("correct it, or set {} to another C++20 compiler",
                                           name_of(EnvironmentVariable::cxx)),
                        .where = error.where});
  }

  /// What stands behind the colon of a rule for make: names between blanks, in which a blank is
  /// written behind a backslash, and so is the end of a line between them.
  static std::vector<std::string> files_in(const std::string& rule) {
    std::vector<std::string> files(1);
    const std::size_t colon = rule.find(": ");
    for (std::size_t i = colon == std::string::npos ? rule.size() : colon + 2; i < rule.size();
         ++i) {
      const bool escapes = rule[i] == '\\' && i + 1 < rule.size();
      if (escapes && rule[i + 1] == ' ') {
        files.back() += rule[++i];
      } else if (rule[i] == ' ' || rule[i] == '\n' || (escapes && rule[i + 1] == '\n')) {
        if (!files.back().empty()) files.emplace_back();
      } else {
        files.back() += rule[i];
      }
    }
    if (files.back().empty()) files.pop_back();
    return files;
  }

  const HostLibrarySource& what_;
  const std::string compiler_;
  const PrivateDirectory directory_;
  std::vector<std::string> flags_;
};

}  // namespace

std::string build_host_library(const HostLibrarySource& what) {
  LibraryCompile compile(what, find_host_compiler("", "a program in C++ needs"));
  EntryStore& entries = KernelCache::shared().entries();
  if (entries.directory() == nullptr || boot_of_machine().empty()) return compile.build();
  const CacheKey key = host_code_key({.boot = boot_of_machine(),
                                      .compiler = identity_of_compiler(compile.compiler()),
                                      .flags = compile.flags(),
                                      .text = compile.text()},
                                     what.source.stem().string());
  std::string library;
  entries.find_or_build(
      EntryKind::host_code, key,
      [&](std::string_view file) {
        const std::optional<std::string_view> kept = decode_host_code(key, file);
        if (kept) library = *kept;
        return kept.has_value();
      },
      [&] {
        library = compile.build();
        return encode_host_code(key, library);
      });
  return library;
}

}  // namespace flashcore
