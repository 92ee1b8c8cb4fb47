// Kernels of sm_90 in the form code generation emits, written by hand.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/emulator/emulated_tensor_map.h"
#include "tests/runtime/emulator/support/kernels.h"

namespace flashcore::testing {

std::uint16_t to_bfloat(float x);
float from_bfloat(std::uint16_t x);
/// Their bits: values that both types hold exactly.
std::vector<std::uint16_t> elements_of(const std::vector<float>& values, DType dtype);

/// A map of an array [outer, rows, columns] of 16-bit elements, with boxes of [1, box_rows, width].
EmulatedTensorMap map_of(const void* data, int outer, int rows, int columns, int box_rows,
                         int width);

/// A parameter block that begins with tensor maps.
class MapParameters {
 public:
  MapParameters& map(const EmulatedTensorMap& map);
  template <class T>
  MapParameters& add(T value) {
    const auto* first = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), first, first + sizeof value);
    return *this;
  }
  /// Padded like the struct.
  [[nodiscard]] std::vector<std::byte> bytes() const {
    std::vector<std::byte> padded = bytes_;
    padded.resize((padded.size() + 63) / 64 * 64);
    return padded;
  }

 private:
  std::vector<std::byte> bytes_;
};

/// o = softmax(q k^T * scale) v, bf16, head dimension 64: a producer and two consumer warpgroups of
/// 64 rows, rings of two stages, the scores of a tile and the sum of the one before in flight
/// together.
KernelSource warpgroup_attention();

/// Runs it on [heads, rows, 64] queries and [heads, keys, 64] keys and values.
struct WarpgroupAttentionRun {
  int heads = 2, rows = 128, keys = 256;
  std::vector<float> q, k, v, o;
  EmulationReport operator()(const KernelSource& source);
};

/// Some statements of 128 threads (or more) around a box [64, width] of bf16 or f16 loaded from x,
/// with `tile`, `full` (an mbarrier), `shared`, `thread`, `lane` and `warp` defined, `const
/// fc::bf16* x` and `float* y` in `p`, maps `p.in` and `p.out` of x and z, all [64, width].
KernelSource box_kernel(std::string_view statements, int threads = 128);

/// Runs a box_kernel on x = 0, 1, 2, ... modulo 128.
struct BoxRun {
  int rows = 64, width = 64;
  std::vector<std::uint16_t> x, z;
  std::vector<float> y;
  EmulationReport operator()(const KernelSource& source);
};

}  // namespace flashcore::testing
