#include "runtime/emulator/host_toolchain.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <system_error>

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dsl/error.h"
#include "runtime/environment.h"

extern char** environ;

namespace flashcore {
namespace {

namespace fs = std::filesystem;

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

[[noreturn]] void no_directory(const std::string& path, const std::string& reason) {
  throw CompileError({.what = "no directory to compile a kernel for the CPU in",
                      .why = fmt::format("{}: {}", path, reason),
                      .fix = "set TMPDIR to a directory that can be written",
                      .where = {}});
}

}  // namespace

std::string find_host_compiler(std::string wanted, std::string_view whose) {
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
      {.what = fmt::format("{} a C++ compiler, and this machine has none", whose),
       .why = "neither c++, g++ nor clang++ is on PATH",
       .fix =
           fmt::format("install one (\"apt-get install g++\"), or set {} to its path; GPU arrays "
                       "need no compiler",
                       name_of(EnvironmentVariable::cxx)),
       .where = {}});
}

std::string read_file(const fs::path& path) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path, error);
  if (error) return "";
  std::string content(bytes, '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(content.data(), static_cast<std::streamsize>(content.size()));
  return in ? content : "";
}

void write_file(const fs::path& path, std::string_view content) {
  std::ofstream out(path, std::ios::binary);
  out << content;
  out.close();
  if (!out)
    throw CompileError({.what = fmt::format("{} cannot be written", path.string()),
                        .why = std::strerror(errno),
                        .fix = "make room there, or set TMPDIR to a directory that has some",
                        .where = {}});
}

PrivateDirectory::PrivateDirectory(const std::string& keep_dir) : keep_(!keep_dir.empty()) {
  std::error_code error;
  path_ = keep_dir;
  if (keep_) {
    fs::create_directories(path_, error);
    if (error) no_directory(keep_dir, error.message());
    return;
  }
  const fs::path parent = fs::temp_directory_path(error);
  if (error) no_directory(system_variable("TMPDIR"), error.message());
  std::string name = (parent / "flashcore-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) no_directory(name, std::strerror(errno));  // mode 0700
  path_ = name;
}

PrivateDirectory::~PrivateDirectory() {
  std::error_code ignored;
  if (!keep_) fs::remove_all(path_, ignored);
}

std::string identity_of_compiler(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, std::string> known;  // by what needs no program to be run
  struct stat status {};
  stat(path.c_str(), &status);
  const std::string stamp = fmt::format("{}\n{} {} {}.{}\n", path, status.st_ino, status.st_size,
                                        status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  const std::lock_guard lock(mutex);
  std::string& identity = known[stamp];
  if (identity.empty()) {
    const PrivateDirectory directory("");
    const fs::path said = directory.path() / "version";
    run_program({path, "--version"}, said);
    identity = stamp + read_file(said);
  }
  return identity;
}

int run_program(const std::vector<std::string>& command, const fs::path& log) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  // In a group of its own, for Ctrl-C ends a terminal's whole group: a compile that it cut off
  // would look like one that the compiler refuses.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  pid_t child = 0;
  const int error = posix_spawn(&child, argv[0], &files, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
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

}  // namespace flashcore
