#include "runtime/compile_mode.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <string>

#include "dsl/error.h"
#include "dsl/shortened.h"
#include "runtime/environment.h"

namespace flashcore {
namespace {

constexpr int as_the_environment_says = -1;
std::atomic<int> chosen = as_the_environment_says;

constexpr std::string_view names[] = {"allow", "warn", "tiered", "eager", "forbid"};

}  // namespace

std::string_view name_of(CompileMode mode) { return names[static_cast<int>(mode)]; }

CompileMode compile_mode_named(std::string_view name) {
  const auto* const found = std::ranges::find(names, name);
  if (found != std::end(names)) return static_cast<CompileMode>(found - std::begin(names));
  throw CacheError({.what = fmt::format("the compile mode \"{}\"", shortened(name)),
                    .why = "there is no such mode",
                    .fix = "allow, warn, tiered, eager or forbid",
                    .where = {}});
}

CompileMode compile_mode() {
  if (const int mode = chosen; mode != as_the_environment_says)
    return static_cast<CompileMode>(mode);
  return compile_mode_named(choice_of(EnvironmentVariable::compile));
}

void set_compile_mode(std::optional<CompileMode> mode) {
  chosen = mode ? static_cast<int>(*mode) : as_the_environment_says;
}

}  // namespace flashcore
