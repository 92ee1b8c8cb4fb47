// The instructions of tensor cores, by name; codegen/instructions/ describes each.
#pragma once

#include <cstdint>
#include <string_view>

namespace flashcore {

enum class Instruction : std::uint8_t {
  mma_m16n8k16,  ///< mma.sync on f16 and bf16, operands through ldmatrix (sm_80 and up)
  wmma,          ///< blocks of 16 x 16 x 16 in opaque registers; every target, bf16 from sm_80 up
  wgmma,         ///< asynchronous products of four warps, operands from shared memory (sm_90a)
  mma_m16n8k8_tf32,  ///< mma.sync on f32, rounded to tf32 (sm_80 and up)
};

/// What a product does to the elements of its operands before it multiplies them.
enum class OperandRounding : std::uint8_t {
  none,  ///< it multiplies them as they are
  tf32,  ///< of f32: ten bits are left behind the first; to the nearest, halves away from zero
};

std::string_view name_of(Instruction instruction);
std::string_view name_of(OperandRounding rounding);

}  // namespace flashcore
