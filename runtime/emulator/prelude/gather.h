// Elements of a tensor at computed positions, checked by the machine.
#pragma once

#include "convert.h"
#include "language.h"
#include "types.cuh"

namespace fc {

FC_DEVICE bool within(int index, int length) {
  return static_cast<u32>(index) < static_cast<u32>(length);
}

// A negative index counts from the end, once.
FC_DEVICE int wrapped(int index, int length) { return index < 0 ? index + length : index; }

FC_DEVICE float to_value(f16 x) { return to_float(x); }
FC_DEVICE float to_value(bf16 x) { return to_float(x); }
FC_DEVICE float to_value(float x) { return x; }
FC_DEVICE float to_value(double x) { return static_cast<float>(x); }
FC_DEVICE int to_value(int x) { return x; }
FC_DEVICE int to_value(short x) { return x; }
FC_DEVICE int to_value(signed char x) { return x; }
FC_DEVICE int to_value(unsigned char x) { return x; }
FC_DEVICE bool to_value(bool x) { return x; }
FC_DEVICE int to_value(i64 x) {
  return x > 2147483647 ? 2147483647 : x < -2147483647 - 1 ? -2147483647 - 1 : static_cast<int>(x);
}

template <class T>
FC_DEVICE auto gather(const T* tensor, i64 offset, bool inside, int line = __builtin_LINE()) {
  decltype(to_value(T{})) value{};
  if (inside) {
    fc_machine->read_global(tensor + offset, sizeof(T), line);
    value = to_value(tensor[offset]);
  }
  return value;
}

}  // namespace fc
