#include "runtime/events.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/hooks.h"
#include "runtime/no_fork.h"

namespace flashcore {
namespace {

struct State {
  std::mutex mutex;
  std::shared_ptr<const EventHook> hook;
  std::atomic<bool> is_set = false;
};

// Never destroyed: threads may still tell while the process ends.
State& state() {
  static State* const instance = new State;
  return *instance;
}

}  // namespace

std::string_view name_of(KernelEventKind kind) {
  constexpr std::string_view names[] = {"memory",   "bundle", "directory", "folder",  "remote",
                                        "compiled", "failed", "loaded",    "unloaded"};
  return names[static_cast<int>(kind)];
}

void set_event_hook(EventHook hook) {
  auto shared = hook ? std::make_shared<const EventHook>(std::move(hook)) : nullptr;
  const NoFork whole;
  const std::lock_guard lock(state().mutex);
  state().is_set = shared != nullptr;
  state().hook.swap(shared);
}

void tell(const KernelEvent& event) {
  if (!state().is_set.load(std::memory_order_relaxed)) return;
  call_hook([event] {
    std::shared_ptr<const EventHook> hook;
    {
      const NoFork whole;
      const std::lock_guard lock(state().mutex);
      hook = state().hook;
    }
    if (hook) (*hook)(event);
  });
}

}  // namespace flashcore
