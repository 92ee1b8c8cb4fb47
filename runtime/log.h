// Where FlashCore tells what it does. Silent unless a hook is set or FLASHCORE_LOG asks.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "runtime/hooks.h"

namespace flashcore {

enum class LogLevel : std::uint8_t { debug, info, warn };

/// "debug", "info" or "warn".
std::string_view name_of(LogLevel level);

using LogHook = std::function<void(LogLevel, std::string_view)>;

/// Sends every message to `hook`, from any thread, instead of the standard error. An empty hook
/// puts the environment variable back in charge. Exceptions of the hook are swallowed: logging
/// never changes what a program does.
void set_log_hook(LogHook hook);

/// Whether anyone listens at this level, so that callers need not format for nobody.
bool log_enabled(LogLevel level);

void log_text(LogLevel level, std::string_view text);

template <class... Arguments>
void log_message(LogLevel level, fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  if (log_enabled(level)) {
    log_text(level, fmt::format(text, std::forward<Arguments>(arguments)...));
  }
}

}  // namespace flashcore
