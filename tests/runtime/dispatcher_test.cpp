// Which kernel a launch runs: at once what it wants where that is there, and what else where not.
#include "runtime/dispatcher.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dsl/flashcore.h"
#include "runtime/compile_mode.h"
#include "runtime/log.h"
#include "tests/runtime/support/expectations.h"
#include "tests/runtime/support/fake_cuda.h"
#include "tests/runtime/support/timing.h"

namespace flashcore {
namespace {

using namespace std::chrono_literals;
using test::fake_cuda;
using test::message_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Program copy_program() {
  ProgramBuilder b("copy");
  const Extent length("N");
  (void)b.input("starts", DType::i32, {length + 1});
  const Tensor x = b.input("x", DType::f32, {length, 64});
  const Tensor y = b.output("y", DType::f32, {length, 64});
  const Axis rows = b.parallel_tiles("rows", length), d = b.whole("d", 64);
  store(y(rows, d), load(x(rows, d)));
  return b.finish();
}

/// Schedules of the tests differ in their tiles alone, which are their names.
Schedule named(int name) { return {.tiles = {{"rows", name}}}; }
int name_of(const Schedule& schedule) { return schedule.tiles.at("rows"); }

/// Launches shorter than the first bound want the first list, and so on.
class ByLength final : public ScheduleChoice {
 public:
  struct Step {
    std::int64_t below;
    std::vector<int> list;
  };
  explicit ByLength(std::vector<Step> steps, std::string extent = "N")
      : steps_(std::move(steps)), extents_{std::move(extent)} {}
  [[nodiscard]] const std::vector<std::string>& extents() const override { return extents_; }
  std::size_t choose(std::span<const std::int64_t> lengths) override { return find(lengths); }
  [[nodiscard]] std::size_t find(std::span<const std::int64_t> lengths) const override {
    std::size_t step = 0;
    while (lengths[0] >= steps_[step].below) ++step;
    return step;
  }
  [[nodiscard]] std::vector<Schedule> schedules(std::size_t number) const override {
    std::vector<Schedule> list;
    for (const int name : steps_.at(number).list) list.push_back(named(name));
    return list;
  }
  [[nodiscard]] std::string describe(std::span<const std::int64_t> lengths) const override {
    return fmt::format("{} rows", lengths[0]);
  }
  [[nodiscard]] std::string preparation(std::span<const std::int64_t>) const override {
    return "prepare it";
  }

 private:
  std::vector<Step> steps_;
  std::vector<std::string> extents_;
};

/// A compiler and the kernels that it makes, as a test wants them.
struct Workshop {
  struct Made final : Launchable {
    Made(Workshop& shop, int name) : shop(shop), name(name) {}
    [[nodiscard]] std::shared_ptr<const KernelSource> shared_source() const override { return {}; }
    void prepare(int /*device*/) override {
      if (shop.unloadable.contains(name)) throw DeviceError({.what = "no memory", .why = "full"});
      ++shop.loads;
    }
    void launch(std::span<const TensorView> /*tensors*/, std::span<const ScalarValue> /*scalars*/,
                CudaStream /*stream*/) override {
      shop.last = name;
    }
    Workshop& shop;
    const int name;
  };

  Dispatcher::Builds compiler() {
    return [this](const Program& /*program*/) { return build(); };
  }
  Dispatcher::Build build() {
    return [this](const Schedule& schedule, std::span<const Schedule> safer) -> Dispatcher::Kernel {
      const int name = name_of(schedule);
      std::unique_lock lock(mutex);
      most_at_once = std::max(most_at_once, ++at_once);
      ++builds[name];
      rest[name] = safer.size();
      open.wait(lock, [&] { return !closed; });
      lock.unlock();
      std::this_thread::sleep_for(takes);
      lock.lock();
      --at_once;
      if (missing.contains(name)) throw CacheMissError({.what = "missing", .why = "no cache"});
      if (unfit.contains(name))
        throw CompileError({.what = fmt::format("{} spills", name), .why = "so it is"});
      return std::make_shared<Made>(*this, name);
    };
  }
  void set_closed(bool is) {
    const std::lock_guard lock(mutex);
    closed = is;
    open.notify_all();
  }
  int built(int name) {
    const std::lock_guard lock(mutex);
    return builds[name];
  }

