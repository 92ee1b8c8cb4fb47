// Many kernels in one file, for any number of targets: what a deployment ships in place of a
// cache's directory. Entries are those of the cache, byte for byte (docs/cache_format.md); in front
// of them stands a manifest of what they are and, if the maker wants, the signature under it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/bundle/signature.h"
#include "runtime/cache/directory.h"
#include "runtime/cache/stored_kernel.h"

namespace flashcore {

/// What the manifest says of one kernel.
struct BundledKernel {
  std::string key;     ///< what the cache calls it
  std::string kernel;  ///< the program's name and the target
  std::string target;
  std::uint64_t offset = 0, bytes = 0;  ///< in the file
  std::string digest;                   ///< secure_digest_of its entry
  std::vector<std::string> requests;    ///< that it answers without code generation (request_of)
};

/// An open bundle. Thread-safe; a file that is replaced meanwhile is not noticed, one that is
/// changed in place is damaged.
class Bundle {
 public:
  /// Reads and checks the manifest and its signature, not yet the kernels. The file may be
  /// anybody's if an accepted signer signed it, else it has to pass the policy of the cache's
  /// directory. Throws CacheError.
  static std::shared_ptr<const Bundle> open(const std::string& path);
  /// Of content that came from elsewhere and is called `name` in messages; whoever hands it over
  /// answers for where it came from, unless signers are listed. Throws CacheError.
  static std::shared_ptr<const Bundle> from_bytes(std::string_view content,
                                                  const std::string& name);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Sorted by key.
  [[nodiscard]] const std::vector<BundledKernel>& kernels() const { return kernels_; }
  /// What the maker wrote down about the specs that the kernels are of, as JSON.
  [[nodiscard]] const std::string& plans() const { return plans_; }
  [[nodiscard]] const std::optional<PublicKey>& signer() const { return signer_; }

  /// The kernels whose keys begin so.
  [[nodiscard]] std::vector<const BundledKernel*> find(std::string_view key_prefix) const;
  /// The kernel that answers a request (runtime/request.h); null if the bundle does not say.
  [[nodiscard]] const BundledKernel* find_requested(const std::string& request) const;
  /// The entry, checked against the manifest. Throws CacheError if it is damaged.
  [[nodiscard]] std::string read(const BundledKernel& kernel) const;

 private:
  explicit Bundle(std::string path) : path_(std::move(path)) {}
  /// Everything in front of the kernels. Returns whether a listed signer vouches for it.
  bool read_head(std::uint64_t file_bytes);
  void read_manifest(std::string_view text, std::uint64_t begin, std::uint64_t end);

  std::string path_;
  Descriptor file_;
  std::vector<BundledKernel> kernels_;
  std::unordered_map<std::string_view, const BundledKernel*> requested_;
  std::string plans_;
  std::optional<PublicKey> signer_;
};

/// All of its kernels in their order, read and checked on as many cores as there are: for a start
/// of a process, ahead of the first launch. Throws CacheError and CompileError if any is damaged.
std::vector<StoredKernel> read_all(const Bundle& bundle);

/// The content of a bundle with these entries; twice the same one counts once. `plans` is JSON, for
/// readers of `Bundle::plans`. `requests` are answered by the kernels of these keys; those of other
/// keys are left out. Equal contents are equal files. Throws CompileError for what is no entry, and
/// CacheError for JSON that is none.
std::string write_bundle(const std::vector<std::string>& entries, std::string_view plans,
                         const SecretKey* signer = nullptr,
                         const std::map<std::string, std::string>& requests = {});

/// Writes a bundle's content to that path: whoever opens it meanwhile, or after a crash, finds the
/// old file or all of the new one. What a crash left of an earlier attempt goes after an hour.
/// Throws CacheError.
void save_bundle(const std::string& path, std::string_view content);

}  // namespace flashcore
