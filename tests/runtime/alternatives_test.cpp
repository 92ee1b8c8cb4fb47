// Launches that a module serves in place of a program's kernels: with which arguments and whose memory,
// and what serves until it is built.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codegen/generate.h"
#include "runtime/alternative_module.h"
#include "runtime/compile_mode.h"
#include "runtime/dispatcher.h"
#include "runtime/launch_errors.h"
#include "runtime/log.h"
#include "tests/runtime/support/expectations.h"
#include "tests/runtime/support/fake_cuda.h"
#include "tests/support/split_sum.h"

namespace flashcore {
namespace {

using namespace std::chrono_literals;
using test::fake_cuda;
using test::message_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// What test::sum_rows computes, by one kernel and with the arguments in another order.
Program sum_in_one(const char* input = "x") {
  const Extent R("R"), N("N");
  ProgramBuilder b("sum_in_one");
  const Tensor y = b.output("y", DType::f32, {R});
  const Axis rows = b.parallel_tiles("rows", R), cols = b.tiles("cols", N);
  const Tensor x = b.input(input, DType::f32, {R, N});
  store(y(rows), b.loop(cols, b.fill({rows}, 0),
                        [&](const Tile& s) { return s + reduce_sum(load(x(rows, cols)), cols); }));
  return b.finish();
}

constexpr int tile_for_many = 16, tile_for_few = 32;

/// Launches of few long rows want the module and, where a kernel serves, perhaps another schedule.
class ByRows final : public ScheduleChoice {
 public:
  bool has_two_lists = false;

  [[nodiscard]] const std::vector<std::string>& extents() const override { return extents_; }
  std::size_t choose(std::span<const std::int64_t> lengths) override { return find(lengths); }
  [[nodiscard]] std::size_t find(std::span<const std::int64_t> lengths) const override {
    return has_two_lists && lengths[0] < 100 ? 1 : 0;
  }
  [[nodiscard]] std::vector<Schedule> schedules(std::size_t number) const override {
    const int rows = number == 0 ? tile_for_many : tile_for_few;
    return {{.tiles = {{"rows", rows}, {"cols", 32}}}};
  }
  [[nodiscard]] bool has_alternatives() const override { return true; }
  [[nodiscard]] std::optional<std::size_t> find_alternative(
      std::span<const std::int64_t> lengths, std::int64_t multiprocessors) const override {
    return lengths[0] < multiprocessors ? std::optional<std::size_t>(3) : std::nullopt;
  }
  [[nodiscard]] Alternative alternative(std::size_t number) const override {
    EXPECT_EQ(number, 3U);
    // The first schedule of the second kernel is for a test to refuse.
    Schedule other = test::sum_rows_schedule(1);
    other.tiles.at("rows") = 32;
    return {test::sum_rows(), {{test::sum_rows_schedule(0)}, {other, test::sum_rows_schedule(1)}}};
  }
  [[nodiscard]] std::string describe(std::span<const std::int64_t> /*lengths*/) const override {
    return "rows";
  }
  [[nodiscard]] std::string preparation(std::span<const std::int64_t>) const override {
    return "prepare it";
  }

 private:
  std::vector<std::string> extents_{"R", "N"};
};

class AlternativesTest : public testing::Test {
 protected:
  struct Launched {
    std::string kernel;
    int tile_rows = 0;
    std::vector<void*> tensors;
  };
  struct Made final : Launchable {
    Made(AlternativesTest& test, const Program& program, const Schedule& schedule)
        : test(test),
          rows(schedule.tiles.at("rows")),
          source(std::make_shared<const KernelSource>(
              generate(program, schedule, find_target("sm_80")))) {}
    [[nodiscard]] std::shared_ptr<const KernelSource> shared_source() const override {
      return source;
    }
    void prepare(int /*device*/) override {
      if (test.unloadable.contains(source->name))
        throw DeviceError({.what = "the code of a kernel", .why = "the GPU has no memory left"});
      ++test.loads;
      std::this_thread::sleep_for(test.loading_takes);
    }
    void launch(std::span<const TensorView> tensors, std::span<const ScalarValue> /*scalars*/,
                CudaStream /*stream*/) override {
      Launched& launched = test.launched.emplace_back(Launched{source->name, rows, {}});
      for (const TensorView& tensor : tensors) launched.tensors.push_back(tensor.data);
    }
    AlternativesTest& test;
    const int rows;
    const std::shared_ptr<const KernelSource> source;
  };

