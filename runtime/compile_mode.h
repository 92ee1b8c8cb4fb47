// Whether a kernel that is not in the cache may be compiled.
#pragma once

#include <optional>

namespace flashcore {

enum class CompileMode {
  allow,
  warn,    ///< compile, and say so
  forbid,  ///< a CacheMissError
};

/// What `set_compile_mode` said last, else FLASHCORE_COMPILE. Throws CacheError for a word that the
/// variable does not take.
CompileMode compile_mode();

/// For the whole process, from now on; nothing: as the environment says.
void set_compile_mode(std::optional<CompileMode> mode);

}  // namespace flashcore
