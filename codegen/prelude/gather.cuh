// Elements of a tensor at computed positions, as values that expressions compute with.
#pragma once

#include "convert.cuh"
#include "types.cuh"

namespace fc {

FC_DEVICE bool within(int index, int length) {
  return static_cast<u32>(index) < static_cast<u32>(length);
}

// A negative index counts from the end, once.
FC_DEVICE int wrapped(int index, int length) { return index < 0 ? index + length : index; }

FC_DEVICE float to_value(double x) { return static_cast<float>(x); }
FC_DEVICE int to_value(short x) { return x; }
FC_DEVICE int to_value(signed char x) { return x; }
FC_DEVICE int to_value(unsigned char x) { return x; }
FC_DEVICE bool to_value(bool x) { return x; }
// What does not fit takes the nearest value that does.
FC_DEVICE int to_value(i64 x) {
  return x > 2147483647 ? 2147483647 : x < -2147483647 - 1 ? -2147483647 - 1 : static_cast<int>(x);
}

// The tensor is an input, which nothing writes while the kernel runs: so the loads may be moved,
// and several be under way. Outside the tensor the value is zero.
template <class T>
FC_DEVICE auto gather(const T* tensor, i64 offset, bool inside) {
  decltype(to_value(T{})) value{};
  if (inside) value = to_value(*(tensor + offset));
  return value;
}

}  // namespace fc
