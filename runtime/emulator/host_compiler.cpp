#include "runtime/emulator/host_compiler.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <list>
#include <mutex>
#include <sstream>
#include <vector>

#include <dlfcn.h>

#include "dsl/error.h"
#include "runtime/cache/digest.h"
#include "runtime/emulator/host_prelude.h"
#include "runtime/emulator/host_toolchain.h"
#include "runtime/emulator/machine.h"
#include "runtime/environment.h"
#include "runtime/no_fork.h"

namespace flashcore {
namespace {

namespace fs = std::filesystem;

// Behind the body: how the emulator reaches the kernel, whatever its parameter type is called; and
// what the compiler calls for an index outside of an array (the interface is that of its
// sanitizer's library, which nothing is linked to; under a name that the compiler makes no
// assumptions about).
constexpr std::string_view entry = R"(#line 1 "entry"
struct fc_type {
  unsigned short kind, info;  // of an integer: twice the logarithm of its bits, and 1 if signed
  char name[1];
};
struct fc_index_site {
  const char* file;
  unsigned line, column;
  const fc_type* array;
  const fc_type* index;
};
extern "C" void fc_outside(const fc_index_site* site, unsigned long index)
    __asm__("__ubsan_handle_out_of_bounds");
void fc_outside(const fc_index_site* site, unsigned long index) {
  const bool is_int = site->index->info == (5 << 1 | 1);
  fc_machine->leave_array(site->array->name, is_int ? static_cast<int>(index) : static_cast<long>(index),
                          static_cast<int>(site->line));
}
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

// -O0: kernels run once or twice, and most of their time passes in the machine: optimised they run
// a sixth faster, and take twice as long to compile. Products and sums are fused only where the
// body says so. A kernel called "read" must not become the C library's (-Bsymbolic).
constexpr const char* host_flags[] = {
    "-std=c++20",       "-O0",   "-ffp-contract=off", "-Wno-psabi",     "-fsanitize=bounds",
    "-pedantic-errors", "-fPIC", "-shared",           "-Wl,-Bsymbolic", "-nodefaultlibs"};
// Registers that nobody has written hold what no kernel expects, rather than what was there before.
// GCC has it from version 12 on. Arrays of float get a NaN besides.
constexpr const char* poison_flag = "-ftrivial-auto-var-init=pattern";

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <class T>
T symbol(void* library, const char* name) {
  return reinterpret_cast<T>(dlsym(library, name));
}

std::shared_ptr<const HostKernel> compile(const KernelSource& source,
                                          const HostCompileOptions& options,
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
  command.insert(command.end(), {"-o", library.string(), code.string(), "-lm", "-lc", poison_flag});
  bool refused = run_program(command, log) != 0;
  if (refused && read_file(log).find(poison_flag) != std::string::npos) {
    command.pop_back();
    refused = run_program(command, log) != 0;
  }
  if (refused) {
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
  auto kernel = std::make_shared<HostKernel>();
  kernel->library = loaded;
  const auto* size = symbol<const unsigned*>(loaded, "flashcore_parameter_bytes");
  if (*size != static_cast<unsigned>(source.parameter_bytes)) {
    throw InternalError(fmt::format("kernel {} takes {} bytes of parameters, its launch packs {}",
                                    source.name, *size, source.parameter_bytes));
  }
  symbol<void (*)(const FlashcoreMachine*)>(loaded, "flashcore_attach")(&emulated_machine());
  kernel->enter = symbol<void (*)(const void*)>(loaded, "flashcore_enter");
  kernel->compile_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return kernel;
}

}  // namespace

namespace {

/// Behind each declaration of an array of float without a value, on its line: fc::forget().
std::string with_unwritten_arrays(const std::string& body) {
  constexpr std::string_view type = "float ";
  std::string text;
  std::istringstream lines(body);
  for (std::string line; std::getline(lines, line); text += '\n') {
    text += line;
    const std::size_t begin = line.find_first_not_of(' ');
    if (begin == std::string::npos || line.compare(begin, type.size(), type) != 0) continue;
    const std::size_t name = begin + type.size(), end = line.find('[', name);
    if (end == std::string::npos || !line.ends_with("];") ||
        line.find_first_of("=,(", name) != std::string::npos)
      continue;
    text += fmt::format(" fc::forget({});", line.substr(name, end - name));
  }
  return text;
}

}  // namespace

HostKernel::~HostKernel() {
  if (library != nullptr) dlclose(library);
}

std::string host_text(const KernelSource& source) {
  return fmt::format("{0}#line 1 \"{1}.cu\"\n{2}\n#define FC_KERNEL {1}\n{3}",
                     expand_prelude("prelude.h"), source.name, with_unwritten_arrays(source.body),
                     entry);
}

std::shared_ptr<const HostKernel> compile_for_host(const KernelSource& source,
                                                   const HostCompileOptions& options) {
  using Result = std::shared_future<std::shared_ptr<const HostKernel>>;
  static std::mutex mutex;
  struct Known {
    std::string key;
    Result result;
  };
  static std::list<Known> recent;  // the latest first

  const std::string compiler = find_host_compiler(options.compiler), text = host_text(source),
                    key = digest_of(compiler + '\n' + options.keep_dir + '\n' + text);
  const NoFork whole;
  std::promise<std::shared_ptr<const HostKernel>> mine;
  Result result;
  bool first = false;
  {
    const std::lock_guard lock(mutex);
    const auto known = std::ranges::find(recent, key, &Known::key);
    first = known == recent.end();
    if (first)
      recent.push_front({key, mine.get_future().share()});
    else
      recent.splice(recent.begin(), recent, known);
    result = recent.front().result;
    if (recent.size() > host_kernels_kept) recent.pop_back();
  }
  if (first) {
    try {
      mine.set_value(compile(source, options, compiler, text));
    } catch (...) {
      mine.set_exception(std::current_exception());
      const std::lock_guard lock(mutex);
      std::erase_if(recent, [&](const Known& known) { return known.key == key; });  // try again
    }
  }
  return result.get();
}

}  // namespace flashcore
