#include "tests/runtime/emulator/support/kernels.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "dsl/error.h"

namespace flashcore::testing {
namespace {

constexpr std::string_view matrix_product_body = R"(struct Parameters {
  const fc::f16* a;
  const fc::f16* b;
  float* c;
  fc::i64 a_stride_0, b_stride_0, c_stride_0;
  int M, N, K;
};

extern "C" __global__ void __launch_bounds__(128, 2)
    matrix_product(const __grid_constant__ Parameters p) {
  const fc::u32 shared = fc::shared_base();
  const int thread = fc::thread_index(), lane = thread % 32, warp = thread / 32;
  const int tiles_n = (p.N + 63) / 64, steps = (p.K + 31) / 32;
  const int m_begin = fc::block_x() / tiles_n * 64, n_begin = fc::block_x() % tiles_n * 64;
  float sums[8][4];
  #pragma unroll
  for (int j = 0; j < 8; ++j)
    for (int r = 0; r < 4; ++r) sums[j][r] = 0.f;

  for (int step = -1; step < steps; ++step) {
    if (step + 1 < steps) {
      const fc::u32 next = shared + (step + 1) % 2 * 8192;
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int chunk = thread + i * 128, row = chunk / 4, column = chunk % 4 * 8;
        const int k = (step + 1) * 32 + column;
        const int a_valid = m_begin + row < p.M && k < p.K ? 16 : 0;
        const int b_valid = n_begin + row < p.N && k < p.K ? 16 : 0;
        const fc::u32 offset = fc::chunk_offset<64, 32>(row, column);
        fc::copy_async(next + offset, p.a + (m_begin + row) * p.a_stride_0 + k, a_valid);
        fc::copy_async(next + 4096 + offset, p.b + (n_begin + row) * p.b_stride_0 + k, b_valid);
      }
    }
    fc::commit_copies();
    if (step < 0) continue;
    fc::wait_copies<1>();
    fc::barrier();  // landed
    const fc::u32 here = shared + step % 2 * 8192;
    #pragma unroll
    for (int k = 0; k < 32; k += 16) {
      fc::u32 a[4];
      const fc::u32 a_row = fc::chunk_offset<64, 32>(warp * 16 + lane % 16, k + lane / 16 * 8);
      fc::load_matrices(a, here + a_row);
      #pragma unroll
      for (int j = 0; j < 8; j += 2) {
        fc::u32 b[4];
        const fc::u32 b_row = fc::chunk_offset<64, 32>(j * 8 + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 8);
        fc::load_matrices(b, here + 4096 + b_row);
        fc::multiply<fc::f16>(sums[j], a, b[0], b[1]);
        fc::multiply<fc::f16>(sums[j + 1], a, b[2], b[3]);
      }
    }
    fc::barrier();  // read
  }

  #pragma unroll
  for (int j = 0; j < 8; ++j) {
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int m = m_begin + warp * 16 + lane / 4 + r * 8, n = n_begin + j * 8 + lane % 4 * 2;
      if (m < p.M && n < p.N) fc::store_global<2>(p.c + m * p.c_stride_0 + n, sums[j] + r * 2);
    }
  }
}
)";

constexpr std::string_view attention_body = R"(struct Parameters {
  const fc::f16* q;
  const fc::f16* k;
  const fc::f16* v;
  fc::f16* o;
  int Sq, Sk;
  float scale_log2;
};

