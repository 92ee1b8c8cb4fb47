// Products of warpgroups: every layout of the operands gives the right numbers, and every misuse is
// found.
#include <gtest/gtest.h>

#include "tests/runtime/emulator/support/sm90_kernels.h"

namespace flashcore::testing {
namespace {

struct Shape {
  int n, width;
  bool transposed, in_registers;
  DType dtype;
  bool a_transposed = false;
};

void PrintTo(const Shape& shape, std::ostream* out) {
  *out << shape.n << (shape.transposed ? "_turned" : "") << "_of_" << shape.width
       << (shape.in_registers ? "_registers" : "") << (shape.a_transposed ? "_a_turned" : "")
       << (shape.dtype == DType::bf16 ? "_bf16" : "_f16");
}

constexpr std::string_view product_body = R"(
template <bool transposed>
struct Step : fc::along<width, 0> {};
template <>
struct Step<true> : fc::across<width> {};

struct Parameters {
  fc::tensor_map a, b;
  float* y;
};

extern "C" __global__ void product(const __grid_constant__ Parameters p) {
  const fc::u32 a = fc::shared_base(), b = a + 64 * depth * 2, full = b + columns * depth * 2;
  const int thread = fc::thread_index(), lane = thread % 32, row = thread / 32 * 16 + lane / 4;
  if (thread == 0) {
    fc::init_mbarrier(full, 1);
    fc::publish_mbarriers();
    fc::arrive_expect_tx(full, (64 + columns) * depth * 2);
    if (a_transposed)
      for (int m = 0; m < 64; m += width) fc::load_box(a + m * depth * 2, p.a, full, m, 0, 0);
    else
      for (int k = 0; k < depth; k += width) fc::load_box(a + k * 128, p.a, full, k, 0, 0);
    if (transposed)
      for (int c = 0; c < columns; c += width) fc::load_box(b + c * depth * 2, p.b, full, c, 0, 0);
    else
      for (int k = 0; k < depth; k += width) fc::load_box(b + k * columns * 2, p.b, full, k, 0, 0);
  }
  fc::barrier();
  fc::wait_phase(full, 0);
  float d[1][n / 8][4];
  fc::u32 fragments[depth / 16][4];
  for (int k = 0; k < depth; k += 16)
    for (int i = 0; i < 4; ++i)
      fragments[k / 16][i] = fc::load_shared_word(
          a + k / width * width * 128 + fc::swizzled(width, row + i % 2 * 8, k + i / 2 * 8) + lane % 4 * 4);
  fc::pin(d);
  fc::fence_products();
  for (int k = 0; k < depth; k += 16) {
    const fc::u64 left = a_transposed ? fc::matrix(a + k * width * 2, width, depth * width * 2)
                                  : fc::matrix(a + k / width * width * 128 + k % width * 2, width, 0);
    const fc::u64 right = transposed ? fc::matrix(b + k * width * 2, width, depth * width * 2)
                                 : fc::matrix(b + k / width * width * columns * 2 + k % width * 2, width, 0);
    if (in_registers)
      fc::multiply_warpgroup<n, T, 1, Step<transposed>>(d[0], fragments + k / 16, right, k > 0);
    else
      fc::multiply_warpgroup<n, T, 1, Step<a_transposed>, Step<transposed>>(d[0], left, right, k > 0);
    if (k % 32 == 16) fc::commit_products();
  }
  fc::wait_products<0>();
  fc::pin(d);
  for (int j = 0; j < n / 8; ++j)
    for (int r = 0; r < 2; ++r)
      fc::store_global<2>(p.y + (row + r * 8) * n + j * 8 + lane % 4 * 2, d[0][j] + r * 2);
}
)";

class Products : public ::testing::TestWithParam<Shape> {};

TEST_P(Products, EqualTheSumInDoublePrecision) {
  const auto [n, width, transposed, in_registers, dtype, a_transposed] = GetParam();
  const int depth = width * 2, columns = transposed ? (n + width - 1) / width * width : n;
  const auto N = static_cast<std::size_t>(n), K = static_cast<std::size_t>(depth);
  KernelSource source;
  source.name = source.entry = "product";
  source.body = fmt::format(
      "constexpr int n = {}, width = {}, depth = {}, columns = {};\n"
      "constexpr bool transposed = {}, in_registers = {}, a_transposed = {};\nusing T = "
      "fc::{};\n{}",
      n, width, depth, columns, transposed, in_registers, a_transposed,
      dtype == DType::bf16 ? "bf16" : "f16", product_body);
  source.tensors = {
      {"a", dtype, false, {}, 16}, {"b", dtype, false, {}, 16}, {"y", DType::f32, true, {}, 8}};
  source.parameter_bytes = 320;
  source.threads = 128;
  source.shared_bytes = (64 + columns) * depth * 2 + 8;

  const std::vector<float> a = random_values(64 * K, 1), b = random_values(N * K, 2);
  const std::vector<std::uint16_t> a_by_rows = elements_of(a, dtype),
                                   b_by_columns = elements_of(b, dtype);
  std::vector<std::uint16_t> a_bits(64 * K), b_bits(N * K);
  const auto a_at = [&](std::size_t m, std::size_t k) {
    return a_transposed ? k * 64 + m : m * K + k;
  };
  for (std::size_t m = 0; m < 64; ++m)
    for (std::size_t k = 0; k < K; ++k) a_bits[a_at(m, k)] = a_by_rows[m * K + k];
  for (std::size_t c = 0; c < N; ++c)
    for (std::size_t k = 0; k < K; ++k)
      b_bits[transposed ? k * N + c : c * K + k] = b_by_columns[c * K + k];
  const auto value = [&](std::uint16_t bits) {
    return double{dtype == DType::bf16 ? from_bfloat(bits) : from_half(bits)};
  };
  std::vector<float> y(64 * N);
  const int b_rows = transposed ? depth : n, b_columns = transposed ? n : depth;
  const int a_rows = a_transposed ? depth : 64, a_columns = a_transposed ? 64 : depth;
  const std::vector<std::byte> parameters =
      MapParameters()
          .map(map_of(a_bits.data(), 1, a_rows, a_columns, a_rows, width))
          .map(map_of(b_bits.data(), 1, b_rows, b_columns, b_rows, width))
          .add(y.data())
          .bytes();
  const std::vector<TensorView> tensors = {
      view_of(a_bits.data(), dtype, {a_rows, a_columns}, {a_columns, 1}),
      view_of(b_bits.data(), dtype, {b_rows, b_columns}, {b_columns, 1}),
      view_of(y.data(), DType::f32, {64, n}, {n, 1})};
  (void)EmulatedKernel::build(source).run(parameters, 1, tensors);
  for (std::size_t m = 0; m < 64; ++m)
    for (std::size_t c = 0; c < N; ++c) {
      double sum = 0;
      for (std::size_t k = 0; k < K; ++k)
        sum += value(a_bits[a_at(m, k)]) * value(b_bits[transposed ? k * N + c : c * K + k]);
      ASSERT_NEAR(y[m * N + c], sum, 1e-3) << m << ", " << c;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Products,
    ::testing::Values(
        Shape{8, 64, false, false, DType::bf16}, Shape{16, 32, false, false, DType::f16},
        Shape{64, 64, false, true, DType::bf16}, Shape{80, 64, false, false, DType::f16},
        Shape{80, 16, false, true, DType::bf16}, Shape{176, 64, false, false, DType::bf16},
        Shape{256, 32, false, false, DType::bf16}, Shape{256, 64, false, false, DType::f16},
        Shape{8, 64, true, false, DType::f16}, Shape{16, 16, true, false, DType::bf16},
        Shape{64, 64, true, true, DType::bf16}, Shape{64, 32, true, false, DType::f16},
        Shape{80, 16, true, true, DType::bf16}, Shape{176, 16, true, false, DType::f16},
        Shape{256, 64, true, true, DType::bf16}, Shape{256, 32, true, false, DType::bf16},
        Shape{64, 64, false, false, DType::bf16, true},
        Shape{176, 64, true, false, DType::f16, true},
        Shape{80, 16, true, false, DType::bf16, true},
        Shape{16, 32, false, false, DType::f16, true}),
    ::testing::PrintToStringParamName());

/// A tile of x behind its wait, in `tile`, and accumulators of x x^T that are pending at the end.
constexpr std::string_view multiply = R"(
  if (thread == 0) {
    fc::init_mbarrier(full, 1);
    fc::publish_mbarriers();
    fc::arrive_expect_tx(full, 8192);
    fc::load_box(tile, p.in, full, 0, 0, 0);
  }
  fc::barrier();
  fc::wait_phase(full, 0);
  float d[1][8][4] = {};
  const fc::u64 x = fc::matrix(tile, 64, 0);
  using rows = fc::along<64, 0>;
  fc::pin(d);
  fc::fence_products();
  fc::multiply_warpgroup<64, fc::bf16, 1, rows, rows>(d[0], x, x, false);  // first
)";
constexpr std::string_view show =
    "fc::store_global<1>(p.y + thread / 64 * 64 + thread % 64, &d[0][0][0]);\n";
constexpr std::string_view land = "fc::wait_products<0>();\nfc::pin(d);\n";

KernelSource kernel_of(std::initializer_list<std::string_view> lines, int threads = 128) {
  std::string statements(multiply);
  for (const std::string_view line : lines) statements += line;
  return box_kernel(statements, threads);
}

void expect_failure(const KernelSource& source, FaultKind kind, std::string_view line,
                    std::string_view says) {
  const EmulatorError error = failure_of([&] { BoxRun()(source); });
  EXPECT_EQ(name_of(error.kind()), name_of(kind)) << error.what();
  EXPECT_EQ(error.line(), line_of(source, line)) << error.what();
  EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
}

TEST(PendingProducts, AccumulatorsAreNotANumberUntilTheyArePinned) {
  BoxRun run;
  run(kernel_of({"fc::commit_products();\n", show, land}));
  for (std::size_t i = 0; i < 128; ++i) EXPECT_NE(run.y[i], run.y[i]);
  run(kernel_of({"fc::commit_products();\nfc::wait_products<0>();\n", show, "fc::pin(d);\n"}));
  for (std::size_t i = 0; i < 128; ++i) EXPECT_NE(run.y[i], run.y[i]);
  run(kernel_of({"fc::commit_products();\n", land, show}));
  EXPECT_EQ(run.y[0], 15 * 16 * 31 / 6);  // row 0 is 0, 1, 2, ...
}

TEST(PendingProducts, GroupsOfOneAccumulatorFollowEachOther) {
  constexpr std::string_view again =
      "fc::commit_products();\n"
      "fc::multiply_warpgroup<64, fc::bf16, 1, rows, rows>(d[0], x, x, true);\n"
      "fc::commit_products();\n";
  BoxRun run;
  run(kernel_of({again, "fc::wait_products<1>();\n", land, show}));
  EXPECT_EQ(run.y[0], 2 * 15 * 16 * 31 / 6);
  run(kernel_of({again, "fc::wait_products<1>();\n", show, land}));
  EXPECT_NE(run.y[0], run.y[0]);
}

TEST(PendingProducts, TouchedAccumulators) {
  expect_failure(kernel_of({"fc::commit_products();\nif (thread == 7) d[0][3][1] *= 2.f;\n",
                            "fc::wait_products<0>();  // here\n"}),
                 FaultKind::misused_product, "// here",
                 "accumulator [3][1] of the product at line");
  expect_failure(kernel_of({"fc::commit_products();\n"
                            "fc::multiply_warpgroup<32, fc::bf16, 1, rows, rows>(d[0] + 4, x, x, "
                            "true);  // here\n"}),
                 FaultKind::misused_product, "// here",
                 "belongs to another product that is pending");
}

constexpr std::string_view product =
    "fc::multiply_warpgroup<64, fc::bf16, 1, rows, rows>(d[0], x, x, true);  // here\n";

TEST(PendingProducts, ArePinnedBeforeTheyStart) {
  const std::string_view first = "// first";
  const KernelSource right = kernel_of({"fc::commit_products();\n", land});
  expect_failure(with(right, "fc::pin(d);\n  fc::fence", "fc::fence"), FaultKind::misused_product,
                 first, "accumulators were not pinned for it");
  expect_failure(
      with(right, "fc::pin(d);\n  fc::fence_products();", "fc::fence_products();\n  fc::pin(d);"),
      FaultKind::misused_product, first, "were pinned after fence_products()");
  expect_failure(with(right, "fc::fence_products();",
                      "if (thread == 9) d[0][2][3] = 1.f;\n  fc::fence_products();"),
                 FaultKind::misused_product, first,
                 "accumulator [2][3] was written between pin() and the product");
  // What was pinned for one product is not for the next.
  expect_failure(kernel_of({"fc::commit_products();\n", land, "fc::fence_products();\n", product}),
                 FaultKind::misused_product, "// here", "accumulators were not pinned for it");
}

TEST(PendingProducts, ArePinnedWhereTheyLand) {
  constexpr std::string_view await = "fc::commit_products();\nfc::wait_products<0>();\n";
  expect_failure(kernel_of({await}), FaultKind::misused_product, "// first", "were never pinned");
  expect_failure(kernel_of({await, "if (thread == 5) d[0][1][2] = 0.f;\nfc::pin(d);  // here\n"}),
                 FaultKind::misused_product, "// here",
                 "accumulator [1][2] of the product at line");
  expect_failure(kernel_of({await, "fc::fence_products();\n", product}), FaultKind::misused_product,
                 "// here", "have completed and were not pinned since");
  expect_failure(kernel_of({await, "fc::pin(d);\nfc::fence_products();\n", product}),
                 FaultKind::misused_product, "// here", "accumulators were not pinned for it");
  expect_failure(kernel_of({"fc::commit_products();\nfc::pin(d);  // here\n", land}),
                 FaultKind::misused_product, "// here",
                 "accumulator [0][0] is pinned while its product is pending");
}

TEST(PendingProducts, AreAwaitedBeforeTheEnd) {
  expect_failure(kernel_of({"fc::wait_products<0>();\n"}), FaultKind::misused_product, "// first",
                 "in no group; wait_products() waits for committed groups only");
  expect_failure(kernel_of({"fc::commit_products();\n"}), FaultKind::misused_product, "// first",
                 "pending; nobody waits for its group");
}

TEST(PendingProducts, AreOpenedAfterEveryWait) {
  expect_failure(
      kernel_of(
          {"fc::commit_products();\nfc::wait_products<0>();\n"
           "fc::multiply_warpgroup<64, fc::bf16, 1, rows, rows>(d[0], x, x, true);  // here\n"}),
      FaultKind::misused_product, "// here", "without fence_products()");
}

TEST(PendingProducts, OperandsMayNotBeOverwritten) {
  constexpr std::string_view write =
      "for (int i = 0; i < 16; ++i) fc::store_shared(tile + thread % 128 * 64 + i * 4, 0u);  // "
      "here\n";
  expect_failure(kernel_of({"fc::commit_products();\n", write}), FaultKind::race, "// here",
                 "was read by a product of warpgroup 0 at line");
  EXPECT_NO_THROW(BoxRun()(kernel_of({"fc::commit_products();\n", land, write})));
  // A barrier hands on to another warpgroup that this one has waited.
  const auto handed_on = [&](std::string_view first, std::string_view second) {
    return with(kernel_of({"fc::commit_products();\n", first, second,
                           "} else {\n  fc::meet(1, 256);\n", write, "}\n"},
                          256),
                "float d[1]", "if (thread < 128) {\n  float d[1]");
  };
  constexpr std::string_view signal = "fc::signal(1, 256);\n";
  EXPECT_NO_THROW(BoxRun()(handed_on(land, signal)));
  expect_failure(handed_on(signal, land), FaultKind::race, "// here",
                 "was read by a product of warpgroup 0");
}

TEST(PendingProducts, ReadWhatWasFenced) {
  constexpr std::string_view write =
      "fc::commit_products();\nfc::wait_products<0>();\nfc::pin(d);\nfc::barrier();\n"
      "for (int i = 0; i < 16; ++i) fc::store_shared(tile + thread * 64 + i * 4, 0u);\n";
  constexpr std::string_view again =
      "fc::barrier();\nfc::pin(d);\nfc::fence_products();\n"
      "fc::multiply_warpgroup<64, fc::bf16, 1, rows, rows>(d[0], x, x, true);  // here\n"
      "fc::commit_products();\nfc::wait_products<0>();\nfc::pin(d);\n";
  EXPECT_NO_THROW(BoxRun()(kernel_of({write, "fc::fence_async();\n", again})));
  expect_failure(kernel_of({write, again}), FaultKind::unfenced, "// here",
                 "has not called fence_async()");
  expect_failure(kernel_of({write, "if (thread != 4) fc::fence_async();\n", again}),
                 FaultKind::unfenced, "// here", "was written by thread 4 at line");
}

TEST(ProductOperands, AreCheckedAsDescribed) {
  constexpr std::string_view commit = "fc::commit_products();\nfc::wait_products<0>();\n";
  const auto failing = [&](std::string_view from, std::string_view to, FaultKind kind,
                           std::string_view says) {
    expect_failure(with(kernel_of({commit}), from, to), kind, "// first", says);
  };
  failing("(tile, 64, 0)", "(tile + 128, 64, 0)", FaultKind::misaligned,
          "128 past a multiple of 1024");
  failing("(tile, 64, 0)", "(tile + 112, 64, 0)", FaultKind::bad_operand,
          "bytes 112 to 143 of lines of 128");
  failing("(tile, 64, 0)", "(tile + 8192, 64, 0)", FaultKind::uninitialized, "byte 8192");
  failing("(tile, 64, 0)", "(tile + 32768, 64, 0)", FaultKind::out_of_bounds,
          "the block has 32768");
  failing("fc::matrix(tile, 64, 0)", "fc::matrix(tile, 64, 0) & ~(3ull << 62)",
          FaultKind::bad_operand, "no swizzle");
  failing("fc::matrix(tile, 64, 0)", "fc::matrix(tile, 64, 0) ^ (1ull << 63 | 1ull << 62)",
          FaultKind::bad_operand, "lie 1024 bytes apart");
  failing("(d[0], x, x, false)", "(d[0], x, x, thread == 3)", FaultKind::bad_operand,
          "thread 3 gives other matrices");
  failing("<64, fc::bf16, 1, rows, rows>", "<12, fc::bf16, 1, rows, rows>", FaultKind::bad_operand,
          "a product of 12 columns");
  failing("<64, fc::bf16, 1, rows, rows>", "<128, fc::bf16, 1, rows, fc::across<64>>",
          FaultKind::bad_operand, "panels of 64, and the next panel lies 0 bytes further");
}

TEST(ProductOperands, ThreadsOfAWarpgroupStayTogether) {
  expect_failure(with(kernel_of({"fc::commit_products();\nfc::wait_products<0>();\n"}),
                      "fc::multiply_warpgroup", "if (warp != 2) fc::multiply_warpgroup"),
                 FaultKind::group_divergence, "fc::commit_products();",
                 "threads 0-31, 96-127 wait at multiply_warpgroup");
  expect_failure(with(kernel_of({}), "fc::multiply_warpgroup",
                      "if (warp == 2) return;\nfc::multiply_warpgroup"),
                 FaultKind::group_divergence, "// first", "thread 64 leaves the kernel");
  expect_failure(
      kernel_of({"fc::commit_products();\nif (lane == 3) fc::shuffle_xor(0.f, 1);  // here\n",
                 "fc::wait_products<0>();\n"}),
      FaultKind::divergence, "// here", "arrives at shuffle_xor");
  expect_failure(with(kernel_of({}, 96), "fc::pin(d);", "fc::pin(d);  // here"),
                 FaultKind::bad_operand, "// here",
                 "belongs to no whole warpgroup: the block has 96");
}

TEST(Registers, AreSharedOutByWholeWarpgroups) {
  EXPECT_NO_THROW(BoxRun()(box_kernel(
      "if (warp < 4) fc::shrink_registers<24>();\nelse fc::grow_registers<240>();\n", 256)));
  EXPECT_NO_THROW(BoxRun()(box_kernel(
      "if (warp < 8) fc::grow_registers<240>();\nelse fc::shrink_registers<24>();\n", 384)));
  // 384 threads begin with 168 each: 72 more for two warpgroups, where the third gives 136.
  expect_failure(box_kernel("if (warp < 4) fc::shrink_registers<32>();\n"
                            "else fc::grow_registers<240>();  // here\n",
                            384),
                 FaultKind::deadlock, "// here",
                 "warpgroup 2 has 168 registers a thread and waits for 240, 64 are free");
  expect_failure(box_kernel("fc::grow_registers<100>();  // here\n"), FaultKind::bad_operand,
                 "// here", "100 registers a thread");
  expect_failure(box_kernel("if (thread % 64 < 32) fc::grow_registers<104>();  // here\n"),
                 FaultKind::group_divergence, "// here", "leaves the kernel");
}

}  // namespace
}  // namespace flashcore::testing
