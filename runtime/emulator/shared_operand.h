// A matrix in shared memory, as warpgroup products name it (fc::matrix in
// codegen/prelude/wgmma.cuh).
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/emulator/emulator_error.h"
#include "runtime/emulator/shared_memory.h"

namespace flashcore {

/// The operand of one product: 16 elements along the sum, `size` along the other dimension. It is
/// read in chunks of eight neighbouring elements.
class SharedOperand {
 public:
  static constexpr int depth = 16, chunk_elements = 8;

  /// `turned`: neighbouring elements follow each other along the other dimension (MN-major), not
  /// along the sum. Throws a Fault for what no tensor core reads.
  SharedOperand(std::uint64_t matrix, int size, bool transposed, const Accessor& by);

  [[nodiscard]] int chunks() const { return depth * size_ / chunk_elements; }
  [[nodiscard]] std::uint32_t chunk_at(int chunk) const;
  /// Into out[16][size], of 16-bit elements.
  void read(const SharedMemory& shared, std::uint16_t* out) const;

 private:
  std::uint32_t start_, line_bytes_, line_step_, panel_step_;  ///< steps: of eight lines, of panels
  int size_;
  bool transposed_;
};

}  // namespace flashcore
