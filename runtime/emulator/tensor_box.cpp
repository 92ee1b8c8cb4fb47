#include "runtime/emulator/tensor_box.h"

#include <algorithm>

#include "runtime/emulator/emulator_error.h"
#include "runtime/emulator/shared_memory.h"

namespace flashcore {

void TensorBox::check(int coordinates) const {
  const auto refuse = [&](FaultKind kind, std::string why, std::string fix) {
    throw Fault{kind, line, std::move(why), std::move(fix), thread};
  };
  if (map.address == nullptr || map.rank < 2 || map.rank > 5) {
    refuse(FaultKind::bad_operand, "the tensor map was not filled in for the CPU",
           "a map that the launch has made");
  }
  if (coordinates != map.rank) {
    refuse(FaultKind::bad_operand,
           fmt::format("{} coordinates are given for a tensor map of {} dimensions", coordinates,
                       map.rank),
           "one coordinate for each dimension of the map");
  }
  const int swizzled = map.swizzled_bytes;
  if (lines() == 1 ? swizzled != 0 : swizzled != 128 && swizzled != 64 && swizzled != 32) {
    refuse(FaultKind::bad_operand, fmt::format("lines of {} bytes have no swizzle", swizzled),
           "lines of 128, 64 or 32 bytes");
  }
  if (swizzled && line_bytes() != swizzled) {
    refuse(
        FaultKind::bad_operand,
        fmt::format("the box is {} elements of {} bytes wide, its lines are swizzled over {} bytes",
                    map.box[0], map.element_bytes, swizzled),
        "boxes as wide as a swizzled line");
  }
  if (line_bytes() % 16 != 0) {
    refuse(FaultKind::bad_operand, fmt::format("lines of {} bytes", line_bytes()),
           "lines of whole chunks of 16 bytes");
  }
  for (int d = 0; d < map.rank; ++d) {
    if (map.box[d] < 1 || map.box[d] > 256) {
      refuse(FaultKind::bad_operand,
             fmt::format("the box has {} elements along dimension {}", map.box[d], d),
             "1 to 256 elements");
    }
    if (d > 0 && map.strides[d] % 16 != 0) {
      refuse(FaultKind::misaligned,
             fmt::format("the stride of dimension {} of the map is {} bytes", d, map.strides[d]),
             "strides that are multiples of 16 bytes");
    }
  }
  if (reinterpret_cast<std::uintptr_t>(map.address) % 16 != 0) {
    refuse(FaultKind::misaligned, "the tensor of the map begins at no multiple of 16 bytes",
           "demand this alignment of the tensor (TensorArgument::alignment)");
  }
  if (at[0] * map.element_bytes % 16 != 0) {
    refuse(FaultKind::misaligned,
           fmt::format("a box begins at element {} of its lines, byte {}: an illegal instruction",
                       at[0], at[0] * map.element_bytes),
           "boxes that begin at multiples of 16 bytes, or loads by threads");
  }
  const auto needed = static_cast<std::uint32_t>(std::max(128, 8 * swizzled));
  if (shared % needed != 0) {
    refuse(FaultKind::misaligned,
           fmt::format("a box with lines of {} bytes at byte {} of shared memory", line_bytes(),
                       shared - SharedMemory::base),
           fmt::format("boxes begin at multiples of {} bytes: eight lines of the swizzle, and 128",
                       needed));
  }
}

TensorBox::Line TensorBox::line_at(int index) const {
  const auto* address = static_cast<const std::byte*>(map.address);
  for (int d = 1; d < map.rank; ++d) {
    const std::int64_t position = at[static_cast<std::size_t>(d)] + index % map.box[d];
    index /= map.box[d];
    if (position < 0 || position >= map.extents[d]) return {};
    address += position * map.strides[d];
  }
  const int begin = std::max(at[0], 0), end = std::min(at[0] + map.box[0], map.extents[0]);
  if (begin >= end) return {};
  return {const_cast<std::byte*>(address) + static_cast<std::int64_t>(begin) * map.element_bytes,
          (begin - at[0]) * map.element_bytes, (end - begin) * map.element_bytes};
}

}  // namespace flashcore
