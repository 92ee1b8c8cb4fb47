#include "runtime/events.h"

#include <stdexcept>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "tests/runtime/cache/cache_fixture.h"
#include "tests/runtime/support/loaded_kernel.h"

namespace flashcore {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class Listener {
 public:
  Listener() {
    set_event_hook([this](const KernelEvent& event) {
      events.push_back(event);
      kinds.emplace_back(name_of(event.kind));
    });
  }
  ~Listener() { set_event_hook({}); }

  std::vector<KernelEvent> events;
  std::vector<std::string> kinds;
};

using CacheEvents = test::KernelCacheTest;

TEST_F(CacheEvents, TellWhereAKernelWasFound) {
  const Listener listener;
  {
    KernelCache cache({.directory = directory});
    const auto held = get(cache);
    get(cache);
    EXPECT_THROW(
        (void)cache.get(test::key_of("b"), []() -> Cubin { throw std::runtime_error("refused"); }),
        std::runtime_error);
  }
  KernelCache other({.directory = directory});
  get(other);
  EXPECT_THAT(listener.kinds, ElementsAre("compiled", "memory", "failed", "directory"));
  EXPECT_EQ(listener.events[0].kernel, "scale for sm_80");
  EXPECT_EQ(listener.events[0].bytes, 1001U);
  EXPECT_GT(listener.events[0].ms, 0);
  EXPECT_EQ(listener.events[1].bytes, 0U);
  EXPECT_EQ(listener.events[3].bytes, 1001U);
}

TEST_F(CacheEvents, AHookMayUseTheCacheAndThrow) {
  KernelCache cache({.directory = directory});
  int told = 0;
  set_event_hook([&](const KernelEvent& event) {
    if (++told == 1) get(cache, "b");  // no lock is held
    throw std::runtime_error(event.kernel);
  });
  EXPECT_NO_THROW(get(cache));
  set_event_hook({});
  EXPECT_EQ(told, 2);
  get(cache, "c");
  EXPECT_EQ(told, 2);
}

using ModuleEvents = test::LoadedKernelTest;

TEST_F(ModuleEvents, TellWhenCodeIsOnAGpu) {
  const Listener listener;
  test::fake_cuda().push_new_context(0);
  kernel.prepare(0);
  kernel.launch(rows(5, 0), factor);
  EXPECT_THAT(listener.kinds, ElementsAre("loaded"));
  EXPECT_EQ(listener.events[0].kernel, "scale for sm_80");
  EXPECT_GT(listener.events[0].bytes, 0U);
  for (std::size_t i = 0; i <= LoadedCode::max_unused + 1; ++i) prepared(std::to_string(i));
  EXPECT_EQ(listener.kinds.back(), "unloaded");
}

}  // namespace
}  // namespace flashcore
