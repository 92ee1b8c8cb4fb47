#include "runtime/emulator/host_compiler.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <sstream>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dsl/error.h"
#include "runtime/emulator/host_prelude.h"
#include "runtime/emulator/machine.h"
#include "runtime/environment.h"

extern char** environ;

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

// Kernels are small and run once or twice: most of the time is the compiler's. Arithmetic means
// what it says: no contraction that the GPU would not be told of either.
constexpr const char* host_flags[] = {"-O1", "-ffp-contract=off"};

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string find_on_path(const std::string& program) {
  if (program.find('/') != std::string::npos)
    return access(program.c_str(), X_OK) == 0 ? program : std::string();
  std::istringstream folders(system_variable("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string path = folder + "/" + program;
    if (!folder.empty() && access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

std::string find_compiler(const HostCompileOptions& options) {
  std::string wanted = options.compiler;
  if (wanted.empty()) wanted = value_of(EnvironmentVariable::cxx).value_or("");
  if (!wanted.empty()) {
    if (std::string found = find_on_path(wanted); !found.empty()) return found;
    throw CompileError({.what = fmt::format("the C++ compiler \"{}\" cannot be run", wanted),
                        .why = fmt::format("{} or the emulator's options name it, and there is no "
                                           "such program",
                                           name_of(EnvironmentVariable::cxx)),
                        .fix = "name an existing compiler, or none for the one on PATH",
                        .where = {}});
  }
  for (const char* name : {"c++", "g++", "clang++"})
    if (std::string found = find_on_path(name); !found.empty()) return found;
  throw CompileError(
      {.what = "kernels for CPU arrays need a C++ compiler, and this machine has none",
       .why = "neither c++, g++ nor clang++ is on PATH",
       .fix =
           fmt::format("install one (\"apt-get install g++\"), or set {} to its path; GPU arrays "
                       "need no compiler",
                       name_of(EnvironmentVariable::cxx)),
       .where = {}});
}

/// A directory of this process and this compile, with what is in it, until the end of the scope.
class PrivateDirectory {
 public:
  explicit PrivateDirectory(const std::string& keep_dir) : keep_(!keep_dir.empty()) {
    if (keep_) {
      fs::create_directories(keep_dir);
      path_ = keep_dir;
      return;
    }
    std::string name = (fs::temp_directory_path() / "flashcore-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {  // mode 0700
      throw CompileError({.what = "no private directory to compile a kernel for the CPU in",
                          .why = fmt::format("{}: {}", name, std::strerror(errno)),
                          .fix = "set TMPDIR to a directory that can be written",
                          .where = {}});
    }
    path_ = name;
  }
  ~PrivateDirectory() {
    std::error_code ignored;
    if (!keep_) fs::remove_all(path_, ignored);
  }
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  bool keep_;
  fs::path path_;
};

/// Exit status of the program; its output goes to `log`. No shell is involved.
int run_program(const std::vector<std::string>& command, const fs::path& log) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  pid_t child = 0;
  const int error = posix_spawn(&child, argv[0], &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    throw CompileError({.what = fmt::format("{} cannot be started", command[0]),
                        .why = std::strerror(error),
                        .fix = "",
                        .where = {}});
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

template <class T>
T symbol(void* library, const char* name) {
  return reinterpret_cast<T>(dlsym(library, name));
}

HostKernel compile(const KernelSource& source, const HostCompileOptions& options,
                   const std::string& compiler, const std::string& text) {
  const auto start = std::chrono::steady_clock::now();
  const PrivateDirectory directory(options.keep_dir);
  const fs::path code = directory.path() / (source.name + ".cpp"),
                 library = directory.path() / (source.name + ".so"),
                 log = directory.path() / (source.name + ".log");
  std::ofstream(code, std::ios::binary) << text;
  std::vector<std::string> command = {compiler, "-std=c++20", "-w", "-fPIC", "-shared"};
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

  const std::string compiler = find_compiler(options), text = host_text(source),
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
