// A box of a tensor, as the copy engine walks it: lines of 128, 64 or 32 bytes that lie in shared
// memory one after the other, their 16-byte chunks swizzled.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/emulator/emulated_tensor_map.h"

namespace flashcore {

/// Where the copy engine and the tensor core look for an address of a tile whose lines are
/// swizzled: a function of the address alone. The chunks of a line are exchanged by the number of
/// the line.
constexpr std::uint32_t swizzled_address(std::uint32_t address, std::uint32_t line_bytes) {
  return address ^ ((address >> 7 & (line_bytes / 16 - 1)) << 4);
}

struct TensorBox {
  static constexpr int longest_line = 256 * 4;  ///< bytes: of a vector of f32

  EmulatedTensorMap map;
  std::array<int, 5> at{};   ///< the first element's coordinates
  std::uint32_t shared = 0;  ///< where it lies, or will lie, in shared memory
  int thread = 0;            ///< that moves it
  int line = 0;

  [[nodiscard]] int lines() const {
    int count = 1;
    for (int d = 1; d < map.rank; ++d) count *= map.box[d];
    return count;
  }
  [[nodiscard]] int line_bytes() const { return map.box[0] * map.element_bytes; }
  [[nodiscard]] std::uint32_t bytes() const {
    return static_cast<std::uint32_t>(lines() * line_bytes());
  }
  /// Throws a Fault unless map and address are what the copy engine takes.
  void check(int coordinates) const;

  /// The part of a line that lies inside the tensor.
  struct Line {
    std::byte* address = nullptr;  ///< of its first element inside
    int first = 0, bytes = 0;      ///< where these bytes begin in the line, and how many there are
  };
  [[nodiscard]] Line line_at(int index) const;
  /// The chunk of a line, in shared memory.
  [[nodiscard]] std::uint32_t chunk_at(int index, int chunk) const {
    const std::uint32_t address =
        shared + static_cast<std::uint32_t>(index * line_bytes() + chunk * 16);
    return map.swizzled_bytes
               ? swizzled_address(address, static_cast<std::uint32_t>(map.swizzled_bytes))
               : address;
  }
};

}  // namespace flashcore
