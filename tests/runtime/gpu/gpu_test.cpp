// The runtime on a real GPU: what a fake driver cannot show. Skipped where there is none.
#include <numeric>

#include <gmock/gmock.h>

#include "runtime/cuda/device.h"
#include "runtime/cuda/memory.h"
#include "runtime/kernel.h"
#include "runtime/timer.h"
#include "tests/runtime/gpu/graph_functions.h"
#include "tests/runtime/support/expectations.h"
#include "tests/runtime/support/kernels.h"
#include "tests/runtime/support/timing.h"

namespace flashcore {
namespace {

class GpuTest : public testing::Test {
 protected:
  static constexpr int rows = 100;

  void SetUp() override {
    std::string why;
    if (!gpu_is_available(&why)) GTEST_SKIP() << why;
    FLASHCORE_REQUIRE_NVRTC();
    const Driver& driver = Driver::get();
    context.emplace(driver, current_device(driver));
    architecture = device_info(driver, current_device(driver)).architecture();
    compiled = CompiledKernel::build(test::scale_kernel(), architecture);
    x.emplace(rows * 64 * sizeof(float));
    y.emplace(rows * 64 * sizeof(float));
    std::vector<float> values(rows * 64);
    std::iota(values.begin(), values.end(), 0.F);
    x->upload(std::as_bytes(std::span(values)));
    clear();
  }

  // The kernel under another promise: loaded apart from all others.
  [[nodiscard]] std::shared_ptr<const CompiledKernel> apart(int min_blocks) const {
    KernelSource source = test::scale_kernel();
    source.min_blocks = min_blocks;
    return CompiledKernel::from_cubin(source, architecture,
                                      {compiled->cubin(), compiled->resources()});
  }
  // Until what nobody uses is unloaded.
  void load_many_others() const {
    for (int i = 0; i < 3 * static_cast<int>(LoadedCode::max_unused); ++i)
      LoadedKernel(apart(1000 + i)).prepare(x->device());
  }

  void clear() { y->upload(std::vector<std::byte>(y->bytes())); }
  [[nodiscard]] std::array<TensorView, 2> tensors(int count = rows) const {
    return {TensorView::dense(x->data(), DType::f32, {count, 64}, x->device()),
            TensorView::dense(y->data(), DType::f32, {count, 64}, y->device())};
  }
  // y is x times `factor` in the first `count` rows and 0 in the others.
  void expect_scaled(float factor, int count = rows) {
    ASSERT_EQ(test::graphs().cuCtxSynchronize(), 0);
    std::vector<float> values(rows * 64);
    y->download(std::as_writable_bytes(std::span(values)));
    for (int i = 0; i < rows * 64; ++i) {
      ASSERT_EQ(values[i], i < count * 64 ? factor * static_cast<float>(i) : 0.F) << i;
    }
  }

