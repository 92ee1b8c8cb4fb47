// Accesses to global and shared memory. Shared memory is addressed in bytes from its start.
#pragma once

#include "convert.cuh"
#include "types.cuh"

namespace fc {

FC_DEVICE u32 shared_base() {
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  return static_cast<u32>(__cvta_generic_to_shared(shared_memory));
}

template <class T, int n>
struct alignas(n * sizeof(T)) neighbours {
  T element[n];
};

// n neighbouring elements in one access of n * sizeof(T) bytes, aligned to that; n is a power of
// two and the access at most 16 bytes. 16-bit elements become fp32.
template <int n, class Value, class T>
FC_DEVICE void load_global(Value* out, const T* source) {
  const auto elements = *reinterpret_cast<const neighbours<T, n>*>(source);
#pragma unroll
  for (int i = 0; i < n; ++i) out[i] = to_value(elements.element[i]);
}

template <int n, class T, class Value>
FC_DEVICE void store_global(T* target, const Value* in) {
  neighbours<T, n> elements;
#pragma unroll
  for (int i = 0; i < n; ++i) elements.element[i] = from_value<T>(in[i]);
  *reinterpret_cast<neighbours<T, n>*>(target) = elements;
}

FC_INNER u32 bits_of(f16 x) { return x.bits; }
FC_INNER u32 bits_of(bf16 x) { return x.bits; }
FC_INNER u32 bits_of(float x) { return __float_as_uint(x); }

// Copies the first `valid_bytes` (0 to 16, whole elements) of a chunk to shared memory and fills the
// rest with zeros. Both addresses are multiples of 16. With 0 valid bytes the source is not read.
template <class T>
FC_DEVICE void copy_chunk(u32 target, const T* source, int valid_bytes) {
  constexpr int size = sizeof(T), of_word = 4 / size;
  chunk value = {};
  if (valid_bytes == 16) {
    value = *reinterpret_cast<const chunk*>(source);
  } else {
#pragma unroll
    for (int i = 0; i < 16 / size; ++i)
      if (size * i < valid_bytes)
        value.word[i / of_word] |= bits_of(source[i]) << (8 * size * (i % of_word));
  }
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(target), "r"(value.word[0]),
               "r"(value.word[1]), "r"(value.word[2]), "r"(value.word[3])
               : "memory");
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
FC_DEVICE void store_shared(u32 address, u32 low, u32 high) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(low), "r"(high) : "memory");
}

// n neighbouring elements, 1, 2 or 4, in one access of 4n bytes, aligned to that.
#define FC_STORE_FLOATS(space)                                                                \
  static_assert(n == 1 || n == 2 || n == 4, "1, 2 or 4 floats");                              \
  if constexpr (n == 1)                                                                       \
    asm volatile("st." space ".f32 [%0], %1;" ::"r"(address), "f"(in[0]) : "memory");         \
  else if constexpr (n == 2)                                                                  \
    asm volatile("st." space ".v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(in[0]), "f"(in[1]) \
                 : "memory");                                                                 \
  else                                                                                        \
    asm volatile("st." space ".v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(in[0]),    \
                 "f"(in[1]), "f"(in[2]), "f"(in[3])                                           \
                 : "memory");
template <int n>
FC_DEVICE void store_shared(u32 address, const float* in) {
  FC_STORE_FLOATS("shared")
}
template <int n>
FC_DEVICE void load_shared(float* out, u32 address) {
  if constexpr (n == 1)
    out[0] = load_shared(address);
  else if constexpr (n == 2)
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(out[0]), "=f"(out[1])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(out[0]), "=f"(out[1]), "=f"(out[2]), "=f"(out[3])
                 : "r"(address)
                 : "memory");
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
