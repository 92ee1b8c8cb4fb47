#include "runtime/bundle/bundle.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <future>
#include <map>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dsl/error.h"
#include "dsl/json.h"
#include "runtime/bundle/signers.h"
#include "runtime/cache/digest.h"
#include "runtime/cache/files.h"
#include "runtime/cache/trusted_file.h"
#include "runtime/environment.h"
#include "runtime/no_fork.h"

namespace flashcore {
namespace {

using Json = nlohmann::json;

constexpr std::string_view magic = "FCBUNDLE";
constexpr std::uint32_t bundle_schema = 1;
constexpr std::size_t head_bytes = magic.size() + 2 * sizeof(std::uint32_t) + sizeof(std::uint64_t);
constexpr std::size_t signature_bytes = PublicKey::size + Signature::size;
// A manifest has some hundred bytes a kernel.
constexpr std::uint64_t largest_manifest = std::uint64_t{1} << 30;

[[noreturn]] void refuse(const std::string& path, std::string why,
                         std::string fix = "make it anew, with `flashcore bundle build`") {
  throw CacheError({.what = fmt::format("{} is no bundle that can be used", path),
                    .why = std::move(why),
                    .fix = std::move(fix),
                    .where = {}});
}

template <class Integer>
void append(std::string& text, Integer value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class Integer>
Integer take(std::string_view& text) {
  Integer value;
  std::memcpy(&value, text.data(), sizeof value);
  text.remove_prefix(sizeof value);
  return value;
}

/// So many bytes from there on; fewer where the file ends, or cannot be read.
std::string read_at(const Descriptor& file, std::uint64_t offset, std::uint64_t bytes) {
  std::string text(bytes, '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = pread(file.number(), text.data() + done, text.size() - done,
                              static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  text.resize(done);
  return text;
}

/// In front of the manifest. With the manifest, it is what is signed.
std::string head_of(std::string_view manifest) {
  std::string head(magic);
  append(head, bundle_schema);
  append(head, std::uint32_t{0});
  append<std::uint64_t>(head, manifest.size());
  return head;
}

}  // namespace

std::shared_ptr<const Bundle> Bundle::open(const std::string& path) {
  std::shared_ptr<Bundle> bundle(new Bundle(path));
  // A FIFO must not be waited for.
  bundle->file_ = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!bundle->file_.is_open() || fstat(bundle->file_.number(), &status) != 0)
    refuse(path, fmt::format("it cannot be opened: {}", std::strerror(errno)),
           "the path of a file that this user can read");
  if (!S_ISREG(status.st_mode)) refuse(path, "it is not a regular file", "the path of a bundle");
  // Who signed it vouches for it; else whoever can write it has to be trusted.
  if (!bundle->read_head(static_cast<std::uint64_t>(status.st_size))) {
    if (const std::string why = distrust(status); !why.empty())
      refuse(path, why,
             fmt::format("chmod go-w, a copy of your own, or a signed bundle and its signer in {}",
                         name_of(EnvironmentVariable::bundle_signers)));
  }
  return bundle;
}

std::shared_ptr<const Bundle> Bundle::from_bytes(std::string_view content,
                                                 const std::string& name) {
  std::shared_ptr<Bundle> bundle(new Bundle(name));
  bundle->file_ = Descriptor(memfd_create("bundle", MFD_CLOEXEC));
  if (!bundle->file_.is_open() || pwrite(bundle->file_.number(), content.data(), content.size(),
                                         0) != static_cast<ssize_t>(content.size()))
    refuse(name, fmt::format("it cannot be kept in memory: {}", std::strerror(errno)),
           "more memory for this process");
  bundle->read_head(content.size());
  return bundle;
}

bool Bundle::read_head(std::uint64_t file_bytes) {
  const std::string head = read_at(file_, 0, head_bytes);
  if (head.size() < head_bytes || !head.starts_with(magic)) refuse(path_, "it has another form");
  std::string_view rest = std::string_view(head).substr(magic.size());
  const auto schema = take<std::uint32_t>(rest);
  if (schema != bundle_schema)
    refuse(path_,
           fmt::format("it has schema {}, and this version reads {}", schema, bundle_schema));
  const bool no_flags = take<std::uint32_t>(rest) == 0;
  const auto manifest_bytes = take<std::uint64_t>(rest);
  // Behind the manifest: its digest, and one byte that says whether a signature follows.
  constexpr std::size_t tail_bytes = secure_digest_bytes + 1;
  if (!no_flags || manifest_bytes > largest_manifest ||
      file_bytes < head_bytes + manifest_bytes + tail_bytes)
    refuse(path_, "it is cut short or damaged");
  const std::string message = read_at(file_, 0, head_bytes + manifest_bytes);
  std::uint64_t at = message.size();
  const std::string tail = read_at(file_, at, tail_bytes);
  at += tail_bytes;
  if (message.size() < head_bytes + manifest_bytes || tail.size() < tail_bytes ||
      secure_digest_of(message) != tail.substr(0, secure_digest_bytes) || tail.back() < 0 ||
      tail.back() > 1)
    refuse(path_, "it is cut short or damaged");

  std::optional<Signature> signature;
  if (tail.back() == 1) {
    const std::string bytes = read_at(file_, at, signature_bytes);
    if (bytes.size() < signature_bytes) refuse(path_, "it is cut short or damaged");
    at += signature_bytes;
    std::array<unsigned char, PublicKey::size> key{};
    std::memcpy(key.data(), bytes.data(), key.size());
    signature.emplace(Signature{PublicKey(key), {}});
    std::memcpy(signature->bytes.data(), bytes.data() + key.size(), Signature::size);
    signer_ = signature->signer;
  }
  const std::optional<std::vector<PublicKey>> accepted = accepted_signers();
  check_signature(path_, message, signature, accepted);
  read_manifest(std::string_view(message).substr(head_bytes), at, file_bytes);
  return accepted.has_value();
}

void Bundle::read_manifest(std::string_view text, std::uint64_t begin, std::uint64_t end) {
  std::uint64_t at = begin;
  try {
    if (too_deep_for_json(text)) refuse(path_, "its manifest nests too deep");
    const Json manifest = Json::parse(text);
    for (const Json& json : manifest.at("kernels")) {
      BundledKernel kernel;
      json.at("key").get_to(kernel.key);
      json.at("kernel").get_to(kernel.kernel);
      json.at("target").get_to(kernel.target);
      json.at("digest").get_to(kernel.digest);
      json.at("requests").get_to(kernel.requests);
      if (!json.at("bytes").is_number_unsigned()) refuse(path_, "its manifest has no sizes");
      json.at("bytes").get_to(kernel.bytes);
      kernel.offset = at;
      if (kernel.bytes > end - at) refuse(path_, "it is cut short");
      at += kernel.bytes;
      if (!kernels_.empty() && kernel.key <= kernels_.back().key)
        refuse(path_, "the kernels of its manifest are not in order");
      kernels_.push_back(std::move(kernel));
    }
    plans_ = manifest.at("plans").dump();
  } catch (const Json::exception&) {
    refuse(path_, "its manifest has another form");
  }
  for (const BundledKernel& kernel : kernels_) {
    for (const std::string& request : kernel.requests) {
      if (!requested_.emplace(request, &kernel).second)
        refuse(path_, "its manifest answers a request with two kernels");
    }
  }
  if (at != end) refuse(path_, "it has more bytes than its manifest tells of");
}

std::vector<const BundledKernel*> Bundle::find(std::string_view key_prefix) const {
  std::vector<const BundledKernel*> found;
  auto at =
      std::lower_bound(kernels_.begin(), kernels_.end(), key_prefix,
                       [](const BundledKernel& k, std::string_view key) { return k.key < key; });
  for (; at != kernels_.end() && at->key.starts_with(key_prefix); ++at) found.push_back(&*at);
  return found;
}

const BundledKernel* Bundle::find_requested(const std::string& request) const {
  const auto found = requested_.find(request);
  return found == requested_.end() ? nullptr : found->second;
}

std::string Bundle::read(const BundledKernel& kernel) const {
  std::string entry = read_at(file_, kernel.offset, kernel.bytes);
  if (entry.size() < kernel.bytes || hexadecimal(secure_digest_of(entry)) != kernel.digest)
    refuse(path_, fmt::format("{} in it is damaged", kernel.kernel), "copy the bundle anew");
  return entry;
}

std::vector<StoredKernel> read_all(const Bundle& bundle) {
  const NoFork whole;
  const std::vector<BundledKernel>& kernels = bundle.kernels();
  std::vector<StoredKernel> read(kernels.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < kernels.size(); i = next++)
      read[i] = read_stored_kernel(bundle.read(kernels[i]), bundle.path());
  };
  // BLAKE2b takes a tenth of a millisecond a kernel; more threads than this have nothing to do.
  const std::size_t threads =
      std::min<std::size_t>({std::max(std::thread::hardware_concurrency(), 1U), 8, kernels.size()});
  std::vector<std::future<void>> others;
  for (std::size_t i = 1; i < threads; ++i) others.push_back(std::async(std::launch::async, work));
  work();
  for (std::future<void>& other : others) other.get();
  return read;
}

std::string write_bundle(const std::vector<std::string>& entries, std::string_view plans,
                         const SecretKey* signer,
                         const std::map<std::string, std::string>& requests) {
  std::map<std::string, const std::string*> by_key;
  std::map<std::string, StoredKernel> stored;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    StoredKernel kernel = read_stored_kernel(entries[i], fmt::format("entry {} of a bundle", i));
    by_key.emplace(kernel.key, &entries[i]);
    stored.emplace(kernel.key, std::move(kernel));
  }
  std::map<std::string, std::vector<std::string>> answered;  // both in order
  for (const auto& [request, key] : requests) answered[key].push_back(request);
  Json kernels = Json::array();
  for (const auto& [key, entry] : by_key) {
    const StoredKernel& kernel = stored.at(key);
    kernels.push_back({{"key", key},
                       {"kernel", fmt::format("{} for {}", kernel.name, kernel.target)},
                       {"target", kernel.target},
                       {"bytes", entry->size()},
                       {"digest", hexadecimal(secure_digest_of(*entry))},
                       {"requests", answered[key]}});
  }
  if (too_deep_for_json(plans) || !Json::accept(plans))
    throw CacheError({.what = "the plans of a bundle",
                      .why = "they are not JSON, or nest too deep",
                      .fix = "[] where there are none",
                      .where = {}});
  const std::string manifest =
      Json{{"kernels", std::move(kernels)}, {"plans", Json::parse(plans)}}.dump();
  const std::string message = head_of(manifest) + manifest;
  std::string file = message + secure_digest_of(message);
  file += static_cast<char>(signer != nullptr);
  if (signer != nullptr) {
    const Signature signature = signer->sign(message);
    file.append(reinterpret_cast<const char*>(signature.signer.bytes().data()), PublicKey::size);
    file.append(reinterpret_cast<const char*>(signature.bytes.data()), Signature::size);
  }
  for (const auto& [key, entry] : by_key) file += *entry;
  return file;
}

void save_bundle(const std::string& path, std::string_view content) {
  const std::filesystem::path place(path);
  const std::string name = place.filename().string();
  const std::string above = place.has_parent_path() ? place.parent_path().string() : ".";
  const std::string unfinished = "." + name + ".unfinished.";
  const Descriptor folder(::open(above.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::string why = folder.is_open()
                              ? write_whole(folder.number(), name, unfinished, content, 0644)
                              : fmt::format("its folder: {}", std::strerror(errno));
  if (!why.empty())
    throw CacheError({.what = fmt::format("the bundle {}", path),
                      .why = fmt::format("it cannot be written: {}", why),
                      .fix = "another folder",
                      .where = {}});
  sweep_unfinished(folder.number(), unfinished);
}

}  // namespace flashcore
