#include "runtime/cuda/nvrtc_search.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string_view>

#include <elf.h>

#include "dsl/error.h"
#include "runtime/cuda/shared_library.h"
#include "runtime/environment.h"
#include "runtime/no_fork.h"

namespace flashcore {
namespace {

namespace fs = std::filesystem;

std::mutex hint_mutex;
std::string& host_hint() {
  static auto* const value = new std::string;
  return *value;
}

#ifdef __aarch64__
constexpr Elf64_Half own_machine = EM_AARCH64;
#else
constexpr Elf64_Half own_machine = EM_X86_64;
#endif

// A library the loader of this machine would accept, so that a wheel for another processor, or the
// text file that a broken download leaves, is passed over.
bool is_library(const fs::path& file) {
  Elf64_Ehdr header{};
  std::ifstream stream(file, std::ios::binary);
  return stream.read(reinterpret_cast<char*>(&header), sizeof header) &&
         std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_machine == own_machine;
}

bool starts_with(const fs::path& file, std::string_view prefix) {
  return file.filename().string().starts_with(prefix);
}

std::vector<fs::path> files_of(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    files.push_back(at->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class Finder {
 public:
  // Each `try_` function returns true once `found` is set, and else adds to `tried`.
  bool try_file(const fs::path& file, std::string_view reason) {
    std::error_code error;
    const fs::path resolved = fs::canonical(file, error);
    if (error) return miss(file.string(), reason, "not there");
    if (!is_library(resolved)) return miss(file.string(), reason, "not a library for this machine");
    found.library = resolved.string();
    for (const fs::path& beside : files_of(resolved.parent_path())) {
      if (!starts_with(beside, "libnvrtc-builtins.so")) continue;
      const fs::path target = fs::canonical(beside, error);
      if (error || std::count(found.builtins.begin(), found.builtins.end(), target.string()))
        continue;
      found.builtins.push_back(target.string());
    }
    return true;
  }

  // The newest libnvrtc.so.* of a directory: names sort by their version's first digits.
  bool try_directory(const fs::path& directory, std::string_view reason) {
    std::vector<fs::path> files = files_of(directory);
    std::reverse(files.begin(), files.end());
    for (const fs::path& file : files) {
      if (starts_with(file, "libnvrtc.so") && is_library(file)) return try_file(file, reason);
    }
    return miss((directory / "libnvrtc.so.*").string(), reason, "not there");
  }

  // NVIDIA's wheels unpack to nvidia/cu13/lib (CUDA 13) or nvidia/cuda_nvrtc/lib (CUDA 12).
  bool try_hint(const fs::path& place, std::string_view reason) {
    std::error_code error;
    if (fs::is_regular_file(place, error)) return try_file(place, reason);
    if (try_directory(place, reason)) return true;
    for (const fs::path& root : {place, place / "nvidia"}) {
      for (const char* wheel : {"cu13", "cuda_nvrtc"}) {
        if (fs::is_directory(root / wheel, error) && try_directory(root / wheel / "lib", reason)) {
          return true;
        }
      }
    }
    return miss((place / "nvidia/{cu13,cuda_nvrtc}/lib").string(), reason, "no wheel of NVIDIA");
  }

  bool try_toolkit(const fs::path& root, std::string_view reason) {
    std::error_code error;
    for (const char* folder :
         {"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"}) {
      if (fs::is_directory(root / folder, error) && try_directory(root / folder, reason))
        return true;
    }
    return miss(root.string(), reason, "no toolkit");
  }

  bool try_loader() {
    for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}) {
      const SharedLibrary library = SharedLibrary::open(name);
      if (library.is_open()) return try_file(library.path(), "the loader");
      miss(name, "the loader", "not in LD_LIBRARY_PATH or the system's directories");
    }
    return false;
  }

  NvrtcFiles found;
  std::string tried;

 private:
  bool miss(std::string_view place, std::string_view reason, std::string_view why) {
    tried += fmt::format("\n       {} ({}): {}", place, reason, why);
    return false;
  }
};

bool search_everywhere(Finder& finder, const NvrtcSearch& search) {
  if (!search.exact.empty()) {
    return finder.try_file(search.exact, name_of(EnvironmentVariable::nvrtc));
  }
  if (!search.hint.empty() && finder.try_hint(search.hint, "the host program")) return true;
  for (const std::string& root : search.toolkits) {
    if (finder.try_toolkit(root, "CUDA_HOME, CUDA_PATH, CONDA_PREFIX")) return true;
  }
  if (search.loader && finder.try_loader()) return true;
  for (const std::string& root : search.fallbacks) {
    if (finder.try_toolkit(root, "the usual place")) return true;
  }
  return false;
}

}  // namespace

void set_nvrtc_hint(std::string path) {
  const NoFork whole;
  const std::lock_guard lock(hint_mutex);
  host_hint() = std::move(path);
}

NvrtcSearch NvrtcSearch::from_environment() {
  NvrtcSearch search;
  search.exact = value_of(EnvironmentVariable::nvrtc).value_or("");
  {
    const NoFork whole;
    const std::lock_guard lock(hint_mutex);
    search.hint = host_hint();
  }
  for (const char* name : {"CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"}) {
    if (std::string root = system_variable(name); !root.empty()) search.toolkits.push_back(root);
  }
  search.fallbacks = {"/usr/local/cuda"};
  return search;
}

NvrtcFiles find_nvrtc(const NvrtcSearch& search) {
  Finder finder;
  if (search_everywhere(finder, search)) return std::move(finder.found);
  throw CompileError(
      {.what = "the CUDA run-time compiler (libnvrtc) was not found",
       .why = "looked in" + finder.tried,
       .fix =
           fmt::format("pip install 'flashcore[nvrtc]', or nvidia-cuda-nvrtc alone (no toolkit is "
                       "needed), or set {} to the file; kernels in the emulator, and those "
                       "that a cache or a bundle has, need neither",
                       name_of(EnvironmentVariable::nvrtc)),
       .where = {}});
}

}  // namespace flashcore
