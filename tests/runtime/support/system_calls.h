// What can happen to a process at any of its system calls: it is killed there, or the call fails as
// a full disk, a network file system or a foreign hand would have it fail. A child process does the
// work and is traced, so nothing of what is tested knows of it.
#pragma once

#include <functional>
#include <string>

namespace flashcore::test {

struct Fault {
  enum class Kind {
    none,
    kill,            ///< at the call of that number, in place of it
    kill_in_write,   ///< at the write of that number, when half of it is done
    halve,           ///< the read or write of that number does half of what it was asked for
    fail,            ///< the call of that number, among those that concern files, gives `error`
    fail_from_here,  ///< and so do all later ones
  };
  Kind kind = Kind::none;
  int number = 0;  ///< from 0
  int error = 0;   ///< EIO
};

struct Traced {
  std::string call;  ///< that the fault met; empty if the work made fewer calls
  int status = 0;    ///< what the work returned; 99 for an exception; 128 + signal
};

/// Whether processes can be traced here: Linux on x86-64, and nothing that forbids it.
bool can_trace();

/// Runs `work` in a forked child, for at most 20 s (then the status is that of SIGALRM).
Traced run_with_fault(const Fault& fault, const std::function<int()>& work);

}  // namespace flashcore::test
