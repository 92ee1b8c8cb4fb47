// The product of m16n8k16 over the registers of a whole warp.
#pragma once

#include <cstdint>

namespace flashcore {

/// The operands as the lanes hold them (the layout is in codegen/prelude/mma_m16n8k16.cuh),
/// register by register, so that a conversion runs over the lanes.
struct WarpOperands {
  static constexpr int lanes = 32;
  std::uint32_t a[4][lanes];
  std::uint32_t b[2][lanes];
  float* d[lanes];  ///< each lane's four accumulators
};

/// d += a b in fp32, from exact products of 16-bit elements.
void multiply_f16(const WarpOperands& operands);
void multiply_bf16(const WarpOperands& operands);

}  // namespace flashcore