  std::mutex mutex;
  std::condition_variable open;
  bool closed = false;
  std::chrono::milliseconds takes{0};
  std::set<int> unfit, missing, unloadable;
  std::map<int, int> builds;
  std::map<int, std::size_t> rest;
  int at_once = 0, most_at_once = 0;
  std::atomic<int> last = 0, loads = 0;
};

class DispatcherTest : public testing::Test {
 protected:
  DispatcherTest() {
    set_compile_mode(CompileMode::allow);
    fake_cuda().capture_status = 0;
    fake_cuda().recording = true;
    set_log_hook([this](LogLevel level, std::string_view text) {
      const std::lock_guard lock(logging_);
      if (level == LogLevel::warn) warnings_.emplace_back(text);
    });
  }
  ~DispatcherTest() override {
    shop.set_closed(false);
    kernel.reset();
    set_log_hook({});
    set_compile_mode(std::nullopt);
    fake_cuda().capture_status = 0;
  }

  void make(std::vector<ByLength::Step> steps) {
    kernel.emplace(copy_program(), std::make_shared<ByLength>(std::move(steps)), shop.compiler());
  }
  int launch(std::int64_t length, int device = 0) {
    const auto at = [](std::uintptr_t address) { return reinterpret_cast<void*>(address); };
    const std::array<TensorView, 3> tensors{
        TensorView::dense(at(0x1000), DType::i32, {length + 1}, device),
        TensorView::dense(at(0x2000), DType::f32, {length, 64}, device),
        TensorView::dense(at(0x3000), DType::f32, {length, 64}, device)};
    kernel->launch(tensors, {}, nullptr);
    return shop.last;
  }
  void finish() {
    if (kernel) kernel->wait_until_built();
  }

  /// Once there are so many: those of the background come when its locks are open.
  std::vector<std::string> warnings(std::size_t count) {
    for (int i = 0; i < 1000; ++i) {
      {
        const std::lock_guard lock(logging_);
        if (warnings_.size() >= count) return warnings_;
      }
      std::this_thread::sleep_for(1ms);
    }
    return {};
  }

  Workshop shop;
  std::optional<Dispatcher> kernel;

