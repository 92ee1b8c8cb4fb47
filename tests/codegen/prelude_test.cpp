// The device prelude: every file compiles alone, all of them compile together, and a kernel gets the
// part it uses, each file behind those it needs.
#include "codegen/prelude.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace flashcore {
namespace {

namespace fs = std::filesystem;

/// What a command prints, and whether it succeeded.
std::pair<std::string, bool> run(const std::string& command) {
  std::string text;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::array<char, 512> buffer;
  while (pipe && std::fgets(buffer.data(), buffer.size(), pipe)) text += buffer.data();
  return {text, pipe && pclose(pipe) == 0};
}

/// Includes the files in a directory that holds the whole prelude.
void expect_compiles(const std::string& title, const std::vector<std::string>& included,
                     const std::vector<int>& architectures) {
  if (!run("nvcc --version").second) GTEST_SKIP() << "no nvcc on PATH";
  const fs::path directory =
      fs::path(testing::TempDir()) / fmt::format("flashcore-prelude-{}", title);
  fs::create_directories(directory);
  for (const PreludeFile& file : device_prelude())
    std::ofstream(directory / file.name) << file.text;
  std::ofstream text(directory / "test.cu");
  for (const std::string& name : included) text << "#include \"" << name << "\"\n";
  text.close();
  std::string command =
      fmt::format("cd {} && nvcc -std=c++17 -Werror all-warnings -fatbin -o out.fatbin test.cu",
                  directory.string());
  for (const int number : architectures)
    command += fmt::format(" -gencode arch=compute_{0},code=sm_{0}", number);
  const auto [words, compiled] = run(command);
  EXPECT_TRUE(compiled) << words;
  fs::remove_all(directory);
}

class PreludeFiles : public testing::TestWithParam<std::string> {};

// nvcc spends its time on the headers of CUDA, once an architecture. What a file needs of other files is
// the same for all of them, unless it asks for the architecture itself; what it needs of CUDA shows
// where all files are together.
TEST_P(PreludeFiles, CompileAlone) {
  bool asks = false;
  for (const PreludeFile& file : device_prelude())
    if (file.name == GetParam()) asks = file.text.find("__CUDA_ARCH__") != std::string_view::npos;
  expect_compiles(GetParam(), {GetParam()}, asks ? std::vector{80, 90, 120} : std::vector{80});
}

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const PreludeFile& file : device_prelude()) names.emplace_back(file.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Alone, PreludeFiles, testing::ValuesIn(names()), [](const auto& info) {
  return info.param.substr(0, info.param.find('.'));
});

TEST(Prelude, CompilesTogetherForEveryArchitecture) {
  expect_compiles("together", names(), {80, 90, 120});
}

TEST(PreludeText, HoldsWhatIsUsedAndNoMore) {
  const std::string text = prelude_for("fc::store_shared(0, fc::exp2(1.f));");
  EXPECT_NE(text.find("float exp2(float x)"), std::string::npos);
  EXPECT_NE(text.find("void store_shared(u32 address, float value)"), std::string::npos);
  EXPECT_EQ(text.find("void copy_async"), std::string::npos);
  EXPECT_EQ(text.find("void multiply"), std::string::npos);
}

TEST(PreludeText, IncludesNothingAndDefinesBeforeUse) {
  const std::string text =
      prelude_for("fc::multiply<fc::bf16>(d, a, b, c); fc::copy_async(x, y, 16);");
  EXPECT_EQ(text.find("#include"), std::string::npos);
  EXPECT_EQ(text.find("#pragma once"), std::string::npos);
  EXPECT_LT(text.find("struct bf16"), text.find("void multiply"));
}

TEST(PreludeText, DependsOnTheNamesAlone) {
  const std::string one = prelude_for("fc::exp2(x); fc::copy_async(a, b, 16);");
  EXPECT_EQ(prelude_for("fc::copy_async(b, a, 4);\n\n fc::exp2(fc::exp2(y));"), one);
}

}  // namespace
}  // namespace flashcore
