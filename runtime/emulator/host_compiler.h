// Compiles an emitted body with the host's C++ compiler and loads it.
//
// Host code is never kept: it is built in a private directory, loaded, and deleted at once. A cache
// of it would let whoever can write there run code in this process. Within a process a body is
// compiled once.
#pragma once

#include <memory>
#include <string>

#include "codegen/kernel_source.h"

namespace flashcore {

struct HostCompileOptions {
  std::string compiler;  ///< empty: FLASHCORE_CXX, else c++, g++ or clang++ on PATH
  std::string keep_dir;  ///< not empty: the source and the library stay here, for a debugger
};

/// A loaded body. Never unloaded: a process meets few kernels, and each is small.
struct HostKernel {
  void (*enter)(const void* parameters) = nullptr;
  double compile_ms = 0;
};

/// Thread-safe. Throws CompileError.
std::shared_ptr<const HostKernel> compile_for_host(const KernelSource& source,
                                                   const HostCompileOptions& options);

/// The complete C++ text that is compiled: prelude, body, entry.
std::string host_text(const KernelSource& source);

}  // namespace flashcore
