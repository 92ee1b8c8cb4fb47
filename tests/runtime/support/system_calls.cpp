#include "tests/runtime/support/system_calls.h"

#include <cstdio>
#include <exception>
#include <string_view>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

namespace flashcore::test {

#ifdef __x86_64__
namespace {

constexpr int stopped_at_call = SIGTRAP | 0x80;  // by PTRACE_O_TRACESYSGOOD

// Of calls that concern files; empty for others.
std::string_view file_call(long long number) {
  switch (number) {
    case SYS_read:
      return "read";
    case SYS_pread64:
      return "pread64";
    case SYS_write:
      return "write";
    case SYS_open:
      return "open";
    case SYS_openat:
      return "openat";
    case SYS_close:
      return "close";
    case SYS_stat:
      return "stat";
    case SYS_lstat:
      return "lstat";
    case SYS_fstat:
      return "fstat";
    case SYS_newfstatat:
      return "newfstatat";
    case SYS_statx:
      return "statx";
    case SYS_access:
      return "access";
    case SYS_faccessat:
      return "faccessat";
    case SYS_lseek:
      return "lseek";
    case SYS_fcntl:
      return "fcntl";
    case SYS_flock:
      return "flock";
    case SYS_fsync:
      return "fsync";
    case SYS_fdatasync:
      return "fdatasync";
    case SYS_ftruncate:
      return "ftruncate";
    case SYS_getdents64:
      return "getdents64";
    case SYS_readlink:
      return "readlink";
    case SYS_readlinkat:
      return "readlinkat";
    case SYS_mkdir:
      return "mkdir";
    case SYS_mkdirat:
      return "mkdirat";
    case SYS_rmdir:
      return "rmdir";
    case SYS_rename:
      return "rename";
    case SYS_renameat:
      return "renameat";
    case SYS_renameat2:
      return "renameat2";
    case SYS_link:
      return "link";
    case SYS_linkat:
      return "linkat";
    case SYS_unlink:
      return "unlink";
    case SYS_unlinkat:
      return "unlinkat";
    case SYS_chmod:
      return "chmod";
    case SYS_fchmod:
      return "fchmod";
    case SYS_fchmodat:
      return "fchmodat";
    case SYS_utimensat:
      return "utimensat";
    default:
      return "";
  }
}

bool transfers(long long number) {
  return number == SYS_read || number == SYS_pread64 || number == SYS_write;
}

// Whether such a fault may meet the call.
bool may_meet(Fault::Kind kind, long long number) {
  switch (kind) {
    case Fault::Kind::none:
      return false;
    case Fault::Kind::kill:
      return true;
    case Fault::Kind::kill_in_write:
      return number == SYS_write;
    case Fault::Kind::halve:
      return transfers(number);
    case Fault::Kind::fail:
    case Fault::Kind::fail_from_here:
      return !file_call(number).empty();
  }
  return false;
}

[[noreturn]] void be_traced(const std::function<int()>& work) {
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(98);
  raise(SIGSTOP);
  alarm(20);
  try {
    _exit(work());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  } catch (...) {
  }
  _exit(99);
}

int status_of(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

}  // namespace

bool can_trace() {
  static const bool can =
      run_with_fault({.kind = Fault::Kind::kill}, [] { return 0; }).status == 128 + SIGKILL;
  return can;
}

Traced run_with_fault(const Fault& fault, const std::function<int()>& work) {
  using Kind = Fault::Kind;
  const pid_t child = fork();
  if (child == 0) be_traced(work);
  Traced traced;
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) return {.call = "", .status = WEXITSTATUS(status)};
  ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  int met = 0;
  bool entering = true, faulty = false;
  for (long signal = 0;;) {
    ptrace(PTRACE_SYSCALL, child, nullptr, signal);
    waitpid(child, &status, 0);
    if (!WIFSTOPPED(status)) break;
    signal = WSTOPSIG(status) == stopped_at_call ? 0 : WSTOPSIG(status);
    if (signal != 0) continue;

    user_regs_struct registers{};
    ptrace(PTRACE_GETREGS, child, nullptr, &registers);
    if (entering) {
      const auto number = static_cast<long long>(registers.orig_rax);
      if (may_meet(fault.kind, number)) {
        faulty = met == fault.number || (fault.kind == Kind::fail_from_here && met > fault.number);
        if (met++ == fault.number) {
          traced.call = file_call(number).empty() ? std::to_string(number) : file_call(number);
        }
      }
      if (faulty) {
        if (fault.kind == Kind::kill) kill(child, SIGKILL);
        if (fault.kind == Kind::kill_in_write || fault.kind == Kind::halve) registers.rdx /= 2;
        if (fault.error != 0) registers.orig_rax = ~0ULL;  // no such call: nothing is done
        ptrace(PTRACE_SETREGS, child, nullptr, &registers);
      }
    } else if (faulty) {
      if (fault.kind == Kind::kill_in_write) kill(child, SIGKILL);
      if (fault.error != 0) {
        registers.rax = static_cast<unsigned long long>(-static_cast<long long>(fault.error));
        ptrace(PTRACE_SETREGS, child, nullptr, &registers);
      }
      faulty = false;
    }
    entering = !entering;
  }
  traced.status = status_of(status);
  return traced;
}

#else

bool can_trace() { return false; }

Traced run_with_fault(const Fault&, const std::function<int()>&) {
  ADD_FAILURE() << "cannot trace on this machine";
  return {};
}

#endif

}  // namespace flashcore::test
