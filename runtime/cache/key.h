// What a compiled kernel depends on. An incomplete key would hand out a wrong kernel, so everything
// that reaches the compiler is in it, and for a GPU's code nothing that names this machine.
#pragma once

#include <span>
#include <string>
#include <string_view>

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
  std::string name;      ///< its digest: the name of the file
  std::string kernel;    ///< entry point and architecture, for messages
};

/// `kernel` is for messages alone.
CacheKey make_key(std::span<const std::string_view> fields, std::string kernel);

CacheKey make_key(const KernelSource& source, const std::string& architecture,
                  std::span<const std::string> options, const Toolchain& toolchain);

}  // namespace flashcore
