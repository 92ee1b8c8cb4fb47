// The policy for everything that is read without being asked for by name in a program: only the
// user of the process, or root, can have written it.
#pragma once

#include <string>

#include <sys/stat.h>

namespace flashcore {

/// Why what this describes cannot be trusted; empty when it can. Root may own it (a cache baked
/// into an image): root could change this process anyway.
std::string distrust(const struct stat& status);

/// The content of a regular file that is no link, of at most `largest` bytes. File and folder have
/// to belong to the user or to root, and nobody else may be able to write to them. Throws
/// CacheError: what cannot be read, or trusted, and why.
std::string read_trusted_file(const std::string& path, std::size_t largest);

}  // namespace flashcore
