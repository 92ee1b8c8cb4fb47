// One compiled kernel as one file: a header that tells what it is, the key it was made from, the
// machine code. It is a GPU's: such a file cannot make the host run anything.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/cache/key.h"
#include "runtime/compile.h"

namespace flashcore {

std::string encode_entry(const CacheKey& key, const Cubin& cubin);

/// What a whole entry says, unchecked but for the form. Views lead into the file.
struct EntryParts {
  std::string kernel, key;
  Resources resources;
  std::string_view preimage, code;
};
/// Nothing unless the file is an undamaged entry.
std::optional<EntryParts> read_entry(std::string_view file);

/// Whose entries serve.
enum class Compiler {
  this_one,
  any,  ///< where nothing can be compiled
};

/// Nothing unless the file is undamaged and was made from exactly this key, or, by any compiler,
/// from one that asks for the same.
std::optional<Cubin> decode_entry(const CacheKey& key, std::string_view file,
                                  Compiler compiler = Compiler::this_one);

}  // namespace flashcore
