// A launch of few rows from C++ on a real GPU: its keys are split by itself, on memory of the stream, alone
// and in a graph.
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>

#include <gtest/gtest.h>

#include "runtime/compile_mode.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/memory.h"
#include "runtime/dispatcher.h"
#include "templates/attention_chooser.h"
#include "tests/runtime/gpu/graph_functions.h"
#include "tests/runtime/support/expectations.h"

namespace flashcore {
namespace {

constexpr int heads = 8, kv_heads = 2, dim = 64;

std::uint16_t to_bf16(float value) {
  return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + 0x8000) >> 16);
}
float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// bf16 [1, heads, length, dim] on the GPU.
struct Array {
  Array(int heads, int length, std::mt19937& random)
      : memory(static_cast<std::size_t>(heads) * length * dim * 2),
        values(memory.bytes() / 2),
        view(TensorView::dense(memory.data(), DType::bf16, {1, heads, length, dim},
                               memory.device())) {
    std::normal_distribution<float> normal;
    for (std::uint16_t& value : values) value = to_bf16(normal(random));
    memory.upload(std::as_bytes(std::span(values)));
  }
  void poison() {
    std::ranges::fill(values, 0x7fc0);  // NaN
    memory.upload(std::as_bytes(std::span(values)));
  }
  std::vector<std::uint16_t> read() {
    memory.download(std::as_writable_bytes(std::span(values)));
    return values;
  }
  DeviceMemory memory;
  std::vector<std::uint16_t> values;
  TensorView view;
};

class SplitKeysTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!gpu_is_available(&why)) GTEST_SKIP() << why;
    FLASHCORE_REQUIRE_NVRTC();
    const Driver& driver = Driver::get();
    device = current_device(driver);
    context.emplace(driver, device);
    const DeviceInfo info = device_info(driver, device);
    target = &target_for_device(info.major, info.minor);
    set_compile_mode(CompileMode::eager);
  }
  ~SplitKeysTest() override { set_compile_mode(std::nullopt); }

  const AttentionSpec spec{.head_dim = dim, .heads = heads, .kv_heads = kv_heads, .mask = causal()};
  int device = 0;
  std::optional<ContextGuard> context;
  const Target* target = nullptr;
};

TEST_F(SplitKeysTest, OfFewRowsGiveWhatOneKernelGives) {
  std::mt19937 random(std::random_device{}());
  const auto chooser = std::make_shared<AttentionChooser>(spec, *target);
  Dispatcher split(attention_forward(spec), *target, chooser);
  Dispatcher whole(attention_forward(spec), *target,
                   std::make_shared<ScheduleChooser>(spec, *target));
  CudaStream stream = nullptr;
  ASSERT_EQ(test::graphs().cuStreamCreate(&stream, 1), 0);
  for (const auto& [rows, keys] : {std::pair{1, 4096}, {3, 5001}, {1, 20000}}) {
    const auto number = chooser->find_alternative(AttentionProblem{1, heads, rows, keys}, 132);
    ASSERT_TRUE(number.has_value());
    Array q(heads, rows, random), k(kv_heads, keys, random), v(kv_heads, keys, random);
    Array o(heads, rows, random);
    const std::array tensors{q.view, k.view, v.view, o.view};
    const std::array scalars{ScalarValue(0.125F)};
    const auto run = [&](auto&& launch) {
      o.poison();
      launch();
      EXPECT_EQ(test::graphs().cuStreamSynchronize(stream), 0);
      return o.read();
    };
    const auto expected = run([&] { whole.launch(tensors, scalars, stream); });
    const auto alone = run([&] { split.launch(tensors, scalars, stream); });
    EXPECT_NE(split.built_alternative(*number), nullptr);
    int wrong = 0;  // by more than some roundings of sums whose terms add up to one; or NaN
    for (std::size_t i = 0; i < expected.size(); ++i)
      wrong += !(std::abs(from_bf16(expected[i]) - from_bf16(alone[i])) < 2e-3F);
    EXPECT_EQ(wrong, 0) << rows << " rows, " << keys << " keys";

    void *graph = nullptr, *executable = nullptr;
    ASSERT_EQ(test::graphs().cuStreamBeginCapture_v2(stream, 0), 0);
    split.launch(tensors, scalars, stream);
    ASSERT_EQ(test::graphs().cuStreamEndCapture(stream, &graph), 0);
    ASSERT_EQ(test::graphs().cuGraphInstantiateWithFlags(&executable, graph, 0), 0);
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(run([&] { test::graphs().cuGraphLaunch(executable, stream); }), alone)
          << "the same bits";
  }
}

}  // namespace
}  // namespace flashcore
