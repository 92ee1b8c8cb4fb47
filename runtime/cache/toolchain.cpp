#include "runtime/cache/toolchain.h"

#include <algorithm>
#include <array>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "runtime/cache/cache.h"
#include "runtime/cache/digest.h"
#include "runtime/cache/envelope.h"
#include "runtime/log.h"
#include "runtime/no_fork.h"

namespace flashcore {
namespace {

constexpr std::string_view record_suffix = ".toolchain";

// The beginning of a file, where an ELF file has its build id, and its end.
std::optional<std::string> sample_of(const std::string& path, std::uint64_t bytes) {
  constexpr std::uint64_t sampled = 4096;
  std::ifstream file(path, std::ios::binary);
  std::string sample(2 * sampled, '\0');
  file.read(sample.data(), static_cast<std::streamsize>(std::min(bytes, sampled)));
  if (bytes > sampled) {
    file.seekg(-static_cast<std::streamoff>(sampled), std::ios::end);
    file.read(sample.data() + sampled, sampled);
  }
  return file ? std::optional(digest_of(sample)) : std::nullopt;
}

// Changes whenever one of the files does: path, size and time of every one, and a sample of it,
// since another build may have been put in its place with both. Nothing in it is of one machine:
// a directory of kernels travels with an image. Nothing if a file cannot be looked at: zeros in its
// place would be the stamp of any other such file.
std::optional<std::string> stamp_of(const NvrtcFiles& files) {
  std::string stamp;
  const auto add = [&](const std::string& path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) return false;
    const auto sample = sample_of(path, static_cast<std::uint64_t>(status.st_size));
    if (!sample) return false;
    stamp += fmt::format("{}:{} {} {}.{} {}\n", path.size(), path, status.st_size,
                         status.st_mtim.tv_sec, status.st_mtim.tv_nsec, *sample);
    return true;
  };
  const bool whole = add(files.library) && std::ranges::all_of(files.builtins, add);
  return whole ? std::optional(stamp) : std::nullopt;
}

std::optional<Toolchain> toolchain_from(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  try {
    return Toolchain{.version = {.major = json.at("major"), .minor = json.at("minor")},
                     .digest = json.at("digest")};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

// The identity that was recorded under this stamp, or under any when there is none to compare.
std::optional<Toolchain> read_record(const CacheDirectory& directory, const std::string& name,
                                     const std::optional<std::string>& stamp) {
  const std::optional<std::string> file = directory.read(name);
  if (!file) return std::nullopt;
  const auto sections = unseal(*file, 2);
  if (!sections || (stamp && (*sections)[0] != *stamp)) return std::nullopt;
  return toolchain_from((*sections)[1]);
}

// Of the compilers that have filled the directory, the one that came last.
std::optional<Toolchain> latest_record(const CacheDirectory& directory) {
  std::vector<CacheDirectory::File> files = directory.files();
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return a.last_use > b.last_use; });
  for (const CacheDirectory::File& file : files) {
    if (!file.name.ends_with(record_suffix)) continue;
    if (auto toolchain = read_record(directory, file.name, std::nullopt)) return toolchain;
  }
  return std::nullopt;
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
  std::string digests;
  const auto add = [&](const std::string& path) {
    const std::string digest = digest_of_file(path);
    if (digest.empty())
      throw CompileError(
          {.what = fmt::format("the CUDA run-time compiler {}", files.library),
           .why = fmt::format("{} cannot be read, and so not be told from others", path),
           .fix = "try again, or set FLASHCORE_NVRTC to another one",
           .where = {}});
    digests += digest;
  };
  add(files.library);
  std::ranges::for_each(files.builtins, add);
  return digest_of(digests);
}

}  // namespace

std::shared_ptr<const InstalledNvrtc> InstalledNvrtc::shared() {
  static std::mutex mutex;
  static auto* const known = new std::shared_ptr<const InstalledNvrtc>;
  const HookDeferral messages_after_the_lock;
  const NoFork whole;
  const std::lock_guard lock(mutex);
  if (*known != nullptr) return *known;
  auto found = find(NvrtcSearch::from_environment(), KernelCache::shared().directory());
  if (found->is_present()) *known = found;
  return found;
}

std::shared_ptr<const InstalledNvrtc> InstalledNvrtc::find(const NvrtcSearch& search,
                                                           const CacheDirectory* directory) {
  try {
    return std::make_shared<const InstalledNvrtc>(find_nvrtc(search), directory);
  } catch (const CompileError& missing) {
    if (!search.exact.empty() || directory == nullptr) throw;
    const std::optional<Toolchain> recorded = latest_record(*directory);
    if (!recorded) throw;
    log_message(LogLevel::info,
                "there is no NVRTC here; using the kernels that NVRTC {} left in {}",
                recorded->version.text(), directory->path());
    return std::make_shared<const InstalledNvrtc>(*recorded, missing);
  }
}

InstalledNvrtc::InstalledNvrtc(NvrtcFiles files, const CacheDirectory* directory)
    : files_(std::move(files)) {
  const std::optional<std::string> stamp = stamp_of(files_);
  const bool is_recorded = directory != nullptr && stamp;
  const std::string record = is_recorded ? digest_of(*stamp) + std::string(record_suffix) : "";
  if (is_recorded) {
    if (auto known = read_record(*directory, record, stamp)) {
      toolchain_ = std::move(*known);
      return;
    }
  }
  toolchain_ = {.version = nvrtc().version(), .digest = content_of(files_)};
  if (is_recorded) write_record(*directory, record, *stamp, toolchain_);
}

InstalledNvrtc::InstalledNvrtc(Toolchain toolchain, CompileError missing)
    : toolchain_(std::move(toolchain)), missing_(std::move(missing)) {}

const Nvrtc& InstalledNvrtc::nvrtc() const {
  if (missing_) throw CompileError(*missing_);
  const HookDeferral messages_after_the_lock;
  const NoFork whole;
  const std::lock_guard lock(mutex_);
  if (nvrtc_ == nullptr) nvrtc_ = std::make_unique<const Nvrtc>(files_);
  return *nvrtc_;
}

bool InstalledNvrtc::is_open() const {
  const NoFork whole;
  const std::lock_guard lock(mutex_);
  return nvrtc_ != nullptr;
}

}  // namespace flashcore