extern "C" __global__ void __launch_bounds__(128, 1)
    attention(const __grid_constant__ Parameters p) {
  const fc::u32 shared = fc::shared_base(), keys = shared + 32768, values = keys + 32768;
  const int thread = fc::thread_index(), lane = thread % 32, warp = thread / 32;
  const int rows_begin = fc::block_x() * 128, tiles = (p.Sk + 63) / 64;
  float out[2][16][4], row_max[2][2], row_sum[2][2];
  for (int i = 0; i < 2; ++i)
    for (int r = 0; r < 2; ++r) {
      row_max[i][r] = fc::lowest();
      row_sum[i][r] = 0.f;
      for (int j = 0; j < 16; ++j) out[i][j][r] = out[i][j][r + 2] = 0.f;
    }
  for (int i = 0; i < 16; ++i) {
    const int chunk = thread + i * 128, row = chunk / 16, column = chunk % 16 * 8;
    fc::copy_async(shared + fc::chunk_offset<128, 128>(row, column), p.q + (rows_begin + row) * 128 + column,
                   rows_begin + row < p.Sq ? 16 : 0);
  }
  for (int tile = -1; tile < tiles; ++tile) {
    if (tile + 1 < tiles) {
      const int begin = (tile + 1) * 64;
      const fc::u32 stage = (tile + 1) % 2 * 16384;
      for (int i = 0; i < 8; ++i) {
        const int chunk = thread + i * 128, row = chunk / 16, column = chunk % 16 * 8;
        const int valid = begin + row < p.Sk ? 16 : 0;
        const fc::u32 target = stage + fc::chunk_offset<64, 128>(row, column);
        fc::copy_async(keys + target, p.k + (begin + row) * 128 + column, valid);
        fc::copy_async(values + target, p.v + (begin + row) * 128 + column, valid);
      }
    }
    fc::commit_copies();
    if (tile < 0) continue;
    fc::wait_copies<1>();
    fc::barrier();
    const fc::u32 stage = tile % 2 * 16384;
    float scores[2][8][4];
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 8; ++j)
        for (int r = 0; r < 4; ++r) scores[i][j][r] = 0.f;
    #pragma unroll
    for (int d = 0; d < 128; d += 16) {
      fc::u32 a[2][4];
      for (int i = 0; i < 2; ++i)
        fc::load_matrices(a[i], shared + fc::chunk_offset<128, 128>(warp * 32 + i * 16 + lane % 16, d + lane / 16 * 8));
      #pragma unroll
      for (int j = 0; j < 8; j += 2) {
        fc::u32 b[4];
        fc::load_matrices(b, keys + stage + fc::chunk_offset<64, 128>(j * 8 + lane / 16 * 8 + lane % 8, d + lane / 8 % 2 * 8));
        for (int i = 0; i < 2; ++i) {
          fc::multiply<fc::f16>(scores[i][j], a[i], b[0], b[1]);
          fc::multiply<fc::f16>(scores[i][j + 1], a[i], b[2], b[3]);
        }
      }
    }
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      #pragma unroll
      for (int r = 0; r < 2; ++r) {
        float largest = row_max[i][r];
        for (int j = 0; j < 8; ++j)
          for (int c = 0; c < 2; ++c) {
            float& score = scores[i][j][r * 2 + c];
            score = tile * 64 + j * 8 + lane % 4 * 2 + c < p.Sk ? score * p.scale_log2 : -fc::infinity();
            largest = fc::max(largest, score);
          }
        largest = fc::max(largest, fc::shuffle_xor(largest, 1));
        largest = fc::max(largest, fc::shuffle_xor(largest, 2));
        const float decay = fc::exp2(row_max[i][r] - largest);
        row_max[i][r] = largest;
        float sum = 0.f;
        for (int j = 0; j < 8; ++j)
          for (int c = 0; c < 2; ++c) {
            float& score = scores[i][j][r * 2 + c];
            score = fc::exp2(score - largest);
            sum += score;
          }
        row_sum[i][r] = fc::fma(row_sum[i][r], decay, sum);
        for (int j = 0; j < 16; ++j)
          for (int c = 0; c < 2; ++c) out[i][j][r * 2 + c] *= decay;
      }
    }
    #pragma unroll
    for (int n = 0; n < 4; ++n) {
      fc::u32 a[2][4];
      for (int i = 0; i < 2; ++i)
        for (int r = 0; r < 4; ++r) {
          const float* pair = scores[i][n * 2 + r / 2] + r % 2 * 2;
          a[i][r] = fc::pack<fc::f16>(pair[0], pair[1]);
        }
      #pragma unroll
      for (int j = 0; j < 16; j += 2) {
        fc::u32 b[4];
        fc::load_matrices_transposed(b, values + stage + fc::chunk_offset<64, 128>(n * 16 + lane % 16, j * 8 + lane / 16 * 8));
        for (int i = 0; i < 2; ++i) {
          fc::multiply<fc::f16>(out[i][j], a[i], b[0], b[1]);
          fc::multiply<fc::f16>(out[i][j + 1], a[i], b[2], b[3]);
        }
      }
    }
    fc::barrier();
  }
  for (int i = 0; i < 2; ++i)
    for (int r = 0; r < 2; ++r) {
      float sum = row_sum[i][r];
      sum += fc::shuffle_xor(sum, 1);
      sum += fc::shuffle_xor(sum, 2);
      const float weight = fc::reciprocal(sum);
      const int row = rows_begin + warp * 32 + i * 16 + r * 8 + lane / 4;
      for (int j = 0; j < 16; ++j) {
        const float pair[2] = {out[i][j][r * 2] * weight, out[i][j][r * 2 + 1] * weight};
        if (row < p.Sq) fc::store_global<2>(p.o + row * 128 + j * 8 + lane % 4 * 2, pair);
      }
    }
}
)";

constexpr std::string_view small_head = R"(struct Parameters {
  const float* x;
  float* y;
  fc::i64 x_stride_0, y_stride_0;
};

