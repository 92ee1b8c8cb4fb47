// What the 128 bytes of an fc::tensor_map hold when a kernel runs on the CPU: the launch writes
// them, the emulated copy engine reads them.
#pragma once

#include <cstdint>

namespace flashcore {

/// Dimensions count from the dense one, as the coordinates of a box do. Those from `rank` on are
/// not used.
struct EmulatedTensorMap {
  const void* address = nullptr;  ///< of the first element
  std::int64_t strides[5] = {};   ///< bytes; the first is the size of an element
  std::int32_t extents[5] = {};   ///< elements
  std::int32_t box[5] = {};       ///< elements
  std::int32_t rank = 0;          ///< 2 to 5
  std::int32_t element_bytes = 0;
  /// Over how many bytes the lines of the box are swizzled: 128, 64 or 32; 0: it is one line.
  std::int32_t swizzled_bytes = 0;
  std::int32_t tensor = 0;  ///< which of KernelSource::tensors
};
static_assert(sizeof(EmulatedTensorMap) <= 128, "it takes the place of an fc::tensor_map");

}  // namespace flashcore
