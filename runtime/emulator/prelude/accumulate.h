// Additions to what other blocks add to as well. The machine adds, and keeps the order of turns.
#pragma once

#include "language.h"
#include "types.cuh"

namespace fc {

template <int n>
FC_DEVICE void add_global(float* target, const float* in, int line = __builtin_LINE()) {
  fc_machine->add_global(target, in, n, 0, line);
}
template <int n>
FC_DEVICE void add_in_turn(float* target, const float* in, int line = __builtin_LINE()) {
  fc_machine->add_global(target, in, n, 1, line);
}
FC_DEVICE void wait_turn(const int* turn, int position, int line = __builtin_LINE()) {
  fc_machine->wait_turn(turn, position, line);
}
FC_DEVICE void release_turn(int* turn, int position, int line = __builtin_LINE()) {
  fc_machine->release_turn(turn, position, line);
}

}  // namespace fc
