#include "runtime/bundle/bundle.h"

#include <chrono>
#include <fstream>

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dsl/error.h"
#include "runtime/cache/cache.h"
#include "runtime/cache/entry.h"
#include "runtime/cache/stored_kernel.h"
#include "tests/runtime/support/kernels.h"
#include "tests/runtime/support/scoped_environment.h"
#include "tests/runtime/support/temporary_directory.h"

namespace flashcore {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

CacheKey key_of(const std::string& text, const std::string& architecture = "sm_90a",
                const std::string& compiler = "0123") {
  KernelSource source = test::scale_kernel();
  source.body = text;
  return make_key(source, architecture, {}, {.version = {13, 0}, .digest = compiler});
}

std::string entry_of(const CacheKey& key, std::size_t bytes = 100) {
  return encode_entry(key, {.bytes = test::empty_code(bytes), .resources = {.registers = 40}});
}

class BundleTest : public testing::Test {
 protected:
  std::string written(const std::string& content) const {
    std::string path = directory / "kernels.fcb";
    unlink(path.c_str());  // a file cut to nothing and written again would be flushed, thousands of
                           // times
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
    chmod(path.c_str(), 0644);
    return path;
  }
  std::string why(const std::string& content) const {
    try {
      const auto bundle = Bundle::open(written(content));
      for (const BundledKernel& kernel : bundle->kernels()) (void)bundle->read(kernel);
    } catch (const CacheError& error) {
      return error.complaint().why;
    }
    return "";
  }

