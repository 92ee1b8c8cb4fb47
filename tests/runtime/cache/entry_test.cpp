#include "runtime/cache/entry.h"

#include <random>

#include <gmock/gmock.h>

#include "runtime/cache/envelope.h"
#include "tests/runtime/support/kernels.h"

namespace flashcore {
namespace {

CacheKey example_key() {
  return make_key(test::scale_kernel(), "sm_80", {}, {.version = {13, 0}, .digest = "0123"});
}

Cubin example() {
  return {.bytes =
              "\x7f"
              "ELF" +
              std::string(3000, '\0'),
          .resources = {.registers = 168,
                        .stack_bytes = 24,
                        .spill_store_bytes = 8,
                        .spill_load_bytes = 12,
                        .static_shared_bytes = 1024,
                        .barriers = 9,
                        .serialised = {"ptxas info : (C7510) \"quoted\"\n"}}};
}

TEST(CacheEntry, ComesBackAsItWas) {
  const auto decoded = decode_entry(example_key(), encode_entry(example_key(), example()));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->bytes, example().bytes);
  EXPECT_EQ(decoded->resources, example().resources);
}

TEST(CacheEntry, SameKernelSameFile) {
  EXPECT_EQ(encode_entry(example_key(), example()), encode_entry(example_key(), example()));
}

TEST(CacheEntry, EveryFlippedBitIsAMiss) {
  const std::string whole = encode_entry(example_key(), example());
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const int bit : {0, 3, 7}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      ASSERT_FALSE(decode_entry(example_key(), damaged)) << "byte " << at << ", bit " << bit;
    }
  }
}

TEST(CacheEntry, EveryTruncationIsAMiss) {
  const std::string whole = encode_entry(example_key(), example());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    ASSERT_FALSE(decode_entry(example_key(), std::string_view(whole).substr(0, size))) << size;
  }
  EXPECT_FALSE(decode_entry(example_key(), whole + '\0'));
}

TEST(CacheEntry, NoiseIsAMiss) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string noise(random() % 300, '\0');
    for (char& byte : noise) byte = static_cast<char>(random());
    if (i % 2 == 0) noise.insert(0, "FCKERNEL");
    ASSERT_FALSE(decode_entry(example_key(), noise));
  }
}

TEST(CacheEntry, OfAnotherKeyIsAMiss) {
  CacheKey other = example_key();
  other.preimage += "x";
  EXPECT_FALSE(decode_entry(other, encode_entry(example_key(), example())));
}

TEST(CacheEntry, WholeButForeignIsAMiss) {
  const CacheKey key = example_key();
  const auto sealed = [&](std::string_view header) {
    return seal(std::array<std::string_view, 3>{header, key.preimage, "cubin"});
  };
  EXPECT_FALSE(decode_entry(key, sealed("")));
  EXPECT_FALSE(decode_entry(key, sealed("[1, 2")));
  EXPECT_FALSE(decode_entry(key, sealed("7")));
  EXPECT_FALSE(decode_entry(key, sealed(R"({"resources": {}})")));
  EXPECT_FALSE(decode_entry(key, sealed(R"({"resources": {"registers": "many"}})")));
  EXPECT_FALSE(decode_entry(key, seal(std::array<std::string_view, 2>{"{}", key.preimage})));
}

TEST(CacheEntry, NumbersThatNoCompilerReportsAreAMiss) {
  const CacheKey key = example_key();
  const std::string whole = encode_entry(key, example());
  const std::string header((*unseal(whole, 3))[0]);
  const auto with_registers = [&](const std::string& number) {
    std::string changed = header;
    changed.replace(changed.find("168"), 3, number);
    return decode_entry(key, seal(std::array<std::string_view, 3>{changed, key.preimage, "cubin"}));
  };
  EXPECT_TRUE(with_registers("40"));
  for (const char* number : {"1e99", "-1", "2147483648", "0.5", "null"})
    EXPECT_FALSE(with_registers(number)) << number;
}

}  // namespace
}  // namespace flashcore
