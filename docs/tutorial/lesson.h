// What the lessons share and do not teach: arrays in CPU memory, a run in the emulator, a
// comparison.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "codegen/generate.h"
#include "runtime/emulator/emulator.h"
#include "runtime/launch.h"

namespace lesson {

namespace fc = flashcore;

/// A dense array of f32 or bf16.
class Array {
 public:
  Array(fc::DType dtype, std::initializer_list<std::int64_t> shape) : dtype_(dtype), shape_(shape) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    bytes_.resize(static_cast<std::size_t>(count) * fc::size_of(dtype), std::byte{0xFF});  // NaN
  }

  /// Normal numbers; the same ones every time.
  Array& fill_random(unsigned seed) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < size(); ++i) set(i, normal(engine));
    return *this;
  }

  [[nodiscard]] std::int64_t size() const {
    return static_cast<std::int64_t>(bytes_.size()) / fc::size_of(dtype_);
  }
  [[nodiscard]] float operator[](std::int64_t i) const {
    if (dtype_ == fc::DType::f32) return reinterpret_cast<const float*>(bytes_.data())[i];
    const std::uint32_t high = reinterpret_cast<const std::uint16_t*>(bytes_.data())[i];
    return std::bit_cast<float>(high << 16);
  }
  void set(std::int64_t i, float value) {
    if (dtype_ == fc::DType::f32) {
      reinterpret_cast<float*>(bytes_.data())[i] = value;
      return;
    }
    const auto bits = std::bit_cast<std::uint32_t>(value);  // bf16 is the upper half of an f32
    const std::uint32_t rounded = bits + 0x7FFF + (bits >> 16 & 1);
    reinterpret_cast<std::uint16_t*>(bytes_.data())[i] = static_cast<std::uint16_t>(rounded >> 16);
  }

  fc::TensorView view() {
    fc::TensorView view{.data = bytes_.data(), .dtype = dtype_};
    std::int64_t stride = size();
    for (const std::int64_t size : shape_) {
      stride /= size;
      view.shape[view.rank] = size;
      view.strides[view.rank++] = stride;
    }
    return view;
  }

 private:
  fc::DType dtype_;
  std::vector<std::int64_t> shape_;
  std::vector<std::byte> bytes_;
};

/// Compiles the kernel for this computer and runs all of its blocks. Tensors and scalars are in the
/// order in which the program declared them.
inline fc::EmulationReport run(const fc::KernelSource& source, std::vector<fc::TensorView> tensors,
                               std::vector<fc::ScalarValue> scalars = {}) {
  const auto shared = std::make_shared<const fc::KernelSource>(source);
  const fc::LaunchPlan plan(shared);
  fc::ParameterBlock block;
  const fc::LaunchPlan::Bound bound = plan.bind(tensors, scalars, block);
  const std::span<const std::byte> parameters(block.bytes,
                                              static_cast<std::size_t>(source.parameter_bytes));
  return fc::EmulatedKernel::build(source).run(parameters, bound.grid, tensors);
}

inline void print(const char* title, const std::string& text) {
  std::printf("---- %s\n%s\n", title, text.c_str());
}

/// Ends the lesson unless all elements agree.
template <class Expected>
void compare(const Array& given, double tolerance, Expected&& expected) {
  double worst = 0;
  for (std::int64_t i = 0; i < given.size(); ++i) {
    const double error = std::abs(given[i] - expected(i));
    if (!(error <= tolerance)) {
      std::printf("element %lld is %g, expected is %g\n", static_cast<long long>(i),
                  static_cast<double>(given[i]), static_cast<double>(expected(i)));
      std::exit(1);
    }
    worst = std::max(worst, error);
  }
  std::printf("---- %lld elements, largest error %.2g\n", static_cast<long long>(given.size()),
              worst);
}

/// main() of a lesson: FlashCore's errors say what to do, so they are printed and nothing else.
inline int teach(void (*body)()) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace lesson
