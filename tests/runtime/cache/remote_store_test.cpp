// The store that machines share, with a thread that answers in place of a network.
#include "runtime/cache/remote_store.h"

#include <chrono>
#include <functional>
#include <thread>

#include <gmock/gmock.h>

#include "dsl/error.h"
#include "runtime/bundle/bundle.h"
#include "runtime/cache/stored_kernel.h"
#include "tests/runtime/cache/cache_fixture.h"
#include "tests/runtime/support/scoped_environment.h"

namespace flashcore {
namespace {

using namespace std::chrono_literals;
using test::ScopedEnvironment;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// What a network does with a job: an object, none, or an exception for what fails.
using Network = std::function<std::optional<std::string>(const RemoteStore::Job&)>;

class Server {
 public:
  Server(std::shared_ptr<RemoteStore> store, Network network)
      : store_(std::move(store)), thread_([this, network = std::move(network)] {
          while (!store_->is_closed()) {
            const auto job = store_->next(10s);
            if (!job) continue;
            try {
              store_->answer(job->id, network(*job), "");
            } catch (const std::exception& error) {
              store_->answer(job->id, std::nullopt, error.what());
            }
          }
        }) {}
  ~Server() {
    store_->close();
    thread_.join();
  }

 private:
  std::shared_ptr<RemoteStore> store_;
  std::thread thread_;
};

class RemoteStoreTest : public test::KernelCacheTest {
 protected:
  static CacheKey key_by(const char* compiler) {
    return make_key(test::scale_kernel(), "sm_80", {}, {.version = {13, 0}, .digest = compiler});
  }
  static Cubin elf() { return {.bytes = test::empty_code(100), .resources = {}}; }
  static RemoteSettings settings(bool writes = false) {
    return {.url = "test://kernels", .writes = writes, .timeout = 5s};
  }
  static KernelCache::Outcome get(KernelCache& cache, const CacheKey& key,
                                  Compiler compiler = Compiler::this_one) {
    return cache.get(
        key, [] { return elf(); }, compiler);
  }

  // A network that keeps objects.
  Network keeping() {
    return [this](const RemoteStore::Job& job) -> std::optional<std::string> {
      const std::lock_guard lock(mutex);
      asked.push_back((job.writes ? "write " : "read ") + job.object.substr(0, 4));
      if (job.writes) {
        objects[job.object] = job.content;
        return std::nullopt;
      }
      const auto found = objects.find(job.object);
      return found == objects.end() ? std::nullopt : std::optional(found->second);
    };
  }
  // Fills the store with the kernel of that key.
  void fill(const CacheKey& key, RemoteSettings with) {
    with.writes = true;
    const auto store = std::make_shared<RemoteStore>(std::move(with));
    const Server server(store, keeping());
    KernelCache cache({.directory = ""});
    cache.set_remote(store);
    get(cache, key);
    EXPECT_TRUE(store->wait_until_written(10s));
    asked.clear();
  }

  std::mutex mutex;
  std::map<std::string, std::string> objects;
  std::vector<std::string> asked;
};

TEST_F(RemoteStoreTest, WhatOneMachineCompilesAnotherLoads) {
  fill(key_by("one"), settings());
  EXPECT_THAT(objects, SizeIs(2));  // by the whole key, and by what was asked for alone
  const auto store = std::make_shared<RemoteStore>(settings());
  const Server server(store, keeping());
  KernelCache cache({.directory = directory});
  cache.set_remote(store);
  const KernelCache::Outcome outcome = get(cache, key_by("one"));
  EXPECT_TRUE(outcome.from_cache);
  EXPECT_EQ(outcome.cubin->bytes, elf().bytes);
  EXPECT_EQ(cache.statistics().remote, 1U);
  EXPECT_THAT(asked, SizeIs(1));
  KernelCache later({.directory = directory});  // it is kept like one that was compiled
  EXPECT_TRUE(get(later, key_by("one")).from_cache);
  EXPECT_THAT(warnings, IsEmpty());
}

TEST_F(RemoteStoreTest, AnyCompilersKernelServesWhereNothingCanBeCompiled) {
  fill(key_by("one"), settings());
  const auto store = std::make_shared<RemoteStore>(settings());
  const Server server(store, keeping());
  KernelCache cache({.directory = ""});
  cache.set_remote(store);
  EXPECT_FALSE(get(cache, key_by("two")).from_cache);
  KernelCache frozen({.directory = ""});
  frozen.set_remote(std::make_shared<RemoteStore>(settings()));
  const Server other(frozen.remote(), keeping());
  EXPECT_TRUE(get(frozen, key_by("two"), Compiler::any).from_cache);
}

TEST_F(RemoteStoreTest, ReadersWriteNothing) {
  const auto store = std::make_shared<RemoteStore>(settings());
  const Server server(store, keeping());
  KernelCache cache({.directory = ""});
  cache.set_remote(store);
  get(cache, key_by("one"));
  EXPECT_TRUE(store->wait_until_written(10s));
  EXPECT_THAT(objects, IsEmpty());
}

TEST_F(RemoteStoreTest, WhatIsMissingIsAskedForOnce) {
  for (const auto& [hold, times] : {std::pair{60s, 1U}, std::pair{0s, 2U}}) {
    asked.clear();
    RemoteSettings with = settings();
    with.misses_hold = hold;
    const auto store = std::make_shared<RemoteStore>(std::move(with));
    const Server server(store, keeping());
    EXPECT_FALSE(store->fetch(key_by("one"), Compiler::this_one));
    EXPECT_FALSE(store->fetch(key_by("one"), Compiler::this_one));
    EXPECT_EQ(asked.size(), times);
  }
}

TEST_F(RemoteStoreTest, ASlowStoreIsNotWaitedForAndThenLeftAlone) {
  RemoteSettings hasty = settings();
  hasty.timeout = 20ms;
  RemoteStore store(std::move(hasty));  // nobody answers
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(store.fetch(key_by("one"), Compiler::this_one));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
  EXPECT_THAT(warnings, ElementsAre("the store test://kernels is left alone for 60 s, as it failed "
                                    "3 times: no answer in 20 ms"));
  EXPECT_THAT(store.reason_of_miss(key_by("one")),
              HasSubstr("left alone, as it failed: no answer"));
}

TEST_F(RemoteStoreTest, AStoreThatFailsIsAskedAgainLater) {
  RemoteSettings eager = settings();
  eager.pause = 0ms;
  const auto store = std::make_shared<RemoteStore>(std::move(eager));
  int failures = 0;
  const Server server(store, [&](const RemoteStore::Job&) -> std::optional<std::string> {
    ++failures;
    throw std::runtime_error("403 Forbidden");
  });
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(store->fetch(key_by("one"), Compiler::this_one));
  EXPECT_EQ(failures, 4);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("403 Forbidden")));
}

