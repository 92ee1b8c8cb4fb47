#include "runtime/environment.h"

#include <array>
#include <charconv>
#include <cstdlib>

#include "dsl/error.h"

namespace flashcore {
namespace {

using Id = EnvironmentVariable;

constexpr std::array table{
    EnvironmentEntry{Id::nvrtc, "FLASHCORE_NVRTC", "searched for",
                     "file of the CUDA run-time compiler (libnvrtc.so.*) to use and no other"},
    EnvironmentEntry{Id::libcuda, "FLASHCORE_LIBCUDA", "libcuda.so.1",
                     "file of the driver library to use and no other"},
    EnvironmentEntry{
        Id::compile, "FLASHCORE_COMPILE", "allow",
        "forbid: a kernel that is not in the cache is an error, never a compile; warn: it "
        "is compiled, and a warning; tiered: code that is compiled fast serves until the optimised "
        "is there; eager: it is compiled, and no kernel for other lengths serves meanwhile",
        "allow warn tiered eager forbid"},
    EnvironmentEntry{Id::keep_source, "FLASHCORE_KEEP_SOURCE", "not kept",
                     "directory that receives the CUDA source of every kernel compiled"},
    EnvironmentEntry{Id::cache, "FLASHCORE_CACHE", "on",
                     "off: kernels are neither read from nor written to disk", "on off"},
    EnvironmentEntry{Id::cache_dir, "FLASHCORE_CACHE_DIR",
                     "$XDG_CACHE_HOME/flashcore or ~/.cache/flashcore",
                     "directory of compiled kernels; it must be private to its owner"},
    EnvironmentEntry{Id::cache_max_bytes, "FLASHCORE_CACHE_MAX_BYTES", "1073741824",
                     "size of that directory; the least recently used kernels go first"},
    EnvironmentEntry{Id::cache_lock_seconds, "FLASHCORE_CACHE_LOCK_SECONDS", "60",
                     "how long to wait for another process that compiles the same kernel"},
    EnvironmentEntry{Id::cache_read, "FLASHCORE_CACHE_READ", "none",
                     "directories of compiled kernels that are read and never written to, their "
                     "paths with a colon between two"},
    EnvironmentEntry{Id::bundles, "FLASHCORE_BUNDLES", "none",
                     "bundles of kernels, their paths with a colon between two"},
    EnvironmentEntry{
        Id::bundle_signers, "FLASHCORE_BUNDLE_SIGNERS", "unsigned bundles are taken too",
        "public keys, or the path of a file of them: bundles that none of these signed "
        "are refused"},
    EnvironmentEntry{Id::remote, "FLASHCORE_REMOTE", "none",
                     "URL of a store of kernels that machines share (Python: through fsspec)"},
    EnvironmentEntry{Id::remote_mode, "FLASHCORE_REMOTE_MODE", "read",
                     "write: kernels that are compiled here go to that store", "read write"},
    EnvironmentEntry{Id::remote_signer, "FLASHCORE_REMOTE_SIGNER", "they are not signed",
                     "file of the secret key that signs them"},
    EnvironmentEntry{Id::schedules, "FLASHCORE_SCHEDULES",
                     "schedules.json in the directory of compiled kernels",
                     "file of schedules that autotune found and jit uses; off: none"},
    EnvironmentEntry{Id::cost_model, "FLASHCORE_COST_MODEL",
                     "cost_model.json in the directory of compiled kernels",
                     "file of the coefficients that were measured for GPUs; off: those that ship"},
    EnvironmentEntry{Id::cxx, "FLASHCORE_CXX", "c++, g++ or clang++ on PATH",
                     "C++ compiler of kernels for arrays in CPU memory"},
    EnvironmentEntry{Id::log, "FLASHCORE_LOG", "warn",
                     "debug, info, warn or off: what is written to the standard error"},
};

const EnvironmentEntry& entry_of(Id variable) { return table[static_cast<std::size_t>(variable)]; }

}  // namespace

std::span<const EnvironmentEntry> environment_table() { return table; }

const char* name_of(Id variable) { return entry_of(variable).name; }

std::optional<std::string> value_of(Id variable) {
  const char* value = std::getenv(entry_of(variable).name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::string choice_of(Id variable) {
  const std::string_view choices = entry_of(variable).choices;
  const std::string known = fmt::format(" {} ", choices);
  const std::string value =
      value_of(variable).value_or(std::string(choices.substr(0, choices.find(' '))));
  if (value.find(' ') == std::string::npos && known.find(" " + value + " ") != std::string::npos)
    return value;
  std::string listed(choices);
  for (std::size_t at = 0; (at = listed.find(' ', at)) != std::string::npos; at += 4)
    listed.replace(at, 1, " or ");
  throw CacheError({.what = fmt::format("{}={}", name_of(variable), value),
                    .why = fmt::format("it takes {}", listed),
                    .fix = fmt::format("unset it for the default, {}", entry_of(variable).fallback),
                    .where = {}});
}

std::uint64_t number_of(Id variable, std::uint64_t fallback) {
  const std::optional<std::string> text = value_of(variable);
  if (!text) return fallback;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || end != text->data() + text->size()) {
    throw CacheError(
        {.what = fmt::format("{}={} is not a number", name_of(variable), *text),
         .why = "a whole number that is not negative is expected",
         .fix = fmt::format("unset it for the default, {}", entry_of(variable).fallback),
         .where = {}});
  }
  return number;
}

std::string system_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace flashcore
