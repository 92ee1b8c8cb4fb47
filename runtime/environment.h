// Every environment variable FlashCore reads stands in one table; nothing else calls getenv.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace flashcore {

enum class EnvironmentVariable : std::uint8_t {
  nvrtc,
  libcuda,
  compile,
  keep_source,
  cache,
  cache_dir,
  cache_max_bytes,
  cache_lock_seconds,
  cache_read,
  bundles,
  bundle_signers,
  remote,
  remote_mode,
  remote_signer,
  schedules,
  cost_model,
  cxx,
  log,
};

struct EnvironmentEntry {
  EnvironmentVariable id;
  const char* name;
  const char* fallback;  ///< what holds when it is unset, in words
  const char* meaning;
  const char* choices =
      "";  ///< of a variable that takes some words alone: these, the default first
};

/// All of them, in the order of the enumeration: what documentation and tests read.
std::span<const EnvironmentEntry> environment_table();

const char* name_of(EnvironmentVariable variable);

/// The value; an empty one counts as unset.
std::optional<std::string> value_of(EnvironmentVariable variable);

/// One of the variable's choices, the first if it is unset. Anything else is a CacheError: what is
/// misspelled must not silently do nothing.
std::string choice_of(EnvironmentVariable variable);

/// A whole number that is not negative, or `fallback` when unset. Anything else is a CacheError: a
/// misspelled limit must not silently become no limit.
std::uint64_t number_of(EnvironmentVariable variable, std::uint64_t fallback);

/// A variable that belongs to the system (HOME, CUDA_HOME, ...); empty when unset.
std::string system_variable(const char* name);

}  // namespace flashcore
