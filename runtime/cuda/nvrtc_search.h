// Finding libnvrtc without opening it: a process that finds all its kernels in the cache needs to
// know which compiler it would use, but never maps its hundred megabytes.
#pragma once

#include <string>
#include <vector>

namespace flashcore {

/// A compiler and the library of built-in functions that belongs to it.
struct NvrtcFiles {
  std::string library;                ///< absolute, links resolved
  std::vector<std::string> builtins;  ///< every libnvrtc-builtins beside it
};

/// The places in which to look, in order. Tests fill it in themselves.
struct NvrtcSearch {
  std::string exact;                  ///< a file: this one or none
  std::string hint;                   ///< a library, its directory, or a place with NVIDIA's wheels
  std::vector<std::string> toolkits;  ///< roots of CUDA toolkits
  bool loader = true;                 ///< ask the dynamic loader (LD_LIBRARY_PATH, ld.so.conf)
  std::vector<std::string> fallbacks;  ///< toolkits to try after the loader

  /// FLASHCORE_NVRTC, the hint, CUDA_HOME, CUDA_PATH and CONDA_PREFIX, the loader, /usr/local/cuda.
  static NvrtcSearch from_environment();
};

/// Where a host program knows libnvrtc to be: Python passes its site-packages, where
/// `pip install nvidia-cuda-nvrtc` puts it. Counts until the compiler has been loaded.
void set_nvrtc_hint(std::string path);

/// Throws CompileError with every place tried.
NvrtcFiles find_nvrtc(const NvrtcSearch& search);

}  // namespace flashcore