  std::optional<ContextGuard> context;
  std::string architecture;
  std::shared_ptr<const CompiledKernel> compiled;
  std::optional<DeviceMemory> x, y;
};

TEST_F(GpuTest, Launches) {
  LoadedKernel kernel(compiled);
  kernel.launch(tensors(), std::array{ScalarValue(2.F)});
  expect_scaled(2);
  clear();
  kernel.launch(tensors(37), std::array{ScalarValue(3.F)});  // another length, the same kernel
  expect_scaled(3, 37);
  clear();
  kernel.launch(tensors(0), std::array{ScalarValue(3.F)});
  expect_scaled(0, 0);
}

TEST_F(GpuTest, IsCapturedIntoAGraph) {
  CudaStream stream = nullptr;
  ASSERT_EQ(test::graphs().cuStreamCreate(&stream, 1),
            0);  // it does not wait for the default stream
  void* graph = nullptr;
  void* executable = nullptr;
  {
    LoadedKernel kernel(apart(2));
    ASSERT_EQ(test::graphs().cuStreamBeginCapture_v2(stream, 0), 0);
    EXPECT_THAT(test::message_of<DeviceError>(
                    [&] { kernel.launch(tensors(), std::array{ScalarValue(2.F)}, stream); }),
                testing::HasSubstr("call prepare()"));
    EXPECT_EQ(test::graphs().cuStreamEndCapture(stream, &graph),
              0);  // the refusal did not break it

    kernel.prepare(x->device());
    ASSERT_EQ(test::graphs().cuStreamBeginCapture_v2(stream, 0), 0);
    kernel.launch(tensors(), std::array{ScalarValue(2.F)}, stream);
    ASSERT_EQ(test::graphs().cuStreamEndCapture(stream, &graph), 0);
  }  // the graph outlives the kernel
  load_many_others();
  ASSERT_EQ(test::graphs().cuGraphInstantiateWithFlags(&executable, graph, 0), 0);
  expect_scaled(0, 0);
  ASSERT_EQ(test::graphs().cuGraphLaunch(executable, stream), 0);
  ASSERT_EQ(test::graphs().cuStreamSynchronize(stream), 0);
  expect_scaled(2);
}

TEST_F(GpuTest, UnloadingWaitsForWhatRuns) {
  for (int round = 0; round < 5; ++round) {
    {
      LoadedKernel kernel(apart(3));
      for (int i = 0; i < 1000; ++i) kernel.launch(tensors(), std::array{ScalarValue(2.F)});
    }
    load_many_others();
    expect_scaled(2);
    clear();
  }
}

TEST_F(GpuTest, LargeSharedMemory) {
  KernelSource source = test::attention_like_kernel();
  LoadedKernel kernel(CompiledKernel::build(source, architecture));
  DeviceMemory memory(1 << 20);
  const auto at = [&](int offset) { return static_cast<std::byte*>(memory.data()) + offset; };
  const auto half = [&](int offset) {
    return TensorView::dense(at(offset), DType::bf16, {1, 1, 128, 64}, memory.device());
  };
  const TensorView lse = TensorView::dense(at(1 << 19), DType::f32, {1, 1, 128}, memory.device());
  kernel.launch(std::array{half(0), half(1 << 15), half(1 << 16), lse},
                std::array{ScalarValue(0.25F)});
  ASSERT_EQ(test::graphs().cuCtxSynchronize(), 0);
  std::vector<float> out((1 << 19) / 4 + 128);
  memory.download(std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(out[(1 << 19) / 4 + 127], 0.25F);
}

// What the driver accepts of tensor maps, and what the copy engine makes of them.
TEST_F(GpuTest, TensorMaps) {
  if (architecture != "sm_90") GTEST_SKIP() << "a GPU of compute capability 9.0 is needed";
  LoadedKernel kernel(CompiledKernel::build(test::copy_boxes_kernel(), "sm_90a"));
  constexpr int batch = 2, heads = 3, length = 100, dim = 64;
  constexpr std::size_t count = std::size_t{batch} * heads * length * dim;
  std::vector<std::uint16_t> values(count);
  std::iota(values.begin(), values.end(), std::uint16_t{1});
  DeviceMemory from(2 * count), to(2 * count);
  from.upload(std::as_bytes(std::span(values)));
  TensorView x =
      TensorView::dense(from.data(), DType::bf16, {batch, heads, length, dim}, from.device());
  TensorView y = x;
  y.data = to.data();
  const auto expect_copied = [&](const char* what) {
    SCOPED_TRACE(what);
    to.upload(std::vector<std::byte>(to.bytes(), std::byte{0xff}));
    kernel.launch(std::array{x, y}, {});
    ASSERT_EQ(test::graphs().cuCtxSynchronize(), 0);
    std::vector<std::uint16_t> copied(count);
    to.download(std::as_writable_bytes(std::span(copied)));
    for (int b = 0; b < batch; ++b)
      for (int h = 0; h < heads; ++h)
        for (int row = 0; row < length; ++row)
          for (int column = 0; column < dim; ++column) {
            const std::int64_t at =
                b * x.strides[0] + h * x.strides[1] + row * x.strides[2] + column;
            ASSERT_EQ(copied[((b * heads + h) * length + row) * dim + column],
                      row < x.shape[2] ? values[at] : 0)
                << b << " " << h << " " << row << " " << column;
          }
  };
  expect_copied("dense");
  x.strides = {length * heads * dim, dim, heads * dim, 1};
  expect_copied("heads inside of rows");
  x.shape[2] = 37;
  expect_copied("fewer rows");
  x.strides[1] = 0;
  expect_copied("heads that are one");
  x.strides = {0, dim, heads * dim, 1};
  expect_copied("batches that are one");
  x.strides = {heads * dim, dim, 0, 1};
  expect_copied("rows that are one");
  x.shape[2] = 0;
  x.data = nullptr;
  expect_copied("no rows");
}

TEST_F(GpuTest, TimesLaunches) {
  LoadedKernel kernel(compiled);
  const std::array<TensorView, 2> one = tensors(1), all = tensors();
  const std::array scalars{ScalarValue(2.F)};
  LaunchTimer timer(x->device());
  const std::array launches{TimedLaunch{&kernel, one, scalars}, TimedLaunch{&kernel, all, scalars}};
  for (const double time : timer.median_microseconds(launches)) {
    EXPECT_GT(time, 0.5);
    EXPECT_LT(time, 1000);
  }
}

TEST_F(GpuTest, RefusesCodeOfAnotherArchitecture) {
  const char* other = architecture.starts_with("sm_8") ? "sm_90" : "sm_80";
  LoadedKernel kernel(CompiledKernel::build(test::scale_kernel(), other));
  EXPECT_THAT(test::message_of<DeviceError>([&] { kernel.prepare(x->device()); }),
              testing::HasSubstr("compile it for " + architecture));
}

// The log of ptxas must be there also when the driver's or NVRTC's own cache knows the kernel.
TEST_F(GpuTest, TheReportIsNeverLost) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_GT(compile_cubin(*test::installed_nvrtc(), test::scale_kernel(), architecture)
                  .resources.registers,
              0);
  }
}

TEST_F(GpuTest, LaunchIsCheap) {
  LoadedKernel kernel(compiled);
  const std::array<TensorView, 2> views = tensors(1);
  const std::array scalars{ScalarValue(2.F)};
  const Driver& driver = Driver::get();
  CudaModule module = nullptr;
  CudaFunction function = nullptr;
  driver.check(driver.cuModuleLoadData(&module, compiled->cubin().data()), "load");
  driver.check(driver.cuModuleGetFunction(&function, module, "scale"), "find");
  ParameterBlock block;
  kernel.plan().bind(views, scalars, block);
  void* parameters[] = {block.bytes};

  // Few launches a batch, or the queue fills up and the time is the kernel's.
  const auto fastest = [&](auto action) {
    double best = 1e30;
    for (int batch = 0; batch < 200; ++batch) {
      test::graphs().cuCtxSynchronize();
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < 100; ++i) action();
      const std::chrono::duration<double, std::nano> time =
          std::chrono::steady_clock::now() - start;
      best = std::min(best, time.count() / 100);
    }
    return best;
  };
  kernel.prepare(x->device());
  const double bare = fastest(
      [&] { driver.cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, nullptr, parameters, nullptr); });
  const double ours = fastest([&] { kernel.launch(views, scalars); });
  fmt::print("bare cuLaunchKernel {:.0f} ns, launch {:.0f} ns\n", bare, ours);
  EXPECT_LT(ours - bare, test::limit_in_release(1000));
}

}  // namespace
}  // namespace flashcore
