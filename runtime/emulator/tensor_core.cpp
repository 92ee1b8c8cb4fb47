#include "runtime/emulator/tensor_core.h"

#include "runtime/emulator/prelude/convert.h"

namespace flashcore {
namespace {

constexpr int lanes = WarpOperands::lanes;
constexpr int m_size = 16, n_size = 8, k_size = 16;

template <class T>
void convert(const std::uint32_t (&packed)[lanes], float (&low)[lanes], float (&high)[lanes]) {
  for (int l = 0; l < lanes; ++l) {
    low[l] = fc::to_float(T{static_cast<fc::u16>(packed[l])});
    high[l] = fc::to_float(T{static_cast<fc::u16>(packed[l] >> 16)});
  }
}

template <class T>
void multiply(const WarpOperands& operands) {
  float a[m_size][k_size], b[k_size][n_size];
  float low[lanes], high[lanes];
  for (int i = 0; i < 4; ++i) {
    convert<T>(operands.a[i], low, high);
    for (int l = 0; l < lanes; ++l) {
      const int m = l / 4 + i % 2 * 8, k = l % 4 * 2 + i / 2 * 8;
      a[m][k] = low[l];
      a[m][k + 1] = high[l];
    }
  }
  for (int i = 0; i < 2; ++i) {
    convert<T>(operands.b[i], low, high);
    for (int l = 0; l < lanes; ++l) {
      const int n = l / 4, k = l % 4 * 2 + i * 8;
      b[k][n] = low[l];
      b[k + 1][n] = high[l];
    }
  }
  for (int m = 0; m < m_size; ++m) {
    float sum[n_size] = {};
    for (int k = 0; k < k_size; ++k)
      for (int n = 0; n < n_size; ++n) sum[n] += a[m][k] * b[k][n];
    for (int n = 0; n < n_size; ++n) operands.d[m % 8 * 4 + n / 2][m / 8 * 2 + n % 2] += sum[n];
  }
}

}  // namespace

void multiply_f16(const WarpOperands& operands) { multiply<fc::f16>(operands); }
void multiply_bf16(const WarpOperands& operands) { multiply<fc::bf16>(operands); }

}  // namespace flashcore
