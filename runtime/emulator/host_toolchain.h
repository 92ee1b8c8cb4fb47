// The host's C++ compiler as a program, and a place to run it in.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace flashcore {

/// The path of `wanted` (a path, or a name on PATH); empty: FLASHCORE_CXX, else c++, g++ or
/// clang++. Throws CompileError that says who needs it and what to install.
std::string find_host_compiler(std::string wanted,
                               std::string_view whose = "kernels for CPU arrays need");

/// Changes whenever another compiler answers to that path: the path, the time and size of the file
/// it leads to, and what it says of its version. Asked once in a process. Throws CompileError when
/// it cannot be started.
std::string identity_of_compiler(const std::string& path);

/// Runs a program to its end and returns its exit status; what it prints goes to `log`. No shell is
/// involved, and Ctrl-C at a terminal does not reach it.
int run_program(const std::vector<std::string>& command, const std::filesystem::path& log);

/// All of it; empty when it cannot be read to its end.
std::string read_file(const std::filesystem::path& path);

/// Throws CompileError when not all of it can be written.
void write_file(const std::filesystem::path& path, std::string_view content);

/// A directory that only this user can enter, removed with all that is in it at the end of the
/// scope; or `keep_dir`, when that is not empty, which stays.
class PrivateDirectory {
 public:
  explicit PrivateDirectory(const std::string& keep_dir);
  ~PrivateDirectory();
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  bool keep_;
  std::filesystem::path path_;
};

}  // namespace flashcore