 private:
  std::mutex logging_;
  std::vector<std::string> warnings_;
};

constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();

TEST_F(DispatcherTest, TheFirstLaunchWaitsForItsOwn) {
  make({{100, {1, 11}}, {any, {2, 22, 222}}});
  shop.takes = 20ms;
  EXPECT_EQ(launch(500), 2);
  EXPECT_EQ(shop.rest[2], 2U);
  EXPECT_EQ(shop.built(1), 0);
}

TEST_F(DispatcherTest, AnotherServesUntilItIsBuiltAndALaterLaunchTakesIt) {
  make({{100, {1}}, {any, {2}}});
  EXPECT_EQ(launch(500), 2);
  shop.set_closed(true);
  EXPECT_EQ(launch(50), 2);
  EXPECT_EQ(launch(50), 2);
  EXPECT_TRUE(kernel->is_building());
  shop.set_closed(false);
  finish();
  EXPECT_FALSE(kernel->is_building());
  EXPECT_EQ(launch(50), 1);
  EXPECT_EQ(launch(500), 2);
  EXPECT_EQ(shop.built(1), 1);
  EXPECT_THAT(warnings(0), testing::IsEmpty());
}

TEST_F(DispatcherTest, ASchedulesOwnListComesBeforeTheNearestLengths) {
  make({{100, {1}}, {1000, {2}}, {2000, {3, 1}}, {4000, {4}}, {any, {5}}});
  for (const std::int64_t length : {50, 500, 8000}) {
    set_compile_mode(CompileMode::eager);
    (void)launch(length);
  }
  set_compile_mode(CompileMode::allow);
  shop.set_closed(true);
  EXPECT_EQ(launch(1500), 1) << "of its list, and built";
  EXPECT_EQ(launch(3900), 5) << "8000 is a factor of two away, 500 of eight";
  shop.set_closed(false);
  finish();
  EXPECT_EQ(launch(1500), 3);
  EXPECT_EQ(launch(3900), 4);
}

TEST_F(DispatcherTest, EqualSchedulesAreOneKernelAndEqualListsOneChoice) {
  make({{100, {1, 2}}, {200, {1, 3}}, {any, {1, 2}}});
  for (const std::int64_t length : {50, 150, 250}) EXPECT_EQ(launch(length), 1);
  EXPECT_FALSE(kernel->is_building());
  EXPECT_EQ(shop.built(1), 1);
}

TEST_F(DispatcherTest, WhatDoesNotFitGivesWayToTheNextAndIsNotTriedAgain) {
  make({{100, {1, 2, 3}}, {any, {1, 3}}});
  shop.unfit = {1, 2};
  EXPECT_EQ(launch(50), 3);
  EXPECT_EQ(launch(500), 3);
  EXPECT_EQ(shop.built(1), 1);
  EXPECT_FALSE(kernel->is_building());
}

TEST_F(DispatcherTest, WhereNoneFitsWhatServedServesOnAndOneLineSaysSo) {
  make({{100, {1, 2}}, {any, {3}}});
  EXPECT_EQ(launch(500), 3);
  shop.unfit = {1, 2};
  EXPECT_EQ(launch(50), 3);
  finish();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(launch(50 + i), 3);
  finish();
  EXPECT_EQ(shop.built(1), 1);
  EXPECT_THAT(warnings(1),
              ElementsAre(AllOf(HasSubstr("copy: a kernel for other lengths serves on"),
                                HasSubstr("1 spills"))));
}

TEST_F(DispatcherTest, AFirstLaunchThatFailsSaysWhyAndTheNextTriesAgain) {
  make({{any, {1, 2}}});
  shop.unfit = {1, 2};
  EXPECT_THAT(message_of<CompileError>([&] { launch(50); }), HasSubstr("1 spills"));
  shop.unfit = {1};
  EXPECT_EQ(launch(50), 2);
}

TEST_F(DispatcherTest, WhatCannotBeLoadedDoesNotTakeOver) {
  make({{100, {1}}, {any, {2}}});
  EXPECT_EQ(launch(500), 2);
  shop.unloadable = {1};
  (void)launch(50);
  finish();
  EXPECT_EQ(launch(50), 2);
  EXPECT_EQ(launch(50), 2);
  EXPECT_THAT(warnings(1), ElementsAre(HasSubstr("no memory")));
}

TEST_F(DispatcherTest, EagerLaunchesWait) {
  make({{100, {1}}, {any, {2}}});
  set_compile_mode(CompileMode::eager);
  shop.takes = 20ms;
  EXPECT_EQ(launch(500), 2);
  EXPECT_EQ(launch(50), 1);
}

TEST_F(DispatcherTest, WhereCompilingIsForbiddenAMissIsAnErrorAtEveryLaunch) {
  make({{100, {1}}, {any, {2}}});
  set_compile_mode(CompileMode::forbid);
  EXPECT_EQ(launch(500), 2);
  shop.missing = {1};
  EXPECT_THROW(launch(50), CacheMissError);
  EXPECT_THROW(launch(50), CacheMissError);
  shop.missing = {};
  EXPECT_EQ(launch(50), 1) << "the cache has been filled meanwhile";
  EXPECT_FALSE(kernel->is_building());
}

TEST_F(DispatcherTest, NothingIsCompiledOrLoadedDuringACapture) {
  make({{100, {1}}, {1000, {2}}, {any, {3}}});
  fake_cuda().capture_status = 1;
  EXPECT_EQ(message_of<NotReadyError>([&] { launch(500); }),
            "copy: the kernel for 500 rows is not compiled, and the stream is being captured\n"
            "  why: compiling during the capture of a graph would take a second, and loading code "
            "is not allowed then\n"
            "  try: prepare it, or a call with arrays of these shapes, before the capture begins");
  fake_cuda().capture_status = 0;
  EXPECT_EQ(launch(500), 2);
  fake_cuda().capture_status = 1;
  EXPECT_THROW(launch(50), NotReadyError);
  EXPECT_THROW(launch(50), NotReadyError) << "asking does not help";
  EXPECT_EQ(shop.built(1), 0);

  fake_cuda().capture_status = 0;
  shop.set_closed(true);
  EXPECT_EQ(launch(50), 2);
  fake_cuda().capture_status = 1;
  EXPECT_EQ(launch(50), 2) << "as in the launch before";
  EXPECT_EQ(launch(50), 2) << "and again, without another warning";
  EXPECT_THAT(warnings(1), ElementsAre(HasSubstr("a graph keeps a kernel for other lengths")));
  shop.unloadable = {1};
  shop.set_closed(false);
  finish();
  EXPECT_EQ(launch(50), 2) << "it is compiled, and not loaded";
  shop.unloadable = {};
  const int loads = shop.loads;
  EXPECT_EQ(launch(50), 2) << "asking does not help";
  EXPECT_EQ(shop.loads, loads);
  fake_cuda().capture_status = 0;
  EXPECT_EQ(launch(50), 1);
  fake_cuda().capture_status = 1;
  EXPECT_EQ(launch(50), 1);
}

TEST_F(DispatcherTest, ABetterKernelIsLoadedBesideLaunchesAndNotByOne) {
  make({{100, {1}}, {any, {2}}});
  EXPECT_EQ(launch(500), 2);
  const int exchanges = fake_cuda().calls["cuThreadExchangeStreamCaptureMode"];
  (void)launch(50);
  finish();
  EXPECT_EQ(shop.loads, 1);
  EXPECT_EQ(fake_cuda().calls["cuThreadExchangeStreamCaptureMode"], exchanges + 2)
      << "a stream that is captured meanwhile does not mind";
  fake_cuda().capture_status = 1;
  EXPECT_EQ(launch(50), 1) << "nor does its capture want the kernel to be loaded before";
  EXPECT_EQ(shop.loads, 1);
}

TEST_F(DispatcherTest, WhatTheBackgroundCouldNotLoadALaunchDoes) {
  make({{100, {1}}, {any, {2}}});
  EXPECT_EQ(launch(500), 2);
  shop.unloadable = {1};
  (void)launch(50);
  finish();
  shop.unloadable = {};
  EXPECT_EQ(launch(50), 1);
  EXPECT_THAT(warnings(0), testing::IsEmpty());
}

TEST_F(DispatcherTest, WhatIsPreparedIsThereAlsoForACapture) {
  make({{100, {1}}, {1000, {2}}, {any, {3, 4}}});
  shop.unfit = {3};
  for (std::size_t list = 0; list < 3; ++list)
    kernel->prepare(kernel->choice()->schedules(list), 0);
  const auto builds = shop.builds;
  EXPECT_EQ(shop.loads, 3);
  fake_cuda().capture_status = 1;
  EXPECT_EQ(launch(50), 1);
  fake_cuda().capture_status = 0;
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    const auto length = static_cast<std::int64_t>(random() % 3000);
    EXPECT_EQ(launch(length), length < 100 ? 1 : length < 1000 ? 2 : 4);
  }
  EXPECT_FALSE(kernel->is_building());
  EXPECT_EQ(shop.builds, builds);
  EXPECT_THROW(kernel->prepare({named(3)}, 0), CompileError);
  EXPECT_EQ(kernel->built_kernel({named(3), named(5)}), nullptr);
  EXPECT_NE(kernel->built_kernel({named(3), named(4)}), nullptr);
  const Dispatcher::Kernel five = kernel->kernel({named(5), named(3)});
  EXPECT_EQ(kernel->built_kernel({named(5), named(3)}), five);
}

TEST_F(DispatcherTest, AnotherChoiceKeepsWhatIsBuilt) {
  make({{any, {1}}});
  EXPECT_EQ(launch(50), 1);
  kernel->add(named(7), std::make_shared<Workshop::Made>(shop, 7));
  kernel->set_choice(
      std::make_shared<ByLength>(std::vector<ByLength::Step>{{10, {7}}, {100, {1}}, {any, {2}}}));
  EXPECT_EQ(launch(5), 7);
  EXPECT_EQ(launch(50), 1);
  EXPECT_EQ(shop.built(7), 0);
  EXPECT_EQ(shop.built(1), 1);
  EXPECT_THAT(message_of<SpecError>([&] {
                kernel->set_choice(
                    std::make_shared<ByLength>(std::vector<ByLength::Step>{{any, {1}}}, "M"));
              }),
              HasSubstr("a choice by the extent M"));
  EXPECT_EQ(launch(50), 1);
}

TEST_F(DispatcherTest, TensorsOfAnotherProgramAreTheLaunchsToRefuse) {
  make({{any, {1}}});
  kernel->launch({}, {}, nullptr);
  EXPECT_EQ(shop.last, 1);
}

TEST_F(DispatcherTest, ThreadsBuildEveryKernelOnceAndTheBackgroundOneAtATime) {
  std::vector<ByLength::Step> steps;
  for (int i = 1; i <= 8; ++i) steps.push_back({i * 100, {i}});
  make(steps);
  EXPECT_EQ(launch(50), 1);
  shop.takes = 5ms;
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (unsigned t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 2000; ++i) (void)launch(static_cast<std::int64_t>(random() % 800));
    });
  }
  for (std::thread& thread : threads) thread.join();
  finish();
  EXPECT_EQ(shop.most_at_once, 1);
  for (int i = 1; i <= 8; ++i) {
    EXPECT_EQ(launch(i * 100 - 50), i);
    EXPECT_EQ(shop.built(i), 1);
  }
}

