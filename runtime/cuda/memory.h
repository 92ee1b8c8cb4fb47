// Memory of a GPU for C++ programs and tests; Python passes arrays of its frameworks.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "runtime/cuda/driver.h"

namespace flashcore {

class DeviceMemory {
 public:
  /// On the device of the calling thread's context, or on GPU 0's primary one.
  explicit DeviceMemory(std::size_t bytes);
  DeviceMemory(DeviceMemory&& other) noexcept
      : device_(other.device_),
        bytes_(std::exchange(other.bytes_, 0)),
        address_(std::exchange(other.address_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&&) = delete;
  ~DeviceMemory();

  /// The driver counts addresses, arrays are pointers.
  [[nodiscard]] void* data() const {
    return reinterpret_cast<void*>(address_);  // NOLINT(performance-no-int-to-ptr)
  }
  [[nodiscard]] CudaAddress address() const { return address_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] int device() const { return device_; }

  /// Both wait for what the default stream still does.
  void upload(std::span<const std::byte> source);
  void download(std::span<std::byte> target) const;

 private:
  int device_ = 0;
  std::size_t bytes_ = 0;
  CudaAddress address_ = 0;
};

}  // namespace flashcore