  AlternativesTest() {
    set_compile_mode(CompileMode::allow);
    fake_cuda().capture_status = 0;
    fake_cuda().failures.clear();
    fake_cuda().calls.clear();
    set_log_hook([this](LogLevel level, std::string_view text) {
      const std::lock_guard lock(mutex);
      if (level == LogLevel::warn) warnings.emplace_back(text);
    });
    make();
  }
  ~AlternativesTest() override {
    set_open(true);
    kernel.reset();
    set_log_hook({});
    set_compile_mode(std::nullopt);
    fake_cuda().capture_status = 0;
    fake_cuda().failures.clear();
  }

  void make(const Program& program = sum_in_one()) {
    kernel.emplace(program, choice, [this](const Program& of) {
      return [this, of](const Schedule& schedule, std::span<const Schedule>) {
        return build(of, schedule);
      };
    });
  }
  Dispatcher::Kernel build(const Program& program, const Schedule& schedule) {
    std::unique_lock lock(mutex);
    ++builds[program.name()];
    if (program.name() != "sum_in_one") changed.wait(lock, [&] { return is_open; });
    if (unfit.contains({program.name(), schedule.tiles.at("rows")}))
      throw CompileError({.what = "it spills", .why = "so it is"});
    return std::make_shared<Made>(*this, program, schedule);
  }
  void set_open(bool is) {
    const std::lock_guard lock(mutex);
    is_open = is;
    changed.notify_all();
  }

  static std::array<TensorView, 2> tensors_of(std::int64_t rows) {
    const auto at = [](std::uintptr_t address) { return reinterpret_cast<void*>(address); };
    return {TensorView::dense(at(0x1000), DType::f32, {rows}, 0),
            TensorView::dense(at(0x2000), DType::f32, {rows, 100}, 0)};
  }
  /// The names of the kernels.
  std::vector<std::string> launch(std::int64_t rows) {
    launched.clear();
    kernel->launch(tensors_of(rows), {});
    std::vector<std::string> names;
    for (const Launched& one : launched) names.push_back(one.kernel);
    return names;
  }

  static auto by_one() { return ElementsAre("sum_in_one"); }
  static auto by_module() { return ElementsAre("sum_of_split", "sum_of_sums"); }

