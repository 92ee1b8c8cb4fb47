#include "runtime/compile.h"

#include <filesystem>

#include <gmock/gmock.h>

#include "dsl/target.h"
#include "runtime/log.h"
#include "tests/runtime/support/expectations.h"
#include "tests/runtime/support/kernels.h"
#include "tests/runtime/support/scoped_environment.h"
#include "tests/runtime/support/temporary_directory.h"

namespace flashcore {
namespace {

using test::installed_nvrtc;
using test::message_of;
using testing::HasSubstr;

TEST(Compile, EveryTarget) {
  FLASHCORE_REQUIRE_NVRTC();
  for (const Target& target : all_targets()) {
    const bool newer = target.capability == 110;  // called sm_101 before CUDA 13
    if (newer && installed_nvrtc()->version() < NvrtcVersion{13, 0}) continue;
    const Cubin cubin =
        compile_cubin(*installed_nvrtc(), test::scale_kernel(), std::string(target.name));
    EXPECT_THAT(cubin.bytes, testing::StartsWith("\x7f"
                                                 "ELF"))
        << target.name;
    EXPECT_GT(cubin.resources.registers, 0) << target.name;
    EXPECT_EQ(cubin.resources.spill_store_bytes, 0) << target.name;
    EXPECT_EQ(cubin.resources.stack_bytes, 0) << target.name;
  }
}

TEST(Compile, ArchitectureSuffixes) {
  FLASHCORE_REQUIRE_NVRTC();
  EXPECT_FALSE(compile_cubin(*installed_nvrtc(), test::scale_kernel(), "sm_90a").bytes.empty());
  EXPECT_FALSE(compile_cubin(*installed_nvrtc(), test::scale_kernel(), "sm_100a").bytes.empty());
  EXPECT_FALSE(
      compile_cubin(*installed_nvrtc(), test::copy_boxes_kernel(), "sm_90a").bytes.empty());
}

TEST(Compile, RefusesWhatTheCompilerGetsWrong) {
  KernelSource source = test::scale_kernel();
  EXPECT_NO_THROW(require_right_code(source, {12, 0}));
  source.keeps_operands = true;
  EXPECT_NO_THROW(require_right_code(source, {13, 1}));
  EXPECT_EQ(message_of<CompileError>([&] {
              require_right_code(source, {13, 0});
            }),
            "NVRTC 13.0 may compile scale wrong\n"
            "  why: before 13.1 it gives registers of left operands that a loop keeps for "
            "asynchronous products to other values\n"
            "  try: keep_operands = false, or a newer compiler: pip install --upgrade "
            "nvidia-cuda-nvrtc");
}

TEST(Compile, GivesPtx) {
  FLASHCORE_REQUIRE_NVRTC();
  const std::string ptx = compile_ptx(*installed_nvrtc(), test::scale_kernel(), "sm_80");
  EXPECT_THAT(ptx, HasSubstr(".visible .entry scale("));
  EXPECT_THAT(ptx, HasSubstr(".target sm_80"));
}

TEST(Compile, SameInputSameBytes) {
  FLASHCORE_REQUIRE_NVRTC();
  const auto compile = [] {
    return compile_cubin(*installed_nvrtc(), test::attention_like_kernel(), "sm_80").bytes;
  };
  EXPECT_EQ(compile(), compile());
}

TEST(Compile, UnknownArchitecture) {
  FLASHCORE_REQUIRE_NVRTC();
  const auto compile = [](const char* name) {
    return message_of<CompileError>(
        [&] { compile_cubin(*installed_nvrtc(), test::scale_kernel(), name); });
  };
  EXPECT_THAT(compile("sm_999"), HasSubstr("cannot compile for sm_999"));
  EXPECT_THAT(compile("sm_999"), HasSubstr("sm_80, "));
  EXPECT_THAT(compile("sm_999"), HasSubstr("pip install --upgrade nvidia-cuda-nvrtc"));
  EXPECT_THAT(compile("sm_10"), HasSubstr("one of these architectures"));
  EXPECT_THAT(compile("compute_80"),
              HasSubstr("\"compute_80\" is not the name of an architecture"));
  EXPECT_THAT(compile("sm_90x"), HasSubstr("\"sm_90x\" is not the name of an architecture"));
  EXPECT_THAT(compile("sm_"), HasSubstr("\"sm_\" is not the name of an architecture"));
}

TEST(Compile, RefusedTextIsKept) {
  FLASHCORE_REQUIRE_NVRTC();
  KernelSource source = test::scale_kernel();
  source.body += "int broken = nonsense;\n";
  std::string warned;
  set_log_hook([&](LogLevel level, std::string_view text) {
    if (level == LogLevel::warn) warned += text;
  });
  const std::string message =
      message_of<CompileError>([&] { compile_cubin(*installed_nvrtc(), source, "sm_80"); });
  set_log_hook({});
  EXPECT_THAT(message, HasSubstr("refuses scale for sm_80"));
  EXPECT_THAT(message, HasSubstr("identifier \"nonsense\" is undefined"));
  EXPECT_THAT(message, HasSubstr("scale.cu("));
  const std::size_t start = message.find("kept in ") + 8;
  const std::string path = message.substr(start, message.find(';', start) - start);
  EXPECT_EQ(test::read_file(path), source.text()) << path;
  EXPECT_EQ(warned, "NVRTC refuses scale for sm_80, which is a bug of FlashCore: " + path);
  std::filesystem::remove(path);
}

TEST(Compile, SpillsAreFound) {
  FLASHCORE_REQUIRE_NVRTC();
  const KernelSource source = test::spilling_kernel();
  const Cubin cubin = compile_cubin(*installed_nvrtc(), source, "sm_80");
  EXPECT_GT(cubin.resources.spill_store_bytes, 0);
  EXPECT_GT(cubin.resources.spill_load_bytes, 0);
  const std::string message =
      message_of<CompileError>([&] { check_resources(source, cubin.resources, "sm_80"); });
  EXPECT_THAT(message, HasSubstr("spilling for sm_80 spills registers"));
  EXPECT_THAT(message, HasSubstr(fmt::format("{} bytes are stored and {} loaded a thread",
                                             cubin.resources.spill_store_bytes,
                                             cubin.resources.spill_load_bytes)));
  EXPECT_THAT(message, HasSubstr("of the 32 registers that 1024 threads and 2 block(s)"));
  EXPECT_THAT(message, HasSubstr("fewer blocks a multiprocessor"));
}

TEST(Compile, SerialisedProductsAreFound) {
  FLASHCORE_REQUIRE_NVRTC();
  const KernelSource source = test::serialised_kernel();
  const Cubin cubin = compile_cubin(*installed_nvrtc(), source, "sm_90a");
  EXPECT_THAT(
      message_of<CompileError>([&] { check_resources(source, cubin.resources, "sm_90a"); }),
      testing::AllOf(HasSubstr("serialised for sm_90a would run its wgmma products one after"),
                     HasSubstr("(C7511) Potential Performance Loss")));
}

TEST(Compile, ProductsWithoutRegistersAreARefusalOfTheSchedule) {
  FLASHCORE_REQUIRE_NVRTC();
  KernelSource source = test::crowded_kernel();
  const auto compile = [&] {
    return message_of<CompileError>([&] { compile_cubin(*installed_nvrtc(), source, "sm_90a"); });
  };
  EXPECT_THAT(
      compile(),
      testing::MatchesRegex("crowded for sm_90a has a product that does not fit in registers\n"
                            "  why: ptxas [^\n]*\\(C7602\\) Insufficient registers \\(64\\)[^\n]*\n"
                            "  try: smaller tiles, more warps for the same rows, or fewer pipeline "
                            "stages held in registers"));
  source.min_blocks = 2;
  EXPECT_THAT(compile(), testing::EndsWith(", or fewer blocks a multiprocessor"));
}

TEST(Compile, IgnoredRegisterSplitsAreFound) {
  FLASHCORE_REQUIRE_NVRTC();
  const KernelSource source = test::unbounded_split_kernel();
  const Cubin cubin = compile_cubin(*installed_nvrtc(), source, "sm_90a");
  EXPECT_THAT(
      message_of<CompileError>([&] { check_resources(source, cubin.resources, "sm_90a"); }),
      testing::AllOf(HasSubstr("unbounded for sm_90a would not pass registers from warp to warp"),
                     HasSubstr("(C7508) Potential Performance Loss: 'setmaxnreg' ignored"),
                     HasSubstr("every warp keeps its share")));
}

TEST(CheckResources, RegistersStackAndSerialisedProducts) {
  KernelSource source = test::scale_kernel();
  Resources used{.registers = 168, .stack_bytes = 24, .serialised = {}};
  EXPECT_NO_THROW(check_resources(source, used, "sm_80"));

  used = {.registers = 10, .stack_bytes = 512, .serialised = {}};
  EXPECT_THAT(message_of<CompileError>([&] { check_resources(source, used, "sm_80"); }),
              HasSubstr("its stack frame has 512 bytes a thread"));
  used = {.registers = 10, .serialised = {"ptxas info : (C7510) Potential Performance Loss"}};
  EXPECT_THAT(
      message_of<CompileError>([&] { check_resources(source, used, "sm_90a"); }),
      testing::AllOf(HasSubstr("one after the other\n  why: ptxas: ptxas info : (C7510)"),
                     HasSubstr("the registers of a product in flight, ptxas waits for it")));
  used.serialised.insert(used.serialised.begin(), "ptxas info : (C7508) 'setmaxnreg' ignored");
  EXPECT_THAT(message_of<CompileError>([&] { check_resources(source, used, "sm_90a"); }),
              testing::AllOf(HasSubstr("(C7508)"), HasSubstr("(C7510)"), HasSubstr("one after")));
  used = {.registers = 160, .serialised = {}};
  source.threads = 384;
  source.split_registers = 128 * (24 + 2 * 240);
  EXPECT_THAT(message_of<CompileError>([&] { check_resources(source, used, "sm_90a"); }),
              HasSubstr("would wait for registers for ever\n  why: its warpgroups share out 64512, "
                        "and ptxas lets 384 threads begin with 61440"));
  used.registers = 168;
  EXPECT_NO_THROW(check_resources(source, used, "sm_90a"));
  source.tensors[0].unwritten = 0;  // a probe
  used.spill_store_bytes = used.stack_bytes = 512;
  EXPECT_NO_THROW(check_resources(source, used, "sm_90a"));
}

TEST(Compile, KeepsSourcesOnRequest) {
  FLASHCORE_REQUIRE_NVRTC();
  const test::TemporaryDirectory temporary;
  const std::string folder = temporary / "kept";
  {
    const test::ScopedEnvironment environment(
        test::ScopedEnvironment::Variables{{"FLASHCORE_KEEP_SOURCE", folder}});
    compile_cubin(*installed_nvrtc(), test::scale_kernel(), "sm_80");
    compile_cubin(*installed_nvrtc(), test::scale_kernel(), "sm_80");
  }
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    names.push_back(file.path().filename());
  }
  EXPECT_THAT(names, testing::ElementsAre(testing::MatchesRegex("scale\\.sm_80\\.[0-9a-f]+\\.cu")));
}

}  // namespace
}  // namespace flashcore
