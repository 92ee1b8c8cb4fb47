// Functions of the host program that this library calls, and when it may.
#pragma once

#include <functional>

namespace flashcore {

/// Keeps this thread's calls of hooks back until it ends. Whoever holds a lock, or a NoFork, makes
/// one before: a hook may want a lock of its host (Python's) that another thread holds while
/// waiting for ours.
class HookDeferral {
 public:
  HookDeferral();
  HookDeferral(const HookDeferral&) = delete;
  HookDeferral& operator=(const HookDeferral&) = delete;
  ~HookDeferral();
};

/// Calls a hook now, or when nothing defers it any more. What it throws is swallowed: telling never
/// changes what a program does.
void call_hook(std::function<void()> call);

}  // namespace flashcore
