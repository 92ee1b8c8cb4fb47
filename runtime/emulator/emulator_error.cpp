#include "runtime/emulator/emulator_error.h"

namespace flashcore {

std::string_view name_of(FaultKind kind) {
  switch (kind) {
    case FaultKind::race:
      return "data race";
    case FaultKind::in_flight:
      return "access to data in flight";
    case FaultKind::uninitialized:
      return "read of unwritten shared memory";
    case FaultKind::unwritten_output:
      return "read of an unwritten output";
    case FaultKind::early_access:
      return "early access";
    case FaultKind::out_of_turn:
      return "addition out of turn";
    case FaultKind::out_of_bounds:
      return "out-of-bounds access";
    case FaultKind::misaligned:
      return "misaligned access";
    case FaultKind::read_only:
      return "write to an input";
    case FaultKind::divergence:
      return "divergence inside a warp";
    case FaultKind::group_divergence:
      return "divergence inside a warpgroup";
    case FaultKind::barrier_mismatch:
      return "barrier mismatch";
    case FaultKind::deadlock:
      return "deadlock";
    case FaultKind::bad_operand:
      return "bad operand";
    case FaultKind::unfenced:
      return "missing fence_async";
    case FaultKind::misused_mbarrier:
      return "misused mbarrier";
    case FaultKind::misused_product:
      return "misused product";
  }
  return "?";
}

}  // namespace flashcore
