// Every system call of writing and of reading a bundle, killed and failed one after another.
#include <cerrno>
#include <filesystem>

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>

#include "dsl/error.h"
#include "runtime/bundle/bundle.h"
#include "runtime/cache/cache.h"
#include "runtime/cache/entry.h"
#include "tests/runtime/cache/cache_fixture.h"
#include "tests/runtime/support/system_calls.h"

namespace flashcore {
namespace {

namespace fs = std::filesystem;
using test::key_of;
using Kind = test::Fault::Kind;

constexpr int refused = 3, wrong_kernel = 4;

std::string bundle_of(const std::vector<std::string>& bodies) {
  std::vector<std::string> entries;
  for (const std::string& body : bodies) {
    std::string code =
        "\x7f"
        "ELF" +
        std::string(5000, '\0') + body;
    code[18] = '\xbe';
    entries.push_back(encode_entry(key_of(body), {.bytes = code, .resources = {}}));
  }
  return write_bundle(entries, "[]");
}

class BundleFaults : public test::KernelCacheTest {
 protected:
  void SetUp() override {
    if (!test::can_trace()) GTEST_SKIP() << "processes cannot be traced here";
  }

  /// Tries the fault at every number that the work comes to, and looks after each; how often.
  int try_everywhere(Kind kind, int error, const std::function<int()>& work,
                     const std::function<void(int status)>& check) {
    for (int number = 0;; ++number) {
      const test::Traced traced =
          test::run_with_fault({.kind = kind, .number = number, .error = error}, work);
      if (traced.call.empty()) {
        EXPECT_EQ(traced.status, 0);
        return number;
      }
      const testing::ScopedTrace where(
          __FILE__, __LINE__, fmt::format("error {} at call {}, {}", error, number, traced.call));
      check(traced.status);
      if (HasFailure()) return number;
    }
  }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& file : fs::directory_iterator(quick_.path()))
      found.push_back(file.path().filename());
    return found;
  }

  const std::string old_one = bundle_of({"a"}), new_one = bundle_of({"a", "b"});
  test::TemporaryDirectory quick_{test::quick_place()};
  const std::string path = quick_ / "kernels.fcb";
};

TEST_F(BundleFaults, AReaderFindsTheOldFileOrTheNewOne) {
  const auto write = [&] {
    try {
      save_bundle(path, new_one);
      return 0;
    } catch (const CacheError& error) {
      return error.complaint().why.starts_with("it cannot be written: ") ? refused : wrong_kernel;
    }
  };
  for (const bool replaces : {false, true}) {
    const auto start_again = [&] {
      for (const std::string& name : names()) fs::remove(quick_ / name);
      if (replaces) save_bundle(path, old_one);
    };
    const auto check = [&](int status) {
      const std::string found = fs::exists(path) ? test::read_file(path) : "";
      EXPECT_TRUE(found == new_one || (status != 0 && found == (replaces ? old_one : "")));
      // The next writer succeeds, and in time nothing else is left.
      for (const std::string& name : names())
        fs::last_write_time(quick_ / name,
                            fs::file_time_type::clock::now() - std::chrono::hours(2));
      EXPECT_EQ(write(), 0);
      EXPECT_EQ(test::read_file(path), new_one);
      EXPECT_THAT(names(), testing::ElementsAre("kernels.fcb"));
      EXPECT_NO_THROW((void)Bundle::open(path));
      start_again();
    };
    const auto killed = [&](int status) {
      EXPECT_EQ(status, 128 + SIGKILL);
      check(status);
    };
    const auto failed = [&](int status) {
      EXPECT_THAT(status, testing::AnyOf(0, refused));
      check(status);
    };
    start_again();
    EXPECT_GT(try_everywhere(Kind::kill, 0, write, killed), 8);
    start_again();
    EXPECT_EQ(try_everywhere(Kind::kill_in_write, 0, write, killed), 1);
    start_again();
    EXPECT_EQ(try_everywhere(Kind::halve, 0, write, check), 1);
    for (const int error : {ENOSPC, EIO, ESTALE, EACCES, EROFS}) {
      for (const Kind kind : {Kind::fail, Kind::fail_from_here}) {
        start_again();
        EXPECT_GT(try_everywhere(kind, error, write, failed), 8);
      }
    }
  }
}

TEST_F(BundleFaults, AReaderGetsTheKernelWhateverFails) {
  save_bundle(path, new_one);
  const std::string from_bundle =
      read_stored_kernel(Bundle::open(path)->read(Bundle::open(path)->kernels()[0]), path)
          .cubin.bytes;
  const auto ask = [&] {
    KernelCache cache({.directory = "", .bundles = {path}});
    for (const char* body : {"a", "b"}) {
      const auto outcome =
          cache.get(key_of(body), [] { return Cubin{.bytes = "compiled", .resources = {}}; });
      const std::string& code = outcome.cubin->bytes;
      if (code != "compiled" && !(code.size() == from_bundle.size() && code.back() == body[0]))
        return wrong_kernel;
    }
    return 0;
  };
  const auto right = [](int status) { EXPECT_EQ(status, 0); };
  EXPECT_GT(try_everywhere(Kind::halve, 0, ask, right), 3);
  for (const int error : {ENOSPC, EIO, ESTALE, EACCES, EROFS, EINTR}) {
    EXPECT_GT(try_everywhere(Kind::fail, error, ask, right), 5);
    if (error == EINTR) continue;  // which is not for ever
    EXPECT_GT(try_everywhere(Kind::fail_from_here, error, ask, right), 5);
  }
}

TEST_F(BundleFaults, ALinkAtItsPathIsReplacedAndNotFollowed) {
  test::write_file(quick_ / "precious", "precious");
  fs::create_symlink(quick_ / "precious", path);
  save_bundle(path, new_one);
  EXPECT_FALSE(fs::is_symlink(path));
  EXPECT_EQ(test::read_file(quick_ / "precious"), "precious");
}

// Whose it is counts, not who made the link: a deployment may point to the bundle of the day.
TEST_F(BundleFaults, ALinkToOneIsFollowedToWhatCanBeTrusted) {
  save_bundle(path, new_one);
  fs::create_symlink(path, quick_ / "today.fcb");
  EXPECT_NO_THROW((void)Bundle::open(quick_ / "today.fcb"));
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
  for (const std::string& name : {path, quick_ / "today.fcb"}) {
    try {
      (void)Bundle::open(name);
      ADD_FAILURE() << name;
    } catch (const CacheError& error) {
      EXPECT_EQ(error.complaint().why, "it belongs to user 12345, not to 0");
    }
  }
}

}  // namespace
}  // namespace flashcore
