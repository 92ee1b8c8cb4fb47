// The compiler that this process would use, known without opening it. A process whose kernels are
// all in the cache never does.
#pragma once

#include <memory>
#include <mutex>

#include "runtime/cache/directory.h"
#include "runtime/cache/key.h"
#include "runtime/cuda/nvrtc.h"

namespace flashcore {

class InstalledNvrtc {
 public:
  /// The compiler of this process. Searched for anew until it is found, then kept.
  static const InstalledNvrtc& shared();

  /// Reads the identity of these files from a record in `directory`, or makes one there. Without a
  /// record (or a directory) the libraries are read once, a hundred megabytes.
  InstalledNvrtc(NvrtcFiles files, const CacheDirectory* directory);

  [[nodiscard]] const NvrtcFiles& files() const { return files_; }
  [[nodiscard]] const Toolchain& toolchain() const { return toolchain_; }

  /// Opened at the first call.
  [[nodiscard]] const Nvrtc& nvrtc() const;
  [[nodiscard]] bool is_open() const;

 private:
  NvrtcFiles files_;
  Toolchain toolchain_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<const Nvrtc> nvrtc_;
};

}  // namespace flashcore
