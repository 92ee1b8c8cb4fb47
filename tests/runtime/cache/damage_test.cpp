// Every byte of a file flipped and every length cut short, through the load of a kernel: the right
// one is handed out, and the next process finds it again.

#include <gmock/gmock.h>

#include "runtime/bundle/bundle.h"
#include "runtime/cache/cache.h"
#include "runtime/cache/entry.h"
#include "tests/runtime/cache/cache_fixture.h"
#include "tests/runtime/support/heavy.h"

namespace flashcore {
namespace {

using test::key_of;

/// Calls `damaged` with every flip of some bits of every byte, and every beginning.
void damage_everywhere(const std::string& whole,
                       const std::function<void(const std::string& file)>& try_file) {
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (int bit = 0; bit < test::light_or_heavy(1, 8); ++bit) {
      std::string file = whole;
      file[at] = static_cast<char>(file[at] ^ (1 << (static_cast<int>(at) + bit) % 8));
      try_file(file);
    }
    try_file(whole.substr(0, at));
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "at byte " << at;
      return;
    }
  }
}

class Damage : public test::KernelCacheTest {
 protected:
  void SetUp() override { directory = quick_ / "cache"; }

  std::string code() const {
    std::string elf =
        "\x7f"
        "ELF" +
        std::string(200, '\0');
    elf[18] = '\xbe';
    return elf;
  }
  std::string ask(KernelCache& cache) {
    return cache
        .get(key_of("a"),
             [&] {
               ++builds;
               return Cubin{.bytes = code(), .resources = {}};
             })
        .cubin->bytes;
  }

  test::TemporaryDirectory quick_{test::quick_place()};
};

TEST_F(Damage, OfAnEntry) {
  {
    KernelCache cache({.directory = directory});
    ASSERT_EQ(ask(cache), code());
  }
  const std::string whole = test::read_file(file_of("a"));
  int damaged = 0;
  damage_everywhere(whole, [&](const std::string& file) {
    test::write_file(file_of("a"), file);
    for (int again = 0; again < 2; ++again) {
      KernelCache cache({.directory = directory});
      EXPECT_EQ(ask(cache), code());
    }
    EXPECT_EQ(test::read_file(file_of("a")), whole);
    ++damaged;
  });
  EXPECT_EQ(builds, damaged + 1);  // each was found out, and repaired once
  EXPECT_EQ(warnings.size(), static_cast<std::size_t>(damaged));
  fmt::print("{} damaged entries\n", damaged);
}

TEST_F(Damage, OfABundle) {
  const std::string whole = write_bundle(
      {encode_entry(key_of("a"), {.bytes = code(), .resources = {}})}, "[]", nullptr, {{"r", "k"}});
  const std::string path = quick_ / "kernels.fcb";
  int damaged = 0;
  const auto serves = [&](const std::string& file) {
    test::write_file(path, file);
    builds = 0;
    KernelCache cache({.directory = "", .bundles = {path}});
    EXPECT_EQ(ask(cache), code());
    return builds == 0;
  };
  EXPECT_TRUE(serves(whole));
  EXPECT_THAT(warnings, testing::IsEmpty());
  damage_everywhere(whole, [&](const std::string& file) {
    EXPECT_FALSE(serves(file));
    ++damaged;
  });
  EXPECT_EQ(warnings.size(), static_cast<std::size_t>(damaged));
  fmt::print("{} damaged bundles\n", damaged);
}

// Cut short while it is in use, by somebody who writes in place: what was read stays, and the rest
// is a miss.
TEST_F(Damage, OfABundleThatIsOpen) {
  const std::string whole =
      write_bundle({encode_entry(key_of("a"), {.bytes = code(), .resources = {}})}, "[]");
  const std::string path = quick_ / "kernels.fcb";
  test::write_file(path, whole);
  KernelCache cache({.directory = "", .bundles = {path}});
  std::filesystem::resize_file(path, whole.size() - 1);
  EXPECT_EQ(ask(cache), code());
  EXPECT_EQ(builds, 1);
  EXPECT_THAT(warnings, testing::ElementsAre(testing::HasSubstr("is damaged")));
}

}  // namespace
}  // namespace flashcore
