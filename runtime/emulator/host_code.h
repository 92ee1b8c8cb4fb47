// Host code in the cache's directory: what one process of a user has compiled, another one loads.
//
// Loading it runs it, so it is read only where this user alone can have written it, and it is found
// only on the machine that it was compiled on, until that is started anew: a directory that came
// from elsewhere has none for this process, whatever is in it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cache/key.h"

namespace flashcore {

/// What decides the code and where it may be loaded.
struct HostCodeOrigin {
  std::string boot;      ///< boot_of_machine()
  std::string compiler;  ///< identity_of_compiler()
  std::vector<std::string> flags;
  std::string text;
};

/// Of this start of this machine; empty where the system does not tell, and then code stays in its
/// process.
const std::string& boot_of_machine();

CacheKey host_code_key(const HostCodeOrigin& origin, const std::string& kernel);

std::string encode_host_code(const CacheKey& key, std::string_view library);

/// A view into `file`; nothing unless it is undamaged and was made from exactly this key.
std::optional<std::string_view> decode_host_code(const CacheKey& key, std::string_view file);

}  // namespace flashcore
