// Compiles an emitted body with the host's C++ compiler and loads it.
//
// It is built in a private directory, loaded, and deleted at once. Within a process equal bodies
// share their code, and so do those that come back soon; other processes of this user share it
// through the cache's directory (host_code.h), unless there is none or it stays for a debugger.
#pragma once

#include <memory>
#include <string>

#include "codegen/kernel_source.h"

namespace flashcore {

struct HostCompileOptions {
  std::string compiler;  ///< empty: FLASHCORE_CXX, else c++, g++ or clang++ on PATH
  std::string keep_dir;  ///< not empty: the source and the library stay here, for a debugger
};

/// A loaded body, unloaded with the last who holds it.
struct HostKernel {
  HostKernel() = default;
  ~HostKernel();
  HostKernel(const HostKernel&) = delete;
  HostKernel& operator=(const HostKernel&) = delete;

  void* library = nullptr;
  void (*enter)(const void* parameters) = nullptr;
  double compile_ms = 0;  ///< 0 when another process has compiled it
};

/// Thread-safe. Throws CompileError. The last `host_kernels_kept` are kept, whoever else holds
/// them.
std::shared_ptr<const HostKernel> compile_for_host(const KernelSource& source,
                                                   const HostCompileOptions& options);

constexpr std::size_t host_kernels_kept = 64;

/// The complete C++ text that is compiled: prelude, body, entry.
std::string host_text(const KernelSource& source);

}  // namespace flashcore
