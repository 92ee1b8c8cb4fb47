// Launches of more blocks than CUDA's grid has.
#include "runtime/flat_grid.h"

#include <gmock/gmock.h>

#include "dsl/flashcore.h"
#include "runtime/dispatcher.h"
#include "runtime/launch_errors.h"
#include "tests/runtime/support/expectations.h"
#include "tests/runtime/support/fake_cuda.h"
#include "tests/runtime/support/loaded_kernel.h"

namespace flashcore {
namespace {

using test::fake_cuda;

struct Counted final : Launchable {
  explicit Counted(bool refuses = false) : refuses(refuses) {}
  [[nodiscard]] std::shared_ptr<const KernelSource> shared_source() const override { return {}; }
  void prepare(int /*device*/) override { ++prepared; }
  void launch(std::span<const TensorView> /*tensors*/, std::span<const ScalarValue> /*scalars*/,
              CudaStream /*stream*/) override {
    if (refuses) throw GridError({.what = "a launch", .why = "too many blocks"});
    ++launched;
  }
  bool refuses;
  int prepared = 0, launched = 0;
};

TEST(AnyGrid, TheOtherKernelIsMadeOnceAndForLaunchesThatWantItAlone) {
  const auto small = std::make_shared<Counted>(), flat = std::make_shared<Counted>();
  int made = 0;
  AnyGrid kernel(small, [&] { return ++made, flat; });
  kernel.prepare(0);
  kernel.launch({}, {}, nullptr);
  EXPECT_EQ(made, 0);
  small->refuses = true;
  kernel.launch({}, {}, nullptr);
  kernel.launch({}, {}, nullptr);
  EXPECT_EQ(made, 1);
  EXPECT_EQ(small->launched, 1);
  EXPECT_EQ(small->prepared, 1);
  EXPECT_EQ(flat->launched, 2);
}

TEST(AnyGrid, WhatTheOtherRefusesTooIsTold) {
  AnyGrid kernel(std::make_shared<Counted>(true), [] { return std::make_shared<Counted>(true); });
  EXPECT_THROW(kernel.launch({}, {}, nullptr), GridError);
}

class OneSchedule final : public ScheduleChoice {
 public:
  [[nodiscard]] const std::vector<std::string>& extents() const override { return extents_; }
  std::size_t choose(std::span<const std::int64_t>) override { return 0; }
  [[nodiscard]] std::size_t find(std::span<const std::int64_t>) const override { return 0; }
  [[nodiscard]] std::vector<Schedule> schedules(std::size_t) const override {
    return {{.tiles = {{"rows", 16}}}};
  }
  [[nodiscard]] std::string describe(std::span<const std::int64_t>) const override { return {}; }
  [[nodiscard]] std::string preparation(std::span<const std::int64_t>) const override { return {}; }

 private:
  std::vector<std::string> extents_{"B"};
};

TEST(AnyGrid, ADispatcherLaunchesMoreBlocksThanAnAxisOfTheGridHas) {
  FLASHCORE_REQUIRE_NVRTC();
  ProgramBuilder b("copy");
  const Extent batch_size("B"), length("N");
  const Tensor x = b.input("x", DType::f32, {batch_size, length, 64});
  const Tensor y = b.output("y", DType::f32, {batch_size, length, 64});
  const Axis rows = b.parallel_tiles("rows", length), batch = b.parallel("batch", batch_size),
             d = b.whole("d", 64);
  store(y(batch, rows, d), load(x(batch, rows, d)));
  Dispatcher kernel(b.finish(), find_target("sm_80"), std::make_shared<OneSchedule>());
  fake_cuda().launches.clear();
  for (const std::int64_t batches : {3, 70'000}) {
    const auto at = [](std::uintptr_t address) { return reinterpret_cast<void*>(address); };
    const std::array<TensorView, 2> tensors{
        TensorView::dense(at(0x1000), DType::f32, {batches, 20, 64}, 0),
        TensorView::dense(at(0x100'000'000), DType::f32, {batches, 20, 64}, 0)};
    kernel.launch(tensors, {});
    EXPECT_EQ(fake_cuda().launches.back().blocks, 2 * batches);
  }
  EXPECT_EQ(fake_cuda().launches.front().rows_of_blocks, 3U);
  EXPECT_EQ(fake_cuda().launches.back().rows_of_blocks, 1U);
}

}  // namespace
}  // namespace flashcore
