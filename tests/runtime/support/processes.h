// Runs the worker of these tests in processes of its own.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace flashcore::test {

struct Finished {
  int status = 0;
  std::string output;  ///< standard output and error
};

/// Starts all of them at once, each with the arguments and extra environment, and waits.
std::vector<Finished> run_workers(int count, const std::vector<std::string>& arguments,
                                  const std::map<std::string, std::string>& environment = {});

/// One for each list of arguments, all at once.
std::vector<Finished> run_workers(const std::vector<std::vector<std::string>>& arguments);

inline Finished run_worker(const std::vector<std::string>& arguments,
                           const std::map<std::string, std::string>& environment = {}) {
  return run_workers(1, arguments, environment).front();
}

}  // namespace flashcore::test
