#include "runtime/hooks.h"

#include <utility>
#include <vector>

namespace flashcore {
namespace {

struct Deferred {
  int depth = 0;
  std::vector<std::function<void()>> calls;
};
thread_local Deferred deferred;

}  // namespace

HookDeferral::HookDeferral() { ++deferred.depth; }

HookDeferral::~HookDeferral() {
  if (--deferred.depth > 0) return;
  for (std::function<void()>& call : std::exchange(deferred.calls, {})) call_hook(std::move(call));
}

void call_hook(std::function<void()> call) {
  if (deferred.depth > 0) {
    deferred.calls.push_back(std::move(call));
    return;
  }
  try {
    call();
  } catch (...) {  // NOLINT(bugprone-empty-catch)
  }
}

}  // namespace flashcore
