#include "runtime/cache/stored_kernel.h"

#include <array>

#include <gmock/gmock.h>

#include "dsl/error.h"
#include "runtime/cache/digest.h"
#include "runtime/cache/entry.h"
#include "runtime/cache/envelope.h"
#include "runtime/cache/launch_data.h"
#include "runtime/launch.h"
#include "tests/runtime/support/kernels.h"

namespace flashcore {
namespace {

using testing::HasSubstr;

const std::string code = test::empty_code(200);

CacheKey key_of(const KernelSource& source, const std::string& architecture = "sm_90a") {
  const std::vector<std::string> options{"--gpu-architecture=" + architecture, "--std=c++17"};
  return make_key(source, architecture, options, {.version = {13, 0}, .digest = "0123"});
}

std::string entry_of(const KernelSource& source) {
  return encode_entry(key_of(source), {.bytes = code, .resources = {.registers = 40}});
}

std::string why(std::string_view file) {
  try {
    (void)read_stored_kernel(file, "x.kernel");
  } catch (const CompileError& error) {
    EXPECT_EQ(error.complaint().what, "x.kernel is no kernel that can be loaded");
    return error.complaint().why;
  }
  return "";
}

TEST(LaunchData, SaysAllButNameAndText) {
  for (KernelSource source : {test::scale_kernel(), test::drawing_kernel(),
                              test::attention_like_kernel(), test::mapped_kernel()}) {
    const std::string text = write_launch_data(source);
    const auto read = read_launch_data(text);
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(write_launch_data(*read), text);
    EXPECT_EQ(read->parameter_bytes, source.parameter_bytes);
    EXPECT_NO_THROW(LaunchPlan(std::make_shared<const KernelSource>(*read)));
  }
}

TEST(LaunchData, KeepsWhatProbesAreFilledWith) {
  KernelSource source = test::scale_kernel();
  source.tensors[1].unwritten = std::numeric_limits<double>::quiet_NaN();
  const auto read = read_launch_data(write_launch_data(source));
  ASSERT_TRUE(read && read->tensors[1].unwritten);
  EXPECT_TRUE(std::isnan(*read->tensors[1].unwritten));
}

// Every number of it replaced by others: what is read can be planned without touching anything that
// is not there.
TEST(LaunchData, WrongNumbersAreRefusedOrPlanned) {
  const std::string text = write_launch_data(test::mapped_kernel());
  int refused = 0, planned = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool starts = std::isdigit(text[at]) && !std::isdigit(text[at - 1]) &&
                        std::string_view(":[,").find(text[at - 1]) != std::string_view::npos;
    if (!starts) continue;
    std::size_t end = at;
    while (std::isdigit(text[end])) ++end;
    for (const char* other : {"-1", "1", "7", "127", "128", "4095", "2147483648",
                              "18446744073709551615", "1.5", "null", "\"x\""}) {
      const auto read = read_launch_data(text.substr(0, at) + other + text.substr(end));
      try {
        if (read) LaunchPlan(std::make_shared<const KernelSource>(*read));
        ++(read ? planned : refused);
      } catch (const InternalError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 200);
  EXPECT_GT(planned, 50);
}

TEST(LaunchData, WhatIsNotItsFormIsRefused) {
  const std::string text = write_launch_data(test::scale_kernel());
  for (const char* other : {"", "{}", "[]", "7", "{\"tensors\": []}"})
    EXPECT_FALSE(read_launch_data(other));
  EXPECT_FALSE(read_launch_data(text.substr(0, text.size() - 1) + ",\"more\":1}"));
  EXPECT_FALSE(read_launch_data(std::string(100'000, '[')));
}

TEST(StoredKernel, IsReadFromItsEntryAlone) {
  const KernelSource source = test::scale_kernel();
  const StoredKernel stored = read_stored_kernel(entry_of(source), "x.kernel");
  EXPECT_EQ(stored.name, "scale");
  EXPECT_EQ(stored.source.entry, "scale");
  EXPECT_EQ(stored.source.text(), source.text());
  EXPECT_EQ(write_launch_data(stored.source), write_launch_data(source));
  EXPECT_EQ(stored.target, "sm_90a");
  EXPECT_EQ(stored.compiler, "13.0");
  EXPECT_EQ(stored.compiler_digest, "0123");
  EXPECT_THAT(stored.options, testing::ElementsAre("--gpu-architecture=sm_90a", "--std=c++17"));
  EXPECT_EQ(stored.key, key_of(source).name);
  EXPECT_EQ(stored.cubin.bytes, code);
  EXPECT_EQ(stored.compiled()->resources().registers, 40);
}

TEST(StoredKernel, WhatContradictsItselfIsRefused) {
  const CacheKey key = key_of(test::scale_kernel());
  const auto sealed = [](const std::string& kernel, const std::string& name,
                         const std::string& preimage, const std::string& bytes = code) {
    return encode_entry({.preimage = preimage, .name = name, .kernel = kernel},
                        {.bytes = bytes, .resources = {}});
  };
  EXPECT_EQ(why(sealed(key.kernel, key.name, key.preimage)), "");
  EXPECT_THAT(why(sealed("scale for sm_80", key.name, key.preimage)),
              "it calls itself scale for sm_80, and its key is of sm_90a");
  EXPECT_THAT(why(sealed(key.kernel, key_of(test::mapped_kernel()).name, key.preimage)),
              "its name is not that of its key");
  EXPECT_THAT(why(sealed(key.kernel, key.name, "12:short")), "its key has no fields to read");
  EXPECT_THAT(why(sealed(key.kernel, key.name, key.preimage, "host code")),
              "its code is not a GPU's");
  EXPECT_THAT(why("FCKERNEL"), HasSubstr("damaged, cut short"));
  std::vector<std::string_view> fields = *fields_of(key.preimage);
  fields[4] = "{}";
  const CacheKey without_launch = make_key(fields, key.kernel, kernel_fields_asked);
  EXPECT_THAT(why(sealed(key.kernel, without_launch.name, without_launch.preimage)),
              "it does not say how to launch the kernel");
}

TEST(StoredKernel, CodeForAnotherTargetIsRefused) {
  const auto with = [](char abi_version, char low, char high) {
    std::string elf = code;
    elf[8] = abi_version;
    elf[48] = low;
    elf[49] = high;
    return encode_entry(key_of(test::scale_kernel()), {.bytes = elf, .resources = {}});
  };
  constexpr char up_to_cuda_12 = 7, from_cuda_13 = 8;
  EXPECT_EQ(why(with(up_to_cuda_12, 90, 5)), "");
  EXPECT_EQ(why(with(up_to_cuda_12, 80, 5)), "its code is for sm_80, and its key is of sm_90a");
  EXPECT_EQ(why(with(from_cuda_13, 4, 90)), "");
  EXPECT_EQ(why(with(from_cuda_13, 4, 120)), "its code is for sm_120, and its key is of sm_90a");
}

TEST(StoredKernel, EveryFlippedBitAndEveryTruncationIsRefused) {
  const std::string whole = entry_of(test::scale_kernel());
  ASSERT_EQ(why(whole), "");
  for (std::size_t at = 0; at < whole.size(); ++at) {
    ASSERT_NE(why(whole.substr(0, at)), "") << "cut to " << at;
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      ASSERT_NE(why(damaged), "") << "byte " << at << ", bit " << bit;
    }
  }
  EXPECT_NE(why(whole + '\0'), "");
}

// A forger makes the digest right: what is read is then whole, or refused, and nothing crashes.
TEST(StoredKernel, EveryFlippedBitUnderARightDigestIsReadOrRefused) {
  const std::string whole = entry_of(test::scale_kernel());
  int read = 0, refused = 0;
  for (std::size_t at = 0; at < whole.size() - digest_bytes; ++at) {
    for (const int bit : {0, 3, 7}) {
      std::string forged = whole.substr(0, whole.size() - digest_bytes);
      forged[at] = static_cast<char>(forged[at] ^ (1 << bit));
      forged += raw_digest_of(forged);
      ++(why(forged).empty() ? read : refused);
    }
  }
  // What nothing else in the file repeats: most of the code, and what it takes.
  EXPECT_GT(read, 0);
  EXPECT_GT(refused, read);
}

}  // namespace
}  // namespace flashcore
