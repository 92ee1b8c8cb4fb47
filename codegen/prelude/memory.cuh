// Accesses to global and shared memory. Shared memory is addressed in bytes from its start.
#pragma once

#include "convert.cuh"
#include "types.cuh"

namespace fc {

FC_DEVICE u32 shared_base() {
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  return static_cast<u32>(__cvta_generic_to_shared(shared_memory));
}

// n neighbouring elements in one access of n * sizeof(T) bytes, aligned to that; n is a power of two
// and the access at most 16 bytes. 16-bit elements become fp32.
template <int n, class T>
FC_DEVICE void load_global(float* out, const T* source) {
  struct alignas(n * sizeof(T)) Vector { T element[n]; };
  const Vector vector = *reinterpret_cast<const Vector*>(source);
#pragma unroll
  for (int i = 0; i < n; ++i) out[i] = to_float(vector.element[i]);
}
template <int n>
FC_DEVICE void load_global(int* out, const int* source) {
  struct alignas(n * sizeof(int)) Vector { int element[n]; };
  const Vector vector = *reinterpret_cast<const Vector*>(source);
#pragma unroll
  for (int i = 0; i < n; ++i) out[i] = vector.element[i];
}

template <int n, class T>
FC_DEVICE void store_global(T* target, const float* in) {
  struct alignas(n * sizeof(T)) Vector { T element[n]; };
  Vector vector;
#pragma unroll
  for (int i = 0; i < n; ++i) vector.element[i] = from_float<T>(in[i]);
  *reinterpret_cast<Vector*>(target) = vector;
}
template <int n>
FC_DEVICE void store_global(int* target, const int* in) {
  struct alignas(n * sizeof(int)) Vector { int element[n]; };
  Vector vector;
#pragma unroll
  for (int i = 0; i < n; ++i) vector.element[i] = in[i];
  *reinterpret_cast<Vector*>(target) = vector;
}

template <class T>
FC_DEVICE void store_chunk(T* target, const chunk& value) {
  *reinterpret_cast<chunk*>(target) = value;
}
// The first `count` elements of a chunk (all eight if there are more): the ragged end of a row.
template <class T>
FC_DEVICE void store_partial_chunk(T* target, const chunk& value, int count) {
  if (count >= 8) {
    store_chunk(target, value);
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (i < count) target[i].bits = static_cast<u16>(value.word[i / 2] >> (16 * (i % 2)));
}

FC_DEVICE void store_shared(u32 address, u32 value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
FC_DEVICE void store_shared(u32 address, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}
FC_DEVICE float load_shared(u32 address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}
FC_DEVICE u32 load_shared_word(u32 address) {
  u32 value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}
FC_DEVICE chunk load_shared_chunk(u32 address) {
  chunk value;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.word[0]), "=r"(value.word[1]), "=r"(value.word[2]), "=r"(value.word[3])
               : "r"(address)
               : "memory");
  return value;
}

}  // namespace fc
