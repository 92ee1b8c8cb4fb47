// The tensor maps among a kernel's parameters: what the copy engine has to know of the tensors of a
// launch. The driver takes up to a microsecond to encode one, so a thread keeps the last.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codegen/kernel_source.h"
#include "runtime/cuda/driver.h"
#include "runtime/tensor.h"

namespace flashcore {

class TensorMaps {
 public:
  static constexpr int bytes = 128;
  static constexpr int alignment = 64;
  /// Of addresses, and of all strides but the dense one.
  static constexpr int tensor_alignment = 16;
  /// Bytes; every stride is below.
  static constexpr std::int64_t stride_limit = std::int64_t{1} << 40;

  /// Throws InternalError where the copy engine cannot move such boxes.
  explicit TensorMaps(const KernelSource& source);

  [[nodiscard]] bool empty() const { return maps_.empty(); }

  /// For the emulator: what the map says, not how a GPU encodes it.
  void describe(std::span<const TensorView> tensors, std::byte* parameters) const;

  /// For a GPU; the calling thread has a context there. An empty tensor has no place a map could
  /// start at: `zeros`, an element of its device that is zero, stands for all of it. Throws
  /// DeviceError where the driver refuses.
  void encode(const Driver& driver, const KernelSource& source, std::span<const TensorView> tensors,
              CudaAddress zeros, std::byte* parameters) const;

  /// Makes maps that were encoded for the tensors `before` those of tensors that differ from them
  /// in their addresses alone, and are not empty. False where the driver refuses.
  bool move(const Driver& driver, std::span<const TensorView> before,
            std::span<const TensorView> tensors, std::byte* parameters) const;

 private:
  struct Map {
    std::int16_t offset = 0;  ///< of the field
    std::int8_t tensor = 0;
    std::array<std::uint32_t, max_rank> box{};  ///< dense dimension first
  };

  std::vector<Map> maps_;
};

}  // namespace flashcore
