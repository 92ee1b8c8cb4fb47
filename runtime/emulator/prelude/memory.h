// Accesses to global and shared memory. Global memory is the host's own: the machine checks an
// access, then it happens here. Shared memory belongs to the machine.
#pragma once

#include "convert.h"
#include "language.h"
#include "types.cuh"

namespace fc {

// Not zero, so that an address made without the base is out of bounds.
FC_DEVICE u32 shared_base() { return 1024; }

template <int n, class T>
FC_DEVICE void load_global(float* out, const T* source, int line = __builtin_LINE()) {
  fc_machine->read_global(source, n * sizeof(T), line);
  for (int i = 0; i < n; ++i) out[i] = to_float(source[i]);
}
template <int n>
FC_DEVICE void load_global(int* out, const int* source, int line = __builtin_LINE()) {
  fc_machine->read_global(source, n * sizeof(int), line);
  for (int i = 0; i < n; ++i) out[i] = source[i];
}

template <int n, class T>
FC_DEVICE void store_global(T* target, const float* in, int line = __builtin_LINE()) {
  fc_machine->write_global(target, n * sizeof(T), line);
  for (int i = 0; i < n; ++i) target[i] = from_float<T>(in[i]);
}
template <int n>
FC_DEVICE void store_global(int* target, const int* in, int line = __builtin_LINE()) {
  fc_machine->write_global(target, n * sizeof(int), line);
  for (int i = 0; i < n; ++i) target[i] = in[i];
}

template <class T>
FC_DEVICE void copy_chunk(u32 target, const T* source, int valid_bytes,
                          int line = __builtin_LINE()) {
  chunk value = {};
  if (valid_bytes == 16) {
    fc_machine->read_global(source, 16, line);
    __builtin_memcpy(&value, source, 16);
  } else {
    for (int i = 0; 2 * i < valid_bytes; ++i) {
      fc_machine->read_global(source + i, sizeof(T), line);
      value.word[i / 2] |= static_cast<u32>(source[i].bits) << (16 * (i % 2));
    }
  }
  fc_machine->store_shared(target, &value, 16, line);
}

FC_DEVICE void copy_chunk(u32 target, const float* source, int valid_bytes,
                          int line = __builtin_LINE()) {
  chunk value = {};
  if (valid_bytes == 16) fc_machine->read_global(source, 16, line);
  for (int i = 0; 4 * i < valid_bytes; ++i) {
    if (valid_bytes != 16) fc_machine->read_global(source + i, sizeof(float), line);
    value.word[i] = float_bits(source[i]);
  }
  fc_machine->store_shared(target, &value, 16, line);
}

template <class T>
FC_DEVICE void store_chunk(T* target, const chunk& value, int line = __builtin_LINE()) {
  fc_machine->write_global(target, 16, line);
  __builtin_memcpy(target, &value, 16);
}
template <class T>
FC_DEVICE void store_partial_chunk(T* target, const chunk& value, int count,
                                   int line = __builtin_LINE()) {
  if (count >= 8) {
    store_chunk(target, value, line);
    return;
  }
  for (int i = 0; i < count; ++i) {
    fc_machine->write_global(target + i, sizeof(T), line);
    target[i].bits = static_cast<u16>(value.word[i / 2] >> (16 * (i % 2)));
  }
}

FC_DEVICE void store_shared(u32 address, u32 value, int line = __builtin_LINE()) {
  fc_machine->store_shared(address, &value, 4, line);
}
FC_DEVICE void store_shared(u32 address, float value, int line = __builtin_LINE()) {
  fc_machine->store_shared(address, &value, 4, line);
}
FC_DEVICE float load_shared(u32 address, int line = __builtin_LINE()) {
  float value;
  fc_machine->load_shared(&value, address, 4, line);
  return value;
}
FC_DEVICE u32 load_shared_word(u32 address, int line = __builtin_LINE()) {
  u32 value;
  fc_machine->load_shared(&value, address, 4, line);
  return value;
}
FC_DEVICE void store_shared(u32 address, u32 low, u32 high, int line = __builtin_LINE()) {
  const u32 both[2] = {low, high};
  fc_machine->store_shared(address, both, 8, line);
}
template <int n>
FC_DEVICE void store_shared(u32 address, const float* in, int line = __builtin_LINE()) {
  fc_machine->store_shared(address, in, 4 * n, line);
}
template <int n>
FC_DEVICE void load_shared(float* out, u32 address, int line = __builtin_LINE()) {
  fc_machine->load_shared(out, address, 4 * n, line);
}
FC_DEVICE chunk load_shared_chunk(u32 address, int line = __builtin_LINE()) {
  chunk value;
  fc_machine->load_shared(&value, address, 16, line);
  return value;
}

}  // namespace fc
