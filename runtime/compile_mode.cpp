#include "runtime/compile_mode.h"

#include <atomic>
#include <string>

#include "runtime/environment.h"

namespace flashcore {
namespace {

constexpr int as_the_environment_says = -1;
std::atomic<int> chosen = as_the_environment_says;

}  // namespace

CompileMode compile_mode() {
  if (const int mode = chosen; mode != as_the_environment_says)
    return static_cast<CompileMode>(mode);
  const std::string word = choice_of(EnvironmentVariable::compile);
  if (word == "forbid") return CompileMode::forbid;
  return word == "warn" ? CompileMode::warn : CompileMode::allow;
}

void set_compile_mode(std::optional<CompileMode> mode) {
  chosen = mode ? static_cast<int>(*mode) : as_the_environment_says;
}

}  // namespace flashcore