  std::mutex mutex;
  std::condition_variable changed;
  bool is_open = true;
  std::map<std::string, int> builds;
  std::set<std::pair<std::string, int>> unfit;
  std::set<std::string> unloadable;
  std::atomic<int> loads = 0;
  std::chrono::milliseconds loading_takes{0};
  std::vector<Launched> launched;
  std::vector<std::string> warnings;
  const std::shared_ptr<ByRows> choice = std::make_shared<ByRows>();
  std::optional<Dispatcher> kernel;
};

constexpr std::int64_t few = 5, many = 5000;

TEST_F(AlternativesTest, RunWithTheProgramsArgumentsAndMemoryOfTheStream) {
  EXPECT_THAT(launch(few), by_module()) << "nothing else is there";
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<void*>(address); };
  EXPECT_EQ(launched[0].tensors[0], at(0x2000));
  EXPECT_EQ(launched[1].tensors[1], at(0x1000));
  EXPECT_EQ(launched[0].tensors[1], launched[1].tensors[0]);
  EXPECT_EQ(
      reinterpret_cast<std::uintptr_t>(launched[0].tensors[1]) % ModulePlan::workspace_alignment,
      0U);
  EXPECT_EQ(fake_cuda().calls["cuMemAllocFromPoolAsync"], 1);
  EXPECT_EQ(fake_cuda().calls["cuMemFreeAsync"], 1);
  EXPECT_THAT(launch(many), by_one());
  EXPECT_EQ(fake_cuda().calls["cuMemAllocFromPoolAsync"], 1);
}

TEST_F(AlternativesTest, TakeTheCallersMemory) {
  struct Own final : Workspace {
    void* reserve(std::size_t bytes) override {
      EXPECT_EQ(bytes, 256U);
      return reinterpret_cast<void*>(0x7000);
    }
  } own;
  kernel->launch(tensors_of(few), {}, nullptr, own);
  EXPECT_EQ(launched[0].tensors[1], reinterpret_cast<void*>(0x7000));
  EXPECT_EQ(fake_cuda().calls["cuMemAllocFromPoolAsync"], 0);
}

TEST_F(AlternativesTest, WithoutMemoryNothingIsLaunched) {
  fake_cuda().failures["cuMemAllocFromPoolAsync"] = 2;
  EXPECT_THAT(message_of<DeviceError>([&] { launch(few); }),
              HasSubstr("the allocation of 256 bytes for a workspace on GPU 0"));
  EXPECT_THAT(launched, IsEmpty());
}

TEST_F(AlternativesTest, AKernelServesUntilTheyAreBuiltAndLoaded) {
  EXPECT_THAT(launch(many), by_one());
  set_open(false);
  EXPECT_THAT(launch(few), by_one());
  EXPECT_THAT(launch(few), by_one());
  EXPECT_TRUE(kernel->is_building());
  set_open(true);
  kernel->wait_until_built();
  EXPECT_EQ(loads, 2);
  EXPECT_THAT(launch(few), by_module());
  EXPECT_EQ(builds["sum_of_split"], 1);
  EXPECT_THAT(warnings, IsEmpty());
}

TEST_F(AlternativesTest, NoKernelIsBuiltForLaunchesThatTheyTakeOver) {
  choice->has_two_lists = true;
  EXPECT_THAT(launch(many), by_one());
  set_open(false);
  EXPECT_THAT(launch(few), by_one());
  EXPECT_EQ(launched[0].tile_rows, tile_for_many);
  set_open(true);
  kernel->wait_until_built();
  EXPECT_EQ(builds["sum_in_one"], 1);
  EXPECT_THAT(launch(few), by_module());
}

TEST_F(AlternativesTest, AKernelIsBuiltWhereTheyCannotBe) {
  choice->has_two_lists = true;
  EXPECT_THAT(launch(many), by_one());
  unfit = {{"sum_of_split", test::sum_rows_schedule(0).tiles.at("rows")}};
  for (int i = 0; i < 2; ++i) {  // the second launch knows that there will be no module
    EXPECT_THAT(launch(few), by_one());
    EXPECT_EQ(launched[0].tile_rows, tile_for_many);
    kernel->wait_until_built();
  }
  EXPECT_THAT(launch(few), by_one());
  EXPECT_EQ(launched[0].tile_rows, tile_for_few);
}

TEST_F(AlternativesTest, EagerLaunchesWait) {
  EXPECT_THAT(launch(many), by_one());
  set_compile_mode(CompileMode::eager);
  EXPECT_THAT(launch(few), by_module());
}

TEST_F(AlternativesTest, AKernelUnderAScheduleThatDoesNotFitGivesWayToTheNext) {
  EXPECT_THAT(launch(few), by_module());
  EXPECT_EQ(launched[1].tile_rows, 32);
  make();
  unfit = {{"sum_of_sums", 32}};
  EXPECT_THAT(launch(few), by_module());
  EXPECT_EQ(launched[1].tile_rows, 16);
}

TEST_F(AlternativesTest, WhatCannotBeBuiltIsNotTriedAgain) {
  unfit = {{"sum_of_split", 16}};
  EXPECT_THAT(launch(few), by_one());
  EXPECT_THAT(launch(few), by_one());
  EXPECT_EQ(builds["sum_of_split"], 1);
  EXPECT_EQ(message_of<CompileError>([&] { kernel->prepare_alternative(3, -1); }),
            "it spills\n  why: so it is");
}

TEST_F(AlternativesTest, WhereTheyCannotBeLoadedAKernelServesOnAndOneLineSaysSo) {
  EXPECT_THAT(launch(many), by_one());
  unloadable = {"sum_of_sums"};
  EXPECT_THAT(launch(few), by_one());
  kernel->wait_until_built();
  EXPECT_THAT(launch(few), by_one());
  EXPECT_THAT(launch(few), by_one());
  EXPECT_THAT(warnings, ElementsAre(AllOf(HasSubstr("by one kernel alone"),
                                          HasSubstr("the code of a kernel"))));
}

TEST_F(AlternativesTest, NoLaunchLoadsWhatTheBackgroundIsLoading) {
  EXPECT_THAT(launch(many), by_one());
  loading_takes = 50ms;
  EXPECT_THAT(launch(few), by_one());
  while (loads == 0) std::this_thread::sleep_for(1ms);
  EXPECT_THAT(launch(few), by_one());
  kernel->wait_until_built();
  EXPECT_THAT(launch(few), by_module());
  EXPECT_EQ(loads, 2);
}

TEST_F(AlternativesTest, WhatTheBackgroundCouldNotLoadALaunchDoes) {
  EXPECT_THAT(launch(many), by_one());
  unloadable = {"sum_of_sums"};
  EXPECT_THAT(launch(few), by_one());
  kernel->wait_until_built();
  unloadable = {};
  EXPECT_THAT(launch(few), by_module());
}

TEST_F(AlternativesTest, ACaptureWaitsForWhatIsBeingBuiltAndBeginsNothing) {
  EXPECT_THAT(launch(many), by_one());
  fake_cuda().capture_status = 1;
  EXPECT_THAT(launch(few), by_one());
  EXPECT_EQ(builds["sum_of_split"], 0);
  fake_cuda().capture_status = 0;
  set_open(false);
  EXPECT_THAT(launch(few), by_one());
  fake_cuda().capture_status = 1;
  std::thread opener([&] {
    std::this_thread::sleep_for(20ms);
    set_open(true);
  });
  EXPECT_THAT(launch(few), by_module());
  opener.join();
}

TEST_F(AlternativesTest, WhatIsPreparedIsThereAlsoForACaptureAndAnotherChoice) {
  EXPECT_EQ(kernel->built_alternative(3), nullptr);
  const AlternativeModule& made = kernel->prepare_alternative(3, 0);
  EXPECT_EQ(made.module().kernels().size(), 2U);
  EXPECT_EQ(kernel->built_alternative(3), &made);
  EXPECT_EQ(loads, 2);
  kernel->set_choice(std::make_shared<ByRows>());
  fake_cuda().capture_status = 1;
  EXPECT_THAT(launch(few), by_module());
  EXPECT_EQ(builds["sum_of_split"], 1);
}

TEST_F(AlternativesTest, ALayoutErrorNamesTheProgramsTensor) {
  auto tensors = tensors_of(few);
  tensors[1].strides[1] = 2;
  try {
    kernel->launch(tensors, {});
    FAIL();
  } catch (const LayoutError& error) {
    EXPECT_EQ(error.tensor(), 1);
    EXPECT_THAT(error.what(), HasSubstr("the last dimension of x"));
  }
  EXPECT_THAT(launched, IsEmpty());
}

TEST_F(AlternativesTest, ArgumentsOfAnotherNumberAreForAKernelToRefuse) {
  const auto tensors = tensors_of(few);
  kernel->launch(std::span(tensors).first(1), {});
  EXPECT_EQ(launched.size(), 1U);
  EXPECT_EQ(launched[0].kernel, "sum_in_one");
}

TEST_F(AlternativesTest, TakeNothingThatTheProgramDoesNot) {
  make(sum_in_one("z"));
  EXPECT_EQ(message_of<SpecError>([&] { kernel->prepare_alternative(3, -1); }),
            "the module sum_rows in place of the program sum_in_one\n"
            "  why: it takes x, which the program does not\n"
            "  try: a module whose arguments have the names of the program's");
}

TEST_F(AlternativesTest, ThreadsBuildOneOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] { (void)kernel->prepare_alternative(3, -1); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(builds["sum_of_split"], 1);
}

TEST_F(AlternativesTest, AChildOfAForkBuildsThem) {
  EXPECT_THAT(launch(many), by_one());
  EXPECT_THAT(launch(few), by_one());
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 1000; ++i) {
      if (launch(few).size() == 2) _exit(0);
      kernel->wait_until_built();
    }
    _exit(1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(AlternativesTest, MayBeBuiltWhenTheDispatcherIsGone) {
  EXPECT_THAT(launch(many), by_one());
  set_open(false);
  EXPECT_THAT(launch(few), by_one());
  kernel.reset();
  set_open(true);
}

}  // namespace
}  // namespace flashcore
