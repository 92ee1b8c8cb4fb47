// Small kernels as code generation would hand them over, and the compiler of this machine.
#pragma once

#include <cstddef>
#include <string>

#include "codegen/kernel_source.h"
#include "dsl/error.h"
#include "runtime/cuda/nvrtc.h"

namespace flashcore::test {

/// Copies x to y, [rows, 64] elements of f32 each, times `factor`.
KernelSource scale_kernel();

/// The same by persistent blocks, which take their tiles from the counter that 32 bits at 40 name.
KernelSource drawing_kernel();

/// A kernel of the shape of an attention forward: q, k, o, lse; B, H static or named; Sq, Sk named.
KernelSource attention_like_kernel();

/// A kernel for the copy engine: q, k, o in bf16, [B, H, Sq or Sk, 128] each, with a tensor map of
/// each at 0, 128 and 256 of the parameters, in boxes of 64 by 128, 96 and 64 rows; one block a
/// tile of 128 rows.
KernelSource mapped_kernel();

/// Copies x, bf16 [B, H, X, 64], to y, [B, H, S, 64], in boxes of 64 rows (sm_90a). Rows that x
/// lacks are 0.
KernelSource copy_boxes_kernel();

/// Keeps 200 values a thread where 32 registers are allowed.
KernelSource spilling_kernel();

/// Machine code of CUDA as far as its header says, with so many bytes behind the first four.
std::string empty_code(std::size_t bytes);

/// NVRTC as a user without settings would get it, or null where there is none.
const Nvrtc* installed_nvrtc();

/// Touches the accumulators of a wgmma that is still running (sm_90a).
KernelSource serialised_kernel();

/// A product whose sums alone take all registers that a thread has (sm_90a).
KernelSource crowded_kernel();

/// Hands registers from warps to warps without saying how many a block starts with (sm_90a).
KernelSource unbounded_split_kernel();

}  // namespace flashcore::test
