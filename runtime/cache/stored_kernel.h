// A kernel as its entry of the cache tells it: enough to launch it on a GPU, without the program it
// was generated from, code generation or a compiler.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/kernel_source.h"
#include "runtime/compile.h"
#include "runtime/kernel.h"

namespace flashcore {

struct StoredKernel {
  std::string name;    ///< the program's
  std::string key;     ///< what the cache calls it
  std::string target;  ///< "sm_90a"
  /// Its text is in `body`. It is for reading: an entry may come from anywhere, and an emulator
  /// would run its text on the host.
  KernelSource source;
  std::string compiler;              ///< version of NVRTC, "13.0"
  std::string compiler_digest;       ///< of the content of its libraries
  std::vector<std::string> options;  ///< of the compile
  Cubin cubin;

  [[nodiscard]] std::shared_ptr<const CompiledKernel> compiled() const& {
    return CompiledKernel::from_cubin(source, target, cubin);
  }
  [[nodiscard]] std::shared_ptr<const CompiledKernel> compiled() && {
    return CompiledKernel::from_cubin(std::move(source), std::move(target), std::move(cubin));
  }
};

/// Reads an entry. Everything in it is checked: the digest over the file, that its name is that of
/// its key, that key, launch data and machine code say the same of target and entry point. Throws
/// CompileError, which calls the file `path`.
StoredKernel read_stored_kernel(std::string_view file, const std::string& path);

}  // namespace flashcore
