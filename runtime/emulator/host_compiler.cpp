#include "runtime/emulator/host_compiler.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <vector>

#include <dlfcn.h>

#include "dsl/error.h"
#include "runtime/emulator/host_prelude.h"
#include "runtime/emulator/host_toolchain.h"
#include "runtime/emulator/machine.h"
#include "runtime/environment.h"

namespace flashcore {
namespace {

namespace fs = std::filesystem;

// Behind the body: how the emulator reaches the kernel, whatever its parameter type is called.
constexpr std::string_view entry = R"(#line 1 "entry"
template <class P>
static void fc_call(void (*kernel)(P), const void* parameters) {
  kernel(*static_cast<const P*>(parameters));
}
template <class P>
static constexpr unsigned fc_size(void (*)(P)) {
  return sizeof(P);
}
extern "C" {
extern const unsigned flashcore_parameter_bytes;
const unsigned flashcore_parameter_bytes = fc_size(FC_KERNEL);
void flashcore_attach(const FlashcoreMachine* machine) { fc_machine = machine; }
void flashcore_enter(const void* parameters) { fc_call(FC_KERNEL, parameters); }
}
)";

// -O1: kernels are small and run once or twice, so that the compiler takes as long as the kernel.
// Products and sums are fused only where the body says so. A kernel called "read" must not become
// the C library's (-Bsymbolic).
constexpr const char* host_flags[] = {"-std=c++20", "-O1",     "-ffp-contract=off", "-w",
                                      "-fPIC",      "-shared", "-Wl,-Bsymbolic"};

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <class T>
T symbol(void* library, const char* name) {
  return reinterpret_cast<T>(dlsym(library, name));
}

HostKernel compile(const KernelSource& source, const HostCompileOptions& options,
                   const std::string& compiler, const std::string& text) {
  const auto start = std::chrono::steady_clock::now();
  const PrivateDirectory directory(options.keep_dir);
  // A name of its own for every text: the loader takes a path it knows for the library it has.
  const std::string name = fmt::format("{}-{:016x}", source.name, std::hash<std::string>()(text));
  const fs::path code = directory.path() / (name + ".cpp"),
                 library = directory.path() / (name + ".so"),
                 log = directory.path() / (name + ".log");
  std::ofstream(code, std::ios::binary) << text;
  std::vector<std::string> command = {compiler};
  for (const char* flag : host_flags) command.emplace_back(flag);
  if (!options.keep_dir.empty()) command.emplace_back("-g");
  command.insert(command.end(), {"-o", library.string(), code.string()});
  if (run_program(command, log) != 0) {
    throw CompileError({.what = fmt::format("the host compiler refuses kernel {}", source.name),
                        .why = fmt::format("{} says:\n{}", compiler, read_file(log)),
                        .fix = fmt::format("a C++20 compiler; set {} to choose another",
                                           name_of(EnvironmentVariable::cxx)),
                        .where = {}});
  }
  void* loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    throw CompileError({.what = fmt::format("kernel {} cannot be loaded on the CPU", source.name),
                        .why = dlerror(),
                        .fix = "if the directory forbids programs (noexec), set TMPDIR to another",
                        .where = {}});
  }
  const auto* size = symbol<const unsigned*>(loaded, "flashcore_parameter_bytes");
  if (*size != static_cast<unsigned>(source.parameter_bytes)) {
    throw InternalError(fmt::format("kernel {} takes {} bytes of parameters, its launch packs {}",
                                    source.name, *size, source.parameter_bytes));
  }
  symbol<void (*)(const FlashcoreMachine*)>(loaded, "flashcore_attach")(&emulated_machine());
  HostKernel kernel;
  kernel.enter = symbol<void (*)(const void*)>(loaded, "flashcore_enter");
  kernel.compile_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return kernel;
}

}  // namespace

std::string host_text(const KernelSource& source) {
  return fmt::format("{0}#line 1 \"{1}.cu\"\n{2}\n#define FC_KERNEL {1}\n{3}",
                     expand_prelude("prelude.h"), source.name, source.body, entry);
}

std::shared_ptr<const HostKernel> compile_for_host(const KernelSource& source,
                                                   const HostCompileOptions& options) {
  using Result = std::shared_future<std::shared_ptr<const HostKernel>>;
  static std::mutex mutex;
  static std::map<std::string, Result> compiled;

  const std::string compiler = find_host_compiler(options.compiler), text = host_text(source),
                    key = compiler + '\n' + options.keep_dir + '\n' + text;
  std::promise<std::shared_ptr<const HostKernel>> mine;
  Result result;
  bool first = false;
  {
    const std::lock_guard lock(mutex);
    const auto [entry, added] = compiled.try_emplace(key);
    if (added) entry->second = mine.get_future().share();
    result = entry->second;
    first = added;
  }
  if (first) {
    try {
      mine.set_value(std::make_shared<HostKernel>(compile(source, options, compiler, text)));
    } catch (...) {
      mine.set_exception(std::current_exception());
      const std::lock_guard lock(mutex);
      compiled.erase(key);  // who asks again tries again
    }
  }
  return result.get();
}

}  // namespace flashcore
