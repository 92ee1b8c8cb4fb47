#include "runtime/cache/toolchain.h"

#include <array>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "runtime/cache/cache.h"
#include "runtime/cache/digest.h"
#include "runtime/cache/envelope.h"
#include "runtime/log.h"

namespace flashcore {
namespace {

// Changes whenever one of the files does: path, size and time of every one.
std::string stamp_of(const NvrtcFiles& files) {
  std::string stamp;
  const auto add = [&](const std::string& path) {
    struct stat status {};
    stat(path.c_str(), &status);
    stamp += fmt::format("{}:{} {} {}.{}\n", path.size(), path, status.st_size,
                         status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  };
  add(files.library);
  for (const std::string& path : files.builtins) add(path);
  return stamp;
}

std::optional<Toolchain> read_record(const CacheDirectory& directory, const std::string& name,
                                     const std::string& stamp) {
  const std::optional<std::string> file = directory.read(name);
  if (!file) return std::nullopt;
  const auto sections = unseal(*file, 2);
  if (!sections || (*sections)[0] != stamp) return std::nullopt;
  const auto json = nlohmann::json::parse((*sections)[1], nullptr, false);
  try {
    return Toolchain{.version = {.major = json.at("major"), .minor = json.at("minor")},
                     .digest = json.at("digest")};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

void write_record(const CacheDirectory& directory, const std::string& name,
                  const std::string& stamp, const Toolchain& toolchain) {
  const std::string body = nlohmann::json{
      {"major", toolchain.version.major},
      {"minor", toolchain.version.minor},
      {"digest",
       toolchain.digest}}.dump(2);
  // A failure costs the next process a reading of the libraries; the first kernel to be stored
  // tells.
  (void)directory.write(name, seal(std::array<std::string_view, 2>{stamp, body}));
}

std::string content_of(const NvrtcFiles& files) {
  std::string digests = digest_of_file(files.library);
  for (const std::string& path : files.builtins) digests += digest_of_file(path);
  return digest_of(digests);
}

}  // namespace

const InstalledNvrtc& InstalledNvrtc::shared() {
  static std::mutex mutex;
  static const InstalledNvrtc* instance = nullptr;
  const LogDeferral messages_after_the_lock;
  const std::lock_guard lock(mutex);
  if (instance == nullptr) {
    instance = new InstalledNvrtc(find_nvrtc(NvrtcSearch::from_environment()),
                                  KernelCache::shared().directory());
  }
  return *instance;
}

InstalledNvrtc::InstalledNvrtc(NvrtcFiles files, const CacheDirectory* directory)
    : files_(std::move(files)) {
  const std::string stamp = stamp_of(files_);
  const std::string record = digest_of(stamp) + ".toolchain";
  if (directory != nullptr) {
    if (auto known = read_record(*directory, record, stamp)) {
      toolchain_ = std::move(*known);
      return;
    }
  }
  toolchain_ = {.version = nvrtc().version(), .digest = content_of(files_)};
  if (directory != nullptr) write_record(*directory, record, stamp, toolchain_);
}

const Nvrtc& InstalledNvrtc::nvrtc() const {
  const LogDeferral messages_after_the_lock;
  const std::lock_guard lock(mutex_);
  if (nvrtc_ == nullptr) nvrtc_ = std::make_unique<const Nvrtc>(files_);
  return *nvrtc_;
}

bool InstalledNvrtc::is_open() const {
  const std::lock_guard lock(mutex_);
  return nvrtc_ != nullptr;
}

}  // namespace flashcore
