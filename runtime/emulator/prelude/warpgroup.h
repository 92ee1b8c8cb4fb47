// Named barriers, and the registers of warpgroups: the machine counts those that are requested, not
// those that are used.
#pragma once

#include "language.h"
#include "types.cuh"

namespace fc {

template <int registers>
FC_DEVICE void shrink_registers(int line = __builtin_LINE()) {
  fc_machine->set_registers(0, registers, line);
}
template <int registers>
FC_DEVICE void grow_registers(int line = __builtin_LINE()) {
  fc_machine->set_registers(1, registers, line);
}

FC_DEVICE void meet(int barrier, int threads, int line = __builtin_LINE()) {
  fc_machine->meet(barrier, threads, line);
}
FC_DEVICE void signal(int barrier, int threads, int line = __builtin_LINE()) {
  fc_machine->signal(barrier, threads, line);
}

}  // namespace fc
