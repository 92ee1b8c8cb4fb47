// The compiler that this process would use, known without opening it. A process whose kernels are
// all in the cache never does, and then the compiler need not even be installed.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "dsl/error.h"
#include "runtime/cache/directory.h"
#include "runtime/cache/key.h"
#include "runtime/cuda/nvrtc.h"

namespace flashcore {

class InstalledNvrtc {
 public:
  /// The compiler of this process. Searched for anew until it is found, then kept.
  static std::shared_ptr<const InstalledNvrtc> shared();

  /// What `search` finds. If that is nothing, but `directory` was filled by a compiler somewhere
  /// else (an image with its kernels baked in): that one, without the ability to compile. Throws
  /// CompileError when neither is there, or when the user named a file that is not.
  static std::shared_ptr<const InstalledNvrtc> find(const NvrtcSearch& search,
                                                    const CacheDirectory* directory);

  /// Reads the identity of these files from a record in `directory`, or makes one there. Without a
  /// record (or a directory) the libraries are read once, a hundred megabytes.
  InstalledNvrtc(NvrtcFiles files, const CacheDirectory* directory);

  /// A compiler that is not here, and the error that says so.
  InstalledNvrtc(Toolchain toolchain, CompileError missing);

  /// Whether it can compile.
  [[nodiscard]] bool is_present() const { return !missing_; }
  [[nodiscard]] const NvrtcFiles& files() const { return files_; }
  [[nodiscard]] const Toolchain& toolchain() const { return toolchain_; }

  /// Opened at the first call. Throws CompileError if it is not here.
  [[nodiscard]] const Nvrtc& nvrtc() const;
  [[nodiscard]] bool is_open() const;

 private:
  NvrtcFiles files_;
  Toolchain toolchain_;
  std::optional<CompileError> missing_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<const Nvrtc> nvrtc_;
};

}  // namespace flashcore
