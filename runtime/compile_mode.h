// Whether a kernel that is not in the cache may be compiled.
#pragma once

#include <optional>
#include <string_view>

namespace flashcore {

enum class CompileMode {
  allow,
  warn,    ///< compile, and say so
  tiered,  ///< compile fast to serve at once, and beside that as ever (tiered_kernel.h)
  eager,   ///< compile; no launch runs another kernel meanwhile (dispatcher.h)
  forbid,  ///< a CacheMissError
};

/// "allow", "warn", "tiered", "eager" or "forbid".
std::string_view name_of(CompileMode mode);
/// Throws CacheError for any other word.
CompileMode compile_mode_named(std::string_view name);

/// What `set_compile_mode` said last, else FLASHCORE_COMPILE. Throws CacheError for a word that the
/// variable does not take.
CompileMode compile_mode();

/// For the whole process, from now on; nothing: as the environment says.
void set_compile_mode(std::optional<CompileMode> mode);

}  // namespace flashcore