TEST_F(DispatcherTest, ThreadsThatWaitForOneKernelBuildItOnce) {
  make({{any, {1}}});
  shop.takes = 20ms;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) threads.emplace_back([&] { EXPECT_EQ(launch(50), 1); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shop.built(1), 1);
}

TEST_F(DispatcherTest, MayEndBeforeWhatItBuilds) {
  make({{100, {1}}, {200, {2}}, {any, {3}}});
  (void)launch(500);
  shop.set_closed(true);
  (void)launch(50);
  while (shop.built(1) == 0) std::this_thread::sleep_for(1ms);
  (void)launch(150);
  kernel.reset();
  shop.set_closed(false);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(shop.built(2), 0) << "nobody waits for it";
}

TEST_F(DispatcherTest, AChildOfAForkBuildsWhatItsParentWaitsFor) {
  make({{100, {1}}, {200, {2}}, {any, {3}}});
  (void)launch(500);
  shop.takes = 50ms;
  (void)launch(50);
  (void)launch(150);
  const pid_t child = fork();
  if (child == 0) {
    kernel->wait_until_built();
    _exit(launch(50) == 1 && launch(150) == 2 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  finish();
  EXPECT_EQ(launch(150), 2);
}

TEST_F(DispatcherTest, IsFast) {
  make({{100, {1}}, {1000, {2}}, {any, {3}}});
  for (const std::int64_t length : {50, 500, 5000}) (void)launch(length);
  finish();
  for (const std::int64_t length : {50, 500, 5000}) (void)launch(length);
  std::int64_t length = 0;
  const double time = test::fastest_nanoseconds([&] { (void)launch(++length % 5000); });
  fmt::print("dispatch of a new length: {:.0f} ns\n", time);
  EXPECT_LT(time, test::limit_in_release(300));
}

}  // namespace
}  // namespace flashcore
