// Between fp32, where arithmetic happens, and the 16-bit types of memory and of tensor cores.
#pragma once

#include "types.cuh"

namespace fc {

// Two values rounded to nearest even and packed, `low` in the low half.
template <class T>
FC_DEVICE u32 pack(float low, float high);
template <>
FC_DEVICE u32 pack<bf16>(float low, float high) {
  u32 packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
template <>
FC_DEVICE u32 pack<f16>(float low, float high) {
#if __CUDA_ARCH__ >= 800
  u32 packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
#else
  u16 first, second;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(first) : "f"(low));
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(second) : "f"(high));
  return first | static_cast<u32>(second) << 16;
#endif
}

FC_DEVICE float to_float(float x) { return x; }
FC_DEVICE float to_float(bf16 x) { return __uint_as_float(static_cast<u32>(x.bits) << 16); }
FC_DEVICE float to_float(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}

// One of two packed values: 0 for that in the low half.
template <class T>
FC_DEVICE float unpack(u32 packed, int which);
template <>
FC_DEVICE float unpack<bf16>(u32 packed, int which) {
  return __uint_as_float(which ? packed & 0xffff0000 : packed << 16);
}
template <>
FC_DEVICE float unpack<f16>(u32 packed, int which) {
  return to_float(f16{static_cast<u16>(which ? packed >> 16 : packed)});
}

template <class T>
FC_DEVICE T from_float(float x) {
  return {static_cast<u16>(pack<T>(x, 0.f))};
}
template <>
FC_DEVICE float from_float<float>(float x) {
  return x;
}

// Elements of memory as values in registers, and back.
FC_DEVICE float to_value(f16 x) { return to_float(x); }
FC_DEVICE float to_value(bf16 x) { return to_float(x); }
FC_DEVICE float to_value(float x) { return x; }
FC_DEVICE int to_value(int x) { return x; }
template <class T>
FC_INNER T from_value(float x) {
  return from_float<T>(x);
}
template <class T>
FC_INNER T from_value(int x) {
  return x;
}

// What is left of an fp32 value after storage as T.
template <class T>
FC_DEVICE float round_to(float x) {
  return to_float(from_float<T>(x));
}

}  // namespace fc
