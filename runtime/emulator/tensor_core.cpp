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

template <class T>
void multiply_opaque(const WarpBlocks& blocks) {
  constexpr int size = 16;
  float a[size][size], b[size][size];
  const auto value = [](const std::uint32_t* const(&held)[lanes], BlockPlace at) {
    return fc::to_float(T{static_cast<fc::u16>(held[at.lane][at.slot])});
  };
  for (int i = 0; i < size; ++i)
    for (int k = 0; k < size; ++k) {
      a[i][k] = value(blocks.a, place_in_block(BlockKind::left, i, k));
      b[i][k] = value(blocks.b, place_in_block(BlockKind::right, i, k));
    }
  for (int m = 0; m < size; ++m) {
    float sum[size] = {};
    for (int k = 0; k < size; ++k)
      for (int n = 0; n < size; ++n) sum[n] += a[m][k] * b[k][n];
    for (int n = 0; n < size; ++n) {
      const BlockPlace at = place_in_block(BlockKind::sum, m, n);
      blocks.d[at.lane][at.slot] += sum[n];
    }
  }
}

}  // namespace

BlockPlace place_in_block(BlockKind kind, int row, int column) {
  constexpr int factor[] = {167, 91, 213}, shift[] = {71, 5, 130};  // odd: every place once
  const auto k = static_cast<std::size_t>(kind);
  const int place = ((row * 16 + column) * factor[k] + shift[k]) % 256;
  return {static_cast<std::size_t>(place % lanes), static_cast<std::size_t>(place / lanes)};
}

void multiply_blocks(const WarpBlocks& blocks, bool is_bf16) {
  is_bf16 ? multiply_opaque<fc::bf16>(blocks) : multiply_opaque<fc::f16>(blocks);
}

void multiply_f16(const WarpOperands& operands) { multiply<fc::f16>(operands); }
void multiply_bf16(const WarpOperands& operands) { multiply<fc::bf16>(operands); }

void multiply_tf32(const WarpOperands& operands) {
  constexpr int terms = 8;
  float a[m_size][terms], b[terms][n_size];
  for (int l = 0; l < lanes; ++l) {
    const int outer = l / 4, k = l % 4;
    for (int i = 0; i < 4; ++i)
      a[outer + i % 2 * 8][k + i / 2 * 4] = fc::bits_float(operands.a[i][l] & ~below_tf32);
    for (int i = 0; i < 2; ++i)
      b[k + i * 4][outer] = fc::bits_float(operands.b[i][l] & ~below_tf32);
  }
  for (int m = 0; m < m_size; ++m) {
    float sum[n_size] = {};
    for (int k = 0; k < terms; ++k)
      for (int n = 0; n < n_size; ++n) sum[n] += a[m][k] * b[k][n];
    for (int n = 0; n < n_size; ++n) operands.d[m % 8 * 4 + n / 2][m / 8 * 2 + n % 2] += sum[n];
  }
}

}  // namespace flashcore
