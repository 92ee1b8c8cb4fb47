// What a compiled kernel depends on. An incomplete key would hand out a wrong kernel, so everything
// that reaches the compiler is in it, and for a GPU's code nothing that names this machine.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/kernel_source.h"
#include "runtime/cuda/nvrtc.h"

namespace flashcore {

/// Which compiler: its version and the content of its libraries (a version has no patch level).
struct Toolchain {
  NvrtcVersion version;
  std::string digest;
  bool operator==(const Toolchain&) const = default;
};

struct CacheKey {
  std::string preimage;  ///< the fields, each behind its length; kept in the entry and compared
  std::string name;      ///< what the file is called: the digest of what was asked for, if that is
                         ///< told apart, and that of the preimage
  std::string kernel;    ///< entry point and architecture, for messages
  /// The bytes at the beginning of the preimage, and of the name, that say what was asked for and
  /// not which compiler made it; 0 where those are not told apart.
  std::size_t asked_preimage = 0, asked_name = 0;

  /// Whether an entry of that preimage is what this key asks for, whichever compiler made it.
  [[nodiscard]] bool asks_for(std::string_view other_preimage) const {
    return asked_preimage > 0 && other_preimage.size() > asked_preimage &&
           other_preimage.substr(0, asked_preimage) ==
               std::string_view(preimage).substr(0, asked_preimage);
  }
};

/// `kernel` is for messages alone. The first `asked` fields say what was asked for.
CacheKey make_key(std::span<const std::string_view> fields, std::string kernel,
                  std::size_t asked = 0);

/// The fields that `make_key` joined; nothing if `preimage` is no such text.
std::optional<std::vector<std::string_view>> fields_of(std::string_view preimage);

/// Fields of a kernel's key: schema, architecture, entry point, text and launch data say what was
/// asked for; then the compiler's version, the digest of its libraries, how many options, options.
constexpr std::size_t kernel_fields_asked = 5;

CacheKey make_key(const KernelSource& source, const std::string& architecture,
                  std::span<const std::string> options, const Toolchain& toolchain);

}  // namespace flashcore
