// Whose bundles a process takes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/bundle/signature.h"

namespace flashcore {

/// The keys of FLASHCORE_BUNDLE_SIGNERS; nothing where it is unset: then unsigned bundles are taken
/// as well. Read anew at every call. Throws CacheError for anything that is not a list of keys, or
/// names a file that others can have written.
std::optional<std::vector<PublicKey>> accepted_signers();

/// Throws CacheError, which calls the bundle `path`, unless `message` can be believed: a signature
/// has to be right whoever made it, and where signers are listed it has to be one of theirs.
void check_signature(const std::string& path, std::string_view message,
                     const std::optional<Signature>& signature,
                     const std::optional<std::vector<PublicKey>>& accepted);

}  // namespace flashcore
