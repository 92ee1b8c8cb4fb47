// A fork copies locks as they are, and none of the threads that would open them.
#pragma once

namespace flashcore {

/// While one exists in any thread, another thread's fork() waits. So a child meets no lock that is
/// held, no compile that nobody will finish, and can compile itself; a fork waits for the compiles
/// that are under way, a second or so, and for nothing that begins later.
///
/// Whoever holds one must not wait for a lock of the process that hosts the library (Python's GIL
/// is held during a fork): log messages have to be deferred, by a HookDeferral in front of it.
class NoFork {
 public:
  NoFork();
  ~NoFork();
  NoFork(const NoFork&) = delete;
  NoFork& operator=(const NoFork&) = delete;
};

}  // namespace flashcore
