#include "runtime/emulator/host_compiler.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <iterator>
#include <list>
#include <mutex>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include <dlfcn.h>

#include "dsl/error.h"
#include "runtime/cache/cache.h"
#include "runtime/cache/digest.h"
#include "runtime/emulator/host_code.h"
#include "runtime/emulator/host_prelude.h"
#include "runtime/emulator/host_toolchain.h"
#include "runtime/emulator/machine.h"
#include "runtime/environment.h"
#include "runtime/log.h"
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

template <class T>
T symbol(void* library, const char* name) {
  return reinterpret_cast<T>(dlsym(library, name));
}

// What follows the compiler's name, but for the files.
std::vector<std::string> command_of(const HostCompileOptions& options) {
  std::vector<std::string> command(std::begin(host_flags), std::end(host_flags));
  if (!options.keep_dir.empty()) command.emplace_back("-g");
  command.insert(command.end(), {"-lm", "-lc", poison_flag});
  return command;
}

/// The files of one compile.
struct Files {
  // A name of its own for every text: the loader takes a path it knows for the library it has.
  Files(const fs::path& directory, const std::string& kernel, const std::string& text)
      : stem(directory / fmt::format("{}-{:016x}", kernel, std::hash<std::string>()(text))) {}

  [[nodiscard]] fs::path code() const { return stem.string() + ".cpp"; }
  [[nodiscard]] fs::path library() const { return stem.string() + ".so"; }
  [[nodiscard]] fs::path log() const { return stem.string() + ".log"; }

  fs::path stem;
};

void compile(const std::string& kernel, const std::string& compiler,
             const std::vector<std::string>& flags, const std::string& text, const Files& files) {
  write_file(files.code(), text);
  std::vector<std::string> command = {compiler, "-o", files.library().string(),
                                      files.code().string()};
  command.insert(command.end(), flags.begin(), flags.end());
  bool refused = run_program(command, files.log()) != 0;
  if (refused && read_file(files.log()).find(poison_flag) != std::string::npos) {
    command.pop_back();
    refused = run_program(command, files.log()) != 0;
  }
  if (refused) {
    throw CompileError({.what = fmt::format("the host compiler refuses kernel {}", kernel),
                        .why = fmt::format("{} says:\n{}", compiler, read_file(files.log())),
                        .fix = fmt::format("a C++20 compiler; set {} to choose another",
                                           name_of(EnvironmentVariable::cxx)),
                        .where = {}});
  }
}

/// Null if the loader refuses it; dlerror() says why.
std::shared_ptr<HostKernel> load(const KernelSource& source, const fs::path& library) {
  void* loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) return nullptr;
  auto kernel = std::make_shared<HostKernel>();
  kernel->library = loaded;
  const auto* size = symbol<const unsigned*>(loaded, "flashcore_parameter_bytes");
  if (*size != static_cast<unsigned>(source.parameter_bytes)) {
    throw InternalError(fmt::format("kernel {} takes {} bytes of parameters, its launch packs {}",
                                    source.name, *size, source.parameter_bytes));
  }
  symbol<void (*)(const FlashcoreMachine*)>(loaded, "flashcore_attach")(&emulated_machine());
  kernel->enter = symbol<void (*)(const void*)>(loaded, "flashcore_enter");
  return kernel;
}

std::shared_ptr<const HostKernel> compile_and_load(const KernelSource& source,
                                                   const std::string& compiler,
                                                   const std::vector<std::string>& flags,
                                                   const std::string& text, const Files& files) {
  const auto start = std::chrono::steady_clock::now();
  compile(source.name, compiler, flags, text, files);
  const auto kernel = load(source, files.library());
  if (kernel == nullptr) {
    throw CompileError({.what = fmt::format("kernel {} cannot be loaded on the CPU", source.name),
                        .why = dlerror(),
                        .fix = "if the directory forbids programs (noexec), set TMPDIR to another",
                        .where = {}});
  }
  kernel->compile_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return kernel;
}

std::shared_ptr<const HostKernel> find_or_compile(const KernelSource& source,
                                                  const HostCompileOptions& options,
                                                  const std::string& compiler,
                                                  const std::string& text) {
  const std::vector<std::string> flags = command_of(options);
  const PrivateDirectory directory(options.keep_dir);
  const Files files(directory.path(), source.entry, text);
  EntryStore& entries = KernelCache::shared().entries();
  const bool is_shared =
      entries.directory() != nullptr && options.keep_dir.empty() && !boot_of_machine().empty();
  if (!is_shared) return compile_and_load(source, compiler, flags, text, files);

  const CacheKey key = host_code_key({.boot = boot_of_machine(),
                                      .compiler = identity_of_compiler(compiler),
                                      .flags = flags,
                                      .text = text},
                                     source.name);
  std::shared_ptr<const HostKernel> kernel;
  entries.find_or_build(
      EntryKind::host_code, key,
      [&](std::string_view file) {
        const std::optional<std::string_view> library = decode_host_code(key, file);
        if (!library) return false;
        // The bytes that were checked, in a directory of this process: nobody can exchange them.
        write_file(files.library(), *library);
        kernel = load(source, files.library());
        return kernel != nullptr;
      },
      [&] {
        kernel = compile_and_load(source, compiler, flags, text, files);
        const std::string library = read_file(files.library());
        return library.empty() ? "" : encode_host_code(key, library);
      });
  return kernel;
}

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
                     expand_prelude("prelude.h"), source.entry, with_unwritten_arrays(source.body),
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
  const HookDeferral messages_after_the_lock;
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
      mine.set_value(find_or_compile(source, options, compiler, text));
    } catch (...) {
      mine.set_exception(std::current_exception());
      const std::lock_guard lock(mutex);
      std::erase_if(recent, [&](const Known& known) { return known.key == key; });  // try again
    }
  }
  return result.get();
}

}  // namespace flashcore
