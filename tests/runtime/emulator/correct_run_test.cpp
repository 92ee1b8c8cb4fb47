// Correct kernels give the right numbers, write every output element once and have no bank
// conflicts.
#include <cmath>

#include <gtest/gtest.h>

#include "tests/runtime/emulator/support/kernels.h"

namespace flashcore::testing {
namespace {

struct Product {
  int m, n, k;
};

class MatrixProduct : public ::testing::TestWithParam<Product> {};

TEST_P(MatrixProduct, EqualsTheSumInDoublePrecision) {
  const auto [m, n, k] = GetParam();
  const std::size_t M = static_cast<std::size_t>(m), N = static_cast<std::size_t>(n),
                    K = static_cast<std::size_t>(k);
  const std::vector<float> a = random_values(M * K, 1), b = random_values(N * K, 2);
  std::vector<std::uint16_t> a_bits = halves(a), b_bits = halves(b);
  std::vector<float> c(M * N, -1.f);
  const EmulatedKernel kernel = EmulatedKernel::build(matrix_product());
  const std::vector<TensorView> tensors = {view_of(a_bits.data(), DType::f16, {m, k}, {k, 1}),
                                           view_of(b_bits.data(), DType::f16, {n, k}, {k, 1}),
                                           view_of(c.data(), DType::f32, {m, n}, {n, 1})};
  const auto parameters = Parameters()
                              .add(a_bits.data())
                              .add(b_bits.data())
                              .add(c.data())
                              .add(std::int64_t{k})
                              .add(std::int64_t{k})
                              .add(std::int64_t{n})
                              .add(m)
                              .add(n)
                              .add(k)
                              .bytes();
  const EmulationReport report = kernel.run(parameters, (m + 63) / 64 * ((n + 63) / 64), tensors);
  for (std::size_t i = 0; i < M; ++i) {
    for (std::size_t j = 0; j < N; ++j) {
      double sum = 0;
      for (std::size_t l = 0; l < K; ++l) sum += double{a[i * K + l]} * double{b[j * K + l]};
      ASSERT_NEAR(c[i * N + j], sum, 1e-5 * k) << "at " << i << ", " << j;
    }
  }
  ASSERT_EQ(report.outputs.size(), 1u);
  EXPECT_EQ(report.outputs[0].name, "c");
  EXPECT_EQ(report.outputs[0].elements, m * n);
  EXPECT_EQ(report.outputs[0].unwritten, 0);
  EXPECT_EQ(report.outputs[0].rewritten, 0);
  EXPECT_EQ(report.banks.conflicts(), 0);
  EXPECT_GT(report.banks.transactions(), 0);
}

INSTANTIATE_TEST_SUITE_P(Shapes, MatrixProduct,
                         ::testing::Values(Product{64, 64, 32}, Product{128, 128, 128},
                                           Product{100, 72, 40}, Product{1, 2, 8}));

TEST(Attention, EqualsSoftmaxInDoublePrecision) {
  const int sq = 300, sk = 330, dim = 128;
  const std::size_t D = dim;
  const std::vector<float> q = random_values(sq * D, 3), k = random_values(sk * D, 4),
                           v = random_values(sk * D, 5);
  std::vector<std::uint16_t> q_bits = halves(q), k_bits = halves(k), v_bits = halves(v),
                             o_bits(sq * D);
  const double scale = 1 / std::sqrt(double{dim});
  const EmulatedKernel kernel = EmulatedKernel::build(attention());
  const auto parameters = Parameters()
                              .add(q_bits.data())
                              .add(k_bits.data())
                              .add(v_bits.data())
                              .add(o_bits.data())
                              .add(sq)
                              .add(sk)
                              .add(static_cast<float>(scale * 1.4426950408889634))
                              .bytes();
  const std::vector<TensorView> tensors = {view_of(q_bits.data(), DType::f16, {sq, dim}, {dim, 1}),
                                           view_of(k_bits.data(), DType::f16, {sk, dim}, {dim, 1}),
                                           view_of(v_bits.data(), DType::f16, {sk, dim}, {dim, 1}),
                                           view_of(o_bits.data(), DType::f16, {sq, dim}, {dim, 1})};
  const EmulationReport report = kernel.run(parameters, (sq + 127) / 128, tensors);
  EXPECT_EQ(report.banks.conflicts(), 0);
  EXPECT_EQ(report.outputs[0].unwritten, 0);
  for (std::size_t i = 0; i < sq; ++i) {
    std::vector<double> weight(sk), expected(D);
    double sum = 0;
    for (std::size_t j = 0; j < sk; ++j) {
      double score = 0;
      for (std::size_t d = 0; d < D; ++d) score += double{q[i * D + d]} * double{k[j * D + d]};
      weight[j] = std::exp(score * scale);
      sum += weight[j];
    }
    for (std::size_t j = 0; j < sk; ++j)
      for (std::size_t d = 0; d < D; ++d) expected[d] += weight[j] / sum * double{v[j * D + d]};
    for (std::size_t d = 0; d < D; ++d)
      ASSERT_NEAR(from_half(o_bits[i * D + d]), expected[d], 3e-3) << "row " << i << ", " << d;
  }
}

}  // namespace
}  // namespace flashcore::testing
