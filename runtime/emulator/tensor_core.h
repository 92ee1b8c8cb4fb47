// The products of mma.sync over the registers of a whole warp.
#pragma once

#include <cstddef>
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

/// The same of m16n8k8 (codegen/prelude/mma_m16n8k8_tf32.cuh): the operands are f32, of which it
/// takes the bits of tf32.
void multiply_tf32(const WarpOperands& operands);

/// The bits of an f32 that tf32 lacks.
constexpr std::uint32_t below_tf32 = 0x1fff;

/// The kinds of opaque blocks of 16 x 16.
enum class BlockKind { left, right, sum };

/// Where an element of a block lies: in slot `slot` of lane `lane`. No GPU documents an order; this
/// one is like none of them and another one for each kind.
struct BlockPlace {
  std::size_t lane, slot;
};
BlockPlace place_in_block(BlockKind kind, int row, int column);

/// The blocks as the lanes hold them: eight elements each.
struct WarpBlocks {
  const std::uint32_t* a[WarpOperands::lanes];
  const std::uint32_t* b[WarpOperands::lanes];
  float* d[WarpOperands::lanes];
};

/// d += a b in fp32, from exact products of 16-bit elements.
void multiply_blocks(const WarpBlocks& blocks, bool is_bf16);

}  // namespace flashcore
