#include "tests/runtime/support/processes.h"

#include <array>
#include <cstdlib>

#include <sys/wait.h>
#include <unistd.h>

namespace flashcore::test {
namespace {

struct Running {
  pid_t id;
  int output;
};

Running start(const std::vector<std::string>& arguments,
              const std::map<std::string, std::string>& environment) {
  std::array<int, 2> pipe_ends{};
  if (pipe(pipe_ends.data()) != 0) abort();
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipe_ends[1], STDOUT_FILENO);
    dup2(pipe_ends[1], STDERR_FILENO);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    std::string file = FLASHCORE_RUNTIME_WORKER;
    std::vector<char*> argv{file.data()};
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    execv(file.c_str(), argv.data());
    _exit(127);
  }
  close(pipe_ends[1]);
  return {.id = child, .output = pipe_ends[0]};
}

Finished finish(const Running& running) {
  Finished finished;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; (got = read(running.output, buffer.data(), buffer.size())) > 0;) {
    finished.output.append(buffer.data(), static_cast<std::size_t>(got));
  }
  close(running.output);
  int status = 0;
  waitpid(running.id, &status, 0);
  finished.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return finished;
}

std::vector<Finished> finish(const std::vector<Running>& running) {
  std::vector<Finished> finished;
  for (const Running& one : running) finished.push_back(finish(one));
  return finished;
}

}  // namespace

std::vector<Finished> run_workers(int count, const std::vector<std::string>& arguments,
                                  const std::map<std::string, std::string>& environment) {
  std::vector<Running> running;
  for (int i = 0; i < count; ++i) running.push_back(start(arguments, environment));
  return finish(running);
}

std::vector<Finished> run_workers(const std::vector<std::vector<std::string>>& arguments) {
  std::vector<Running> running;
  for (const std::vector<std::string>& of_one : arguments) running.push_back(start(of_one, {}));
  return finish(running);
}

}  // namespace flashcore::test
