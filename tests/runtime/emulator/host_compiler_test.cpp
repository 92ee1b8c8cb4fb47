// The compiler: found or missed, asked once, and nothing left on disk.
#include "runtime/emulator/host_compiler.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/runtime/emulator/support/kernels.h"

namespace flashcore::testing {
namespace {

namespace fs = std::filesystem;

/// Sets a variable for one test.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old, had_ = true;
    setenv(name, value.c_str(), 1);
  }
  ~Environment() { had_ ? setenv(name_, old_.c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::string old_;
  bool had_ = false;
};

/// A body that no other test compiles.
KernelSource fresh_kernel(const std::string& text) { return small_kernel("// " + text + "\n"); }

std::string compile_error(const KernelSource& source, const HostCompileOptions& options = {}) {
  try {
    compile_for_host(source, options);
  } catch (const CompileError& error) {
    return error.what();
  }
  return "none";
}

TEST(HostCompiler, SaysWhatToInstallWhenThereIsNone) {
  const Environment path("PATH", "/nonexistent"), cxx("FLASHCORE_CXX", "");
  const std::string message = compile_error(fresh_kernel("none"));
  EXPECT_NE(message.find("neither c++, g++ nor clang++ is on PATH"), std::string::npos) << message;
  EXPECT_NE(message.find("apt-get install g++"), std::string::npos) << message;
}

TEST(HostCompiler, NamesAWrongChoice) {
  const Environment cxx("FLASHCORE_CXX", "no-such-compiler");
  const std::string message = compile_error(fresh_kernel("wrong"));
  EXPECT_NE(message.find("the C++ compiler \"no-such-compiler\" cannot be run"), std::string::npos)
      << message;
  EXPECT_NE(message.find("FLASHCORE_CXX"), std::string::npos) << message;
  EXPECT_EQ(compile_error(fresh_kernel("wrong"), {.compiler = "c++", .keep_dir = ""}), "none");
}

TEST(HostCompiler, PassesOnWhatTheCompilerSays) {
  const KernelSource source = small_kernel("int x = undeclared;\n");
  const std::string message = compile_error(source);
  const std::string place = fmt::format("small.cu:{}:", line_of(source, "undeclared"));
  EXPECT_NE(message.find(place), std::string::npos) << message;
}

TEST(HostCompiler, RefusesAnotherParameterBlock) {
  KernelSource source = fresh_kernel("parameters");
  source.parameter_bytes = 40;
  EXPECT_THROW(compile_for_host(source, {}), InternalError);
}

TEST(HostCompiler, CompilesOnceHoweverManyAsk) {
  const KernelSource source = fresh_kernel("once");
  std::vector<std::shared_ptr<const HostKernel>> kernels(4);
  {
    std::vector<std::jthread> threads;
    for (auto& kernel : kernels)
      threads.emplace_back([&] { kernel = compile_for_host(source, {}); });
  }
  for (const auto& kernel : kernels) EXPECT_EQ(kernel, kernels[0]);
}

int mapped_kernels() {
  std::ifstream maps("/proc/self/maps");
  std::set<std::string> files;
  for (std::string line; std::getline(maps, line);)
    if (line.find("/small-") != std::string::npos) files.insert(line.substr(line.find('/')));
  return static_cast<int>(files.size());
}

TEST(HostCompiler, UnloadsWhatNobodyHolds) {
  const auto held = compile_for_host(fresh_kernel("held"), {});
  for (std::size_t i = 0; i < host_kernels_kept + 6; ++i)
    compile_for_host(fresh_kernel(fmt::format("number {}", i)), {});
  EXPECT_EQ(mapped_kernels(), static_cast<int>(host_kernels_kept) + 1);
  EXPECT_NE(compile_for_host(fresh_kernel("held"), {}), held);  // forgotten, but still there
  const auto last = fresh_kernel(fmt::format("number {}", host_kernels_kept + 5));
  EXPECT_EQ(compile_for_host(last, {}), compile_for_host(last, {}));
}

TEST(HostCompiler, LeavesNothingBehind) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("emulator-test-{}", getpid());
  fs::create_directory(folder);
  {
    const Environment temporary("TMPDIR", folder.string());
    compile_for_host(fresh_kernel("temporary"), {});
    EXPECT_TRUE(fs::is_empty(folder));
    compile_error(small_kernel("int x = undeclared_too;\n"));
    EXPECT_TRUE(fs::is_empty(folder));
  }
  fs::remove_all(folder);
}

// Two versions of one kernel in one folder: the loader must not take the first for the second.
TEST(HostCompiler, KeepsEveryVersion) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("emulator-kept-{}", getpid());
  const HostCompileOptions options{.compiler = "", .keep_dir = folder};
  const auto first = compile_for_host(fresh_kernel("kept 1"), options);
  const auto second = compile_for_host(fresh_kernel("kept 2"), options);
  EXPECT_NE(first->enter, second->enter);
  int sources = 0, libraries = 0;
  for (const fs::directory_entry& file : fs::directory_iterator(folder)) {
    sources += file.path().extension() == ".cpp";
    libraries += file.path().extension() == ".so";
  }
  EXPECT_EQ(sources, 2);
  EXPECT_EQ(libraries, 2);
  fs::remove_all(folder);
}

// The name of a kernel may be one of the C library's.
TEST(HostCompiler, NamesDoNotMeetTheLibrarys) {
  KernelSource source =
      small_kernel("float one = 1;\nfc::store_global<1>(p.y + thread * p.y_stride_0, &one);\n");
  source = with(source, "small(", "remainder(");
  source.name = source.entry = "remainder";
  SmallRun run;
  run(source);
  EXPECT_EQ(run.y[8], 1.f);
}

}  // namespace
}  // namespace flashcore::testing
