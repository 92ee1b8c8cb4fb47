// Names of fixed size. A kernel includes nothing, so that NVRTC needs no toolkit headers.
#pragma once

namespace fc {

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};

// Sixteen bytes, the unit of copies: eight 16-bit elements.
struct alignas(16) chunk {
  u32 word[4];
};

}  // namespace fc

#define FC_DEVICE __device__ __forceinline__
// A function that only the device prelude calls. Kernels do not, so the emulator's prelude lacks it.
#define FC_INNER FC_DEVICE
