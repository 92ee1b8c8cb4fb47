// What happens to kernels, for the telemetry of the host program.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace flashcore {

/// The first seven: a kernel was asked for, and where it was found.
enum class KernelEventKind : std::uint8_t {
  memory,
  bundle,
  directory,
  folder,
  remote,
  compiled,
  failed,
  loaded,    ///< its code was put on a GPU
  unloaded,  ///< and taken off
};

std::string_view name_of(KernelEventKind kind);

struct KernelEvent {
  KernelEventKind kind{};
  std::string kernel;       ///< the program and the target, "attention for sm_90a"
  double ms = 0;            ///< that it took
  std::uint64_t bytes = 0;  ///< of machine code; 0 where it was in memory or failed
};

using EventHook = std::function<void(const KernelEvent&)>;

/// Sends every event to `hook`, from any thread, after it happened; an empty hook ends that.
void set_event_hook(EventHook hook);

/// For what it costs to look whether there is a hook where there is none.
void tell(const KernelEvent& event);

}  // namespace flashcore
