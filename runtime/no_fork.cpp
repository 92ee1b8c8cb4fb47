#include "runtime/no_fork.h"

#include <condition_variable>
#include <mutex>

#include <pthread.h>

namespace flashcore {
namespace {

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  int inside = 0;  ///< threads with a NoFork
  bool forking = false;
};

thread_local int depth = 0;

State* instance = nullptr;

void before_fork() {
  std::unique_lock lock(instance->mutex);
  instance->forking = true;
  // A thread that forks in the middle of its own work does not wait for itself.
  instance->changed.wait(lock, [] { return instance->inside == (depth > 0 ? 1 : 0); });
  lock.release();  // until after the fork
}

void after_fork_in_parent() {
  instance->forking = false;
  instance->mutex.unlock();
  instance->changed.notify_all();
}

// The old one counts threads that do not exist here. It is small, and left.
void after_fork_in_child() {
  instance = new State;
  instance->inside = depth > 0 ? 1 : 0;
}

State& state() {
  static const bool installed = [] {
    instance = new State;
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    return true;
  }();
  (void)installed;
  return *instance;
}

// Before there are threads: the first use must not be what a fork interrupts.
[[maybe_unused]] const State& at_load = state();

}  // namespace

NoFork::NoFork() {
  if (depth++ > 0) return;
  State& s = state();
  std::unique_lock lock(s.mutex);
  s.changed.wait(lock, [&] { return !s.forking; });
  ++s.inside;
}

NoFork::~NoFork() {
  if (--depth > 0) return;
  State& s = state();
  const std::lock_guard lock(s.mutex);
  --s.inside;
  if (s.forking) s.changed.notify_all();
}

}  // namespace flashcore
