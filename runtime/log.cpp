#include "runtime/log.h"

#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/environment.h"
#include "runtime/hooks.h"
#include "runtime/no_fork.h"

namespace flashcore {
namespace {

// Above every level: nothing is written.
constexpr int silent = static_cast<int>(LogLevel::warn) + 1;

int level_from_environment() {
  const std::string value = value_of(EnvironmentVariable::log).value_or("warn");
  if (value == "off") return silent;
  for (const LogLevel level : {LogLevel::debug, LogLevel::info, LogLevel::warn}) {
    if (value == name_of(level)) return static_cast<int>(level);
  }
  fmt::print(stderr, "flashcore: {}={} is not debug, info, warn or off; using warn\n",
             name_of(EnvironmentVariable::log), value);
  return static_cast<int>(LogLevel::warn);
}

struct State {
  std::mutex mutex;
  std::shared_ptr<const LogHook> hook;
  const int environment_level = level_from_environment();
};

// Never destroyed: threads may still log while the process ends.
State& state() {
  static State* const instance = new State;
  return *instance;
}

std::shared_ptr<const LogHook> current_hook() {
  const NoFork whole;
  const std::lock_guard lock(state().mutex);
  return state().hook;
}

void deliver(LogLevel level, std::string_view text) {
  // The hook runs outside the lock: it may log, or take a lock of its host (Python's).
  if (const auto hook = current_hook()) {
    (*hook)(level, text);
  } else {
    fmt::print(stderr, "flashcore {}: {}\n", name_of(level), text);
  }
}

}  // namespace

std::string_view name_of(LogLevel level) {
  constexpr std::string_view names[] = {"debug", "info", "warn"};
  return names[static_cast<int>(level)];
}

void set_log_hook(LogHook hook) {
  auto shared = hook ? std::make_shared<const LogHook>(std::move(hook)) : nullptr;
  const NoFork whole;
  const std::lock_guard lock(state().mutex);
  state().hook.swap(shared);
}

bool log_enabled(LogLevel level) {
  return current_hook() != nullptr || static_cast<int>(level) >= state().environment_level;
}

void log_text(LogLevel level, std::string_view text) {
  call_hook([level, text = std::string(text)] { deliver(level, text); });
}

}  // namespace flashcore
