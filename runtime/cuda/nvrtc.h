// CUDA's run-time compiler, opened when the first kernel has to be compiled.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/cuda/nvrtc_search.h"
#include "runtime/cuda/shared_library.h"

namespace flashcore {

struct NvrtcVersion {
  int major = 0;
  int minor = 0;
  auto operator<=>(const NvrtcVersion&) const = default;
  [[nodiscard]] std::string text() const;  ///< "13.0"
};

class Nvrtc {
 public:
  /// Opens this library and its own built-in functions. Throws CompileError.
  explicit Nvrtc(NvrtcFiles files);

  [[nodiscard]] const NvrtcFiles& files() const { return files_; }
  [[nodiscard]] NvrtcVersion version() const { return version_; }
  /// Compute capabilities it generates code for, ascending: 80, 86, 90, ...
  [[nodiscard]] const std::vector<int>& architectures() const { return architectures_; }

  enum class Output { cubin, ptx };
  struct Result {
    std::string code;  ///< empty when it failed
    std::string log;
    std::string failure;  ///< "NVRTC_ERROR_COMPILATION", or empty
  };
  /// Thread-safe. `file_name` is what messages call the text.
  [[nodiscard]] Result compile(const std::string& text, const std::string& file_name,
                               std::span<const std::string> options, Output output) const;

 private:
  using Program = void*;
  // The part of NVRTC's interface that is used. Results are nvrtcResult, 0 for success.
  struct Functions {
    int (*nvrtcVersion)(int*, int*);
    int (*nvrtcGetNumSupportedArchs)(int*);
    int (*nvrtcGetSupportedArchs)(int*);
    int (*nvrtcCreateProgram)(Program*, const char*, const char*, int, const char* const*,
                              const char* const*);
    int (*nvrtcDestroyProgram)(Program*);
    int (*nvrtcCompileProgram)(Program, int, const char* const*);
    int (*nvrtcGetProgramLogSize)(Program, std::size_t*);
    int (*nvrtcGetProgramLog)(Program, char*);
    int (*nvrtcGetCUBINSize)(Program, std::size_t*);
    int (*nvrtcGetCUBIN)(Program, char*);
    int (*nvrtcGetPTXSize)(Program, std::size_t*);
    int (*nvrtcGetPTX)(Program, char*);
    const char* (*nvrtcGetErrorString)(int);
  };

  void load_functions();
  void load_builtins();

  NvrtcFiles files_;
  SharedLibrary library_;
  Functions functions_{};
  NvrtcVersion version_;
  std::vector<int> architectures_;
};

}  // namespace flashcore
