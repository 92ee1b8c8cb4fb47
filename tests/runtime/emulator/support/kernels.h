// Kernels in the form code generation emits, written by hand, and what is needed to launch them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/emulator/emulator.h"

namespace flashcore::testing {

/// c = a b^T: a [M, K] and b [N, K] fp16, c [M, N] fp32; 64 x 64 tiles, two stages of asynchronous
/// copies.
KernelSource matrix_product();

/// o = softmax(q k^T * scale) v for one head of 128: 128 query rows a block, 64 keys a tile.
KernelSource attention();

/// A kernel around some statements, with `shared`, `thread`, `lane` and `warp` defined, an input
/// `const float* x` and an output `float* y` in `p`, both [rows, 4] with any row stride.
KernelSource small_kernel(std::string_view statements, int threads = 32, int shared_bytes = 4096);

/// `source` with `from`, which its body must contain, replaced by `to`: a planted bug.
KernelSource with(KernelSource source, std::string_view from, std::string_view to);

/// The line of the body on which `text` stands, the n-th time.
int line_of(const KernelSource& source, std::string_view text, int occurrence = 1);

/// The error of a run that must fail.
template <class Run>
EmulatorError failure_of(const Run& run) {
  try {
    run();
  } catch (const EmulatorError& error) {
    return error;
  }
  throw std::logic_error("the run did not fail");
}

/// Runs a small_kernel on x[rows, 4] = 0, 1, 2, ... with rows 8 elements apart.
struct SmallRun {
  static constexpr int rows = 64, row_stride = 8;
  std::vector<float> x = std::vector<float>(rows * row_stride);
  std::vector<float> y = std::vector<float>(rows * row_stride);
  EmulationReport operator()(const KernelSource& source, int blocks = 1);
};

TensorView view_of(void* data, DType dtype, const std::vector<std::int64_t>& shape,
                   const std::vector<std::int64_t>& strides);

/// The bits of an IEEE half, and back.
std::uint16_t to_half(float x);
float from_half(std::uint16_t x);

/// Values of about unit size, the same in every run, and representable in fp16.
std::vector<float> random_values(std::size_t count, std::uint32_t seed);
std::vector<std::uint16_t> halves(const std::vector<float>& values);

/// Packs a parameter block member by member, each aligned to its size.
class Parameters {
 public:
  template <class T>
  Parameters& add(T value) {
    bytes_.resize((bytes_.size() + sizeof(T) - 1) / sizeof(T) * sizeof(T) + sizeof(T));
    std::memcpy(bytes_.data() + bytes_.size() - sizeof(T), &value, sizeof(T));
    return *this;
  }
  /// Padded like the struct, whose first member is a pointer.
  [[nodiscard]] std::vector<std::byte> bytes() const {
    std::vector<std::byte> padded = bytes_;
    padded.resize((padded.size() + 7) / 8 * 8);
    return padded;
  }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace flashcore::testing