extern "C" __global__ void small(const __grid_constant__ Parameters p) {
  const fc::u32 shared = fc::shared_base();
  const int thread = fc::thread_index(), lane = thread % 32, warp = thread / 32;
)";

}  // namespace

KernelSource matrix_product() {
  KernelSource source;
  source.name = source.entry = "matrix_product";
  source.body = matrix_product_body;
  source.tensors = {{"a", DType::f16, false, {}, 16},
                    {"b", DType::f16, false, {}, 16},
                    {"c", DType::f32, true, {}, 8}};
  source.parameter_bytes = 64;
  source.threads = 128;
  source.shared_bytes = 16384;
  return source;
}

KernelSource attention() {
  KernelSource source;
  source.name = source.entry = "attention";
  source.body = attention_body;
  for (const char* name : {"q", "k", "v", "o"})
    source.tensors.push_back({name, DType::f16, *name == 'o', {}, 16});
  source.parameter_bytes = 48;
  source.threads = 128;
  source.shared_bytes = 98304;
  return source;
}

KernelSource small_kernel(std::string_view statements, int threads, int shared_bytes) {
  KernelSource source;
  source.name = source.entry = "small";
  source.body = fmt::format("{}{}\n}}\n", small_head, statements);
  source.tensors = {{"x", DType::f32, false, {}, 4}, {"y", DType::f32, true, {}, 4}};
  source.parameter_bytes = 32;
  source.threads = threads;
  source.shared_bytes = shared_bytes;
  return source;
}

EmulationReport SmallRun::operator()(const KernelSource& source, int blocks) {
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(i / row_stride * 4 + i % row_stride);
  const std::vector<TensorView> tensors = {
      view_of(x.data(), DType::f32, {rows, 4}, {row_stride, 1}),
      view_of(y.data(), DType::f32, {rows, 4}, {row_stride, 1})};
  const auto parameters = Parameters()
                              .add(x.data())
                              .add(y.data())
                              .add(std::int64_t{row_stride})
                              .add(std::int64_t{row_stride})
                              .bytes();
  return EmulatedKernel::build(source).run(parameters, blocks, tensors);
}

KernelSource with(KernelSource source, std::string_view from, std::string_view to) {
  const std::size_t at = source.body.find(from);
  if (at == std::string::npos) throw std::logic_error(fmt::format("the body has no {}", from));
  source.body.replace(at, from.size(), to);
  return source;
}

int line_of(const KernelSource& source, std::string_view text, int occurrence) {
  std::size_t at = std::string::npos;
  for (int i = 0; i < occurrence; ++i)
    at = source.body.find(text, at == std::string::npos ? 0 : at + 1);
  if (at == std::string::npos) throw std::logic_error(fmt::format("the body has no {}", text));
  return 1 + static_cast<int>(std::count(
                 source.body.begin(), source.body.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

TensorView view_of(void* data, DType dtype, const std::vector<std::int64_t>& shape,
                   const std::vector<std::int64_t>& strides) {
  TensorView view{.data = data, .dtype = dtype, .rank = static_cast<int>(shape.size())};
  std::copy(shape.begin(), shape.end(), view.shape.begin());
  std::copy(strides.begin(), strides.end(), view.strides.begin());
  return view;
}

std::uint16_t to_half(float x) {
  const float step = std::ldexp(1.f, std::max(std::ilogb(x == 0 ? 1.f : x), -14) - 10);
  const float rounded = std::nearbyint(x / step) * step;
  if (rounded == 0) return std::signbit(x) ? 0x8000 : 0;
  const int exponent = std::max(std::ilogb(rounded), -14);
  const int mantissa = static_cast<int>(std::ldexp(std::abs(rounded), 10 - exponent));
  const int bits = mantissa < 1024 ? mantissa : (exponent + 15) * 1024 + mantissa - 1024;
  return static_cast<std::uint16_t>(bits | (std::signbit(rounded) ? 0x8000 : 0));
}

float from_half(std::uint16_t x) {
  const int exponent = x >> 10 & 31, mantissa = x & 1023;
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), -24)
                              : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  return (x & 0x8000) != 0 ? -magnitude : magnitude;
}

std::vector<float> random_values(std::size_t count, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<float> values(count);
  for (float& value : values)
    value = from_half(to_half(static_cast<float>(generator() % 4001) / 1000.f - 2.f));
  return values;
}

std::vector<std::uint16_t> halves(const std::vector<float>& values) {
  std::vector<std::uint16_t> bits(values.size());
  std::transform(values.begin(), values.end(), bits.begin(), to_half);
  return bits;
}

}  // namespace flashcore::testing
