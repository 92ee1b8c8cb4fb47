// What the files of entries are called, in every directory of the cache.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/cache/directory.h"
#include "runtime/cache/key.h"

namespace flashcore {

enum class EntryKind {
  kernel,     ///< for a GPU: it cannot make this process run anything
  host_code,  ///< this process will run it, so only what its own user has written is read
};

std::string file_of(EntryKind kind, const CacheKey& key);
bool is_entry(std::string_view file_name);

/// The other files of a directory that hold what `key` asks for, made by any compiler: those of the
/// latest use first.
std::vector<std::string> files_alike(const CacheDirectory& directory, EntryKind kind,
                                     const CacheKey& key);

}  // namespace flashcore