TEST_F(RemoteStoreTest, WhatIsDamagedForeignOrOfAnotherKernelIsNotTaken) {
  fill(key_by("one"), settings());
  const std::string right = objects.begin()->second;
  std::string flipped = right;
  flipped.back() ^= 1;
  KernelSource other = test::scale_kernel();
  other.body += " ";
  const CacheKey other_key = make_key(other, "sm_80", {}, {.version = {13, 0}, .digest = "one"});
  const auto bundle_of = [](const CacheKey& key) {
    return write_bundle({encode_entry(key, elf())}, "[]");
  };
  ASSERT_EQ(bundle_of(key_by("one")), right);
  for (const std::string& wrong : {flipped, right.substr(0, right.size() / 2),
                                   std::string("<html>"), std::string(), bundle_of(other_key)}) {
    const auto store = std::make_shared<RemoteStore>(settings());
    const Server server(store, [&](const RemoteStore::Job&) { return std::optional(wrong); });
    EXPECT_FALSE(store->fetch(key_by("one"), Compiler::this_one));
  }
  EXPECT_THAT(warnings, SizeIs(5));
  EXPECT_THAT(warnings.back(), HasSubstr("is of another kernel and not used"));
}

TEST_F(RemoteStoreTest, WhereSignersAreListedOnlyTheirKernelsServe) {
  const SecretKey trusted = SecretKey::generate();
  trusted.write(temporary / "key");
  const ScopedEnvironment lists{{{"FLASHCORE_BUNDLE_SIGNERS", trusted.public_key().text()}}};
  const auto fetched = [&] {
    const auto store = std::make_shared<RemoteStore>(settings());
    const Server server(store, keeping());
    return store->fetch(key_by("one"), Compiler::this_one).has_value();
  };
  fill(key_by("one"), settings());
  EXPECT_FALSE(fetched());
  RemoteSettings signing = settings();
  signing.signer.emplace(SecretKey::read(temporary / "key"));
  fill(key_by("one"), std::move(signing));
  EXPECT_TRUE(fetched());
}

TEST_F(RemoteStoreTest, AFullQueueDropsAndAClosedStoreReleasesWhoWaits) {
  RemoteSettings small = settings(true);
  small.most_waiting = 3;
  RemoteStore store(std::move(small));
  store.offer(key_by("one"), encode_entry(key_by("one"), elf()));
  store.offer(key_by("two"), encode_entry(key_by("two"), elf()));
  int jobs = 0;
  while (store.next(0ms)) ++jobs;
  EXPECT_EQ(jobs, 3);
  EXPECT_FALSE(store.wait_until_written(1ms));
  std::thread closing([&] {
    std::this_thread::sleep_for(20ms);
    store.close();
  });
  EXPECT_FALSE(store.fetch(key_by("one"), Compiler::this_one));
  EXPECT_TRUE(store.wait_until_written(10s));
  EXPECT_FALSE(store.next(10s));
  closing.join();
  EXPECT_THAT(warnings, IsEmpty());
}

}  // namespace
}  // namespace flashcore
