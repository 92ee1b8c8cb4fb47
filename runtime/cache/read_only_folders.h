// Directories of kernels that this process reads and somebody else fills: baked into an image,
// mounted, shared by the hosts of a fleet.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cache/directory.h"
#include "runtime/cache/entry.h"
#include "runtime/cache/key.h"

namespace flashcore {

/// Thread-safe. Nothing in them is written, renamed or touched.
class ReadOnlyFolders {
 public:
  /// Each has to pass the policy of the cache's own directory (CacheDirectory::open); one that does
  /// not is told in the log and left out.
  explicit ReadOnlyFolders(const std::vector<std::string>& paths);

  /// Whether `accept` took the file of that key in one of them, the first named first; where any
  /// compiler's serve, or one that asks for the same.
  bool find(const CacheKey& key, Compiler compiler,
            const std::function<bool(std::string_view file)>& accept) const;

  /// Why `find` found nothing, a sentence for each folder.
  [[nodiscard]] std::vector<std::string> reasons_of_miss(const CacheKey& key) const;

 private:
  std::vector<CacheDirectory> folders_;
  std::vector<std::string> refused_;
};

}  // namespace flashcore
