// Programs of a user in C++: one source file, compiled by the host's C++ compiler to a library.
//
// Which files decide what comes out, the compiler says itself (-MM). Of equal content, and as long
// as the machine runs, they are compiled once for all processes of a user (host_code.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace flashcore {

struct HostLibrarySource {
  std::filesystem::path source;
  std::vector<std::string> includes;   ///< folders
  std::vector<std::string> libraries;  ///< archives to link, or options as -lfmt
};

/// The content of a shared library. Throws CompileError, with the line of the author's file that
/// the compiler complains of first.
std::string build_host_library(const HostLibrarySource& what);

}  // namespace flashcore