  test::TemporaryDirectory directory;
  const std::vector<std::string> entries{entry_of(key_of("a")), entry_of(key_of("b")),
                                         entry_of(key_of("a", "sm_80"))};
};

TEST_F(BundleTest, HoldsEntriesByteForByte) {
  const auto bundle = Bundle::open(written(write_bundle(entries, R"([{"spec": "x"}])")));
  ASSERT_THAT(bundle->kernels(), SizeIs(3));
  EXPECT_EQ(bundle->plans(), R"([{"spec":"x"}])");
  EXPECT_FALSE(bundle->signer());
  for (const std::string& entry : entries) {
    const StoredKernel kernel = read_stored_kernel(entry, "entry");
    const auto found = bundle->find(kernel.key);
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_EQ(bundle->read(*found[0]), entry);
    EXPECT_EQ(found[0]->target, kernel.target);
    EXPECT_EQ(found[0]->kernel, "scale for " + kernel.target);
  }
  EXPECT_THAT(bundle->find("f"), SizeIs(bundle->kernels().back().key[0] == 'f'));
}

TEST_F(BundleTest, OrderAndRepetitionMakeNoDifference) {
  const std::string file = write_bundle(entries, "[]");
  EXPECT_EQ(write_bundle({entries[2], entries[0], entries[1], entries[0]}, "[]"), file);
}

TEST_F(BundleTest, TakesEntriesAndJsonAlone) {
  EXPECT_THROW((void)write_bundle({"FCKERNEL"}, "[]"), CompileError);
  EXPECT_THROW((void)write_bundle(entries, "[,"), CacheError);
}

TEST_F(BundleTest, EveryFlippedByteIsFound) {
  const std::string file = write_bundle({entry_of(key_of("a"), 64)}, "[]");
  for (std::size_t at = 0; at < file.size(); ++at) {
    std::string damaged = file;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
    ASSERT_NE(why(damaged), "") << "byte " << at;
  }
}

TEST_F(BundleTest, EveryTruncationIsFound) {
  const std::string file = write_bundle({entry_of(key_of("a"), 64)}, "[]");
  EXPECT_EQ(why(file), "");
  for (std::size_t size = 0; size < file.size(); ++size)
    ASSERT_NE(why(file.substr(0, size)), "") << size;
  EXPECT_EQ(why(file + "x"), "it has more bytes than its manifest tells of");
}

// Whole and forged: sizes that reach beyond the file, keys out of order.
TEST_F(BundleTest, ForgedManifestsAreRefused) {
  const auto forged = [&](const std::string& manifest) {
    std::string head = write_bundle(entries, "[]").substr(0, 16);
    const std::uint64_t size = manifest.size();
    head.append(reinterpret_cast<const char*>(&size), sizeof size);
    return why(head + manifest + secure_digest_of(head + manifest) + '\0');
  };
  const std::string kernel =
      R"({"key":"k","kernel":"a","target":"sm_80","digest":"0","requests":["r"],"bytes":)";
  EXPECT_EQ(forged(R"({"kernels":[],"plans":[]})"), "");
  EXPECT_THAT(forged(R"({"kernels":[)" + kernel + R"(18446744073709551615}],"plans":[]})"),
              "it is cut short");
  EXPECT_THAT(forged(R"({"kernels":[)" + kernel + R"(-1}],"plans":[]})"),
              "its manifest has no sizes");
  EXPECT_THAT(forged(R"({"kernels":[)" + kernel + "0}," + kernel + R"(0}],"plans":[]})"),
              "the kernels of its manifest are not in order");
  const std::string twice = R"({"key":"l","kernel":"a","target":"sm_80","digest":"0",)";
  EXPECT_THAT(forged(R"({"kernels":[)" + kernel + "0}," + twice +
                     R"("requests":["r"],"bytes":0}],"plans":[]})"),
              "its manifest answers a request with two kernels");
  EXPECT_THAT(forged(R"({"kernels":[)" + twice + R"("requests":7,"bytes":0}],"plans":[]})"),
              "its manifest has another form");
  EXPECT_THAT(forged(R"({"kernels":7})"), "its manifest has another form");
  EXPECT_THAT(forged(std::string(100'000, '[')), "its manifest nests too deep");
}

TEST_F(BundleTest, IsOfSomebodyWhoCanBeTrusted) {
  const std::string path = written(write_bundle(entries, "[]"));
  chmod(path.c_str(), 0666);
  try {
    (void)Bundle::open(path);
    FAIL();
  } catch (const CacheError& error) {
    EXPECT_THAT(error.complaint().why, HasSubstr("writ"));
    EXPECT_THAT(error.complaint().fix, HasSubstr("FLASHCORE_BUNDLE_SIGNERS"));
  }
  EXPECT_THROW((void)Bundle::open(directory / "none.fcb"), CacheError);
  EXPECT_EQ(mkfifo((directory / "fifo").c_str(), 0600), 0);
  EXPECT_THROW((void)Bundle::open(directory / "fifo"), CacheError);  // and does not hang
}

TEST_F(BundleTest, ASignatureIsOverTheManifestAndSoOverAll) {
  const SecretKey secret = SecretKey::generate();
  const std::string file = write_bundle(entries, "[]", &secret);
  EXPECT_EQ(Bundle::open(written(file))->signer(), secret.public_key());
  setenv("FLASHCORE_BUNDLE_SIGNERS", secret.public_key().text().c_str(), 1);
  EXPECT_EQ(why(file), "");
  chmod(written(file).c_str(), 0666);
  EXPECT_NO_THROW((void)Bundle::open(directory / "kernels.fcb"));  // its signer vouches for it
  EXPECT_NE(why(write_bundle(entries, "[]")), "");
  const SecretKey other = SecretKey::generate();
  EXPECT_NE(why(write_bundle(entries, "[]", &other)), "");
  std::string damaged = file;
  damaged.back() ^= 1;
  EXPECT_THAT(why(damaged), HasSubstr("is damaged"));
  unsetenv("FLASHCORE_BUNDLE_SIGNERS");
}

// Whether or not signers are listed: what was signed is what is read.
TEST_F(BundleTest, EveryFlippedByteOfASignedOneIsFound) {
  const SecretKey secret = SecretKey::generate();
  const std::string file = write_bundle({entry_of(key_of("a"), 64)}, "[]", &secret, {{"r", "k"}});
  for (const std::string& listed : {std::string(), secret.public_key().text()}) {
    const test::ScopedEnvironment environment(
        test::ScopedEnvironment::Variables{{"FLASHCORE_BUNDLE_SIGNERS", listed}});
    ASSERT_EQ(why(file), "");
    for (std::size_t at = 0; at < file.size(); ++at) {
      std::string damaged = file;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
      ASSERT_NE(why(damaged), "") << "byte " << at;
    }
    for (std::size_t size = 0; size < file.size(); ++size)
      ASSERT_NE(why(file.substr(0, size)), "") << size;
  }
}

// Without its signature it is whole, and taken only where nobody is listed.
TEST_F(BundleTest, ASignatureThatIsTakenOffIsMissed) {
  const SecretKey secret = SecretKey::generate();
  const std::string file = write_bundle(entries, "[]", &secret),
                    plain = write_bundle(entries, "[]");
  const std::size_t first_entry = file.find("FCKERNEL");
  std::string without = file;
  constexpr std::size_t signature = PublicKey::size + Signature::size;
  without.erase(first_entry - signature, signature);
  without[first_entry - signature - 1] = 0;
  EXPECT_EQ(without, plain);
  EXPECT_EQ(why(without), "");
  const test::ScopedEnvironment environment(
      test::ScopedEnvironment::Variables{{"FLASHCORE_BUNDLE_SIGNERS", secret.public_key().text()}});
  EXPECT_THAT(why(without), HasSubstr("it is not signed"));
}

TEST_F(BundleTest, ServesBeforeTheDirectoryAndForAnyCompiler) {
  KernelCache cache({.directory = ""});
  cache.add_bundle(Bundle::open(written(write_bundle(entries, "[]"))));
  const auto refuse = []() -> Cubin { throw CompileError({.what = "no", .why = "compiler"}); };
  const auto outcome = cache.get(key_of("b", "sm_90a", "another compiler"), refuse);
  EXPECT_TRUE(outcome.from_cache);
  EXPECT_EQ(outcome.cubin->resources.registers, 40);
  EXPECT_THROW((void)cache.get(key_of("c"), refuse), CompileError);
  EXPECT_THROW((void)cache.get(key_of("b", "sm_80"), refuse), CompileError);
}

TEST_F(BundleTest, AnswersRequestsWithTheKernelsOfTheirTarget) {
  const std::string a = read_stored_kernel(entries[0], "").key,
                    b = read_stored_kernel(entries[1], "").key;
  const std::string path = written(
      write_bundle(entries, "[]", nullptr, {{"1", a}, {"2", b}, {"3", a}, {"4", "not in it"}}));
  const auto bundle = Bundle::open(path);
  EXPECT_EQ(bundle->find_requested("1")->key, a);
  EXPECT_EQ(bundle->find_requested("3")->key, a);
  EXPECT_EQ(bundle->find_requested("2")->key, b);
  EXPECT_EQ(bundle->find_requested("4"), nullptr);

  KernelCache cache({.directory = ""});
  EXPECT_FALSE(cache.find_requested("1", "sm_90a"));
  cache.add_bundle(bundle);
  EXPECT_EQ(cache.find_requested("1", "sm_90a")->key, a);
  EXPECT_EQ(cache.find_requested("2", "sm_90a")->key, b);
  EXPECT_FALSE(cache.find_requested("1", "sm_80"));
  // Damaged after it was opened: not used, and another bundle's is.
  std::string content = test::read_file(path);
  content.back() ^= 1;  // of the last entry
  const std::string& last = bundle->kernels().back().key;
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  EXPECT_EQ(cache.find_requested("1", "sm_90a").has_value(), last != a);
  EXPECT_EQ(cache.find_requested("2", "sm_90a").has_value(), last != b);
}

TEST_F(BundleTest, AllKernelsAreReadInTheirOrderOrNone) {
  std::string file = write_bundle(entries, "[]");
  const auto bundle = Bundle::open(written(file));
  const std::vector<StoredKernel> kernels = read_all(*bundle);
  ASSERT_THAT(kernels, SizeIs(3));
  for (std::size_t i = 0; i < kernels.size(); ++i)
    EXPECT_EQ(kernels[i].key, bundle->kernels()[i].key);
  file[bundle->kernels()[1].offset + 50] ^= 1;
  EXPECT_THROW((void)read_all(*Bundle::open(written(file))), CacheError);
  EXPECT_THAT(read_all(*Bundle::open(written(write_bundle({}, "[]")))), SizeIs(0));
}

// What a process that starts with a hundred kernels pays, without the driver's part.
TEST_F(BundleTest, AHundredKernelsAreReadyInAMoment) {
  std::vector<std::string> many;
  const std::string text(60'000, 'x');
  for (int i = 0; i < 100; ++i) many.push_back(entry_of(key_of(std::to_string(i) + text), 50'000));
  const std::string path = written(write_bundle(many, "[]"));
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    const auto start = std::chrono::steady_clock::now();
    const auto bundle = Bundle::open(path);
    std::vector<std::unique_ptr<LoadedKernel>> kernels;
    for (StoredKernel& kernel : read_all(*bundle))
      kernels.push_back(std::make_unique<LoadedKernel>(std::move(kernel).compiled()));
    best = std::min(
        best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
                  .count());
    ASSERT_THAT(kernels, SizeIs(100));
  }
  RecordProperty("milliseconds", std::to_string(best));
  std::printf("100 kernels in %.1f ms\n", best);
  EXPECT_LT(best, 100);  // 20 on a machine that does nothing else
}

}  // namespace
}  // namespace flashcore
