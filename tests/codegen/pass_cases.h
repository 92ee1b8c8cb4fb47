// Passes tested on text. Every tests/cases/<pass>.fc holds cases for the pass of its name, with a
// line
// `// -----` between them:
//
//   // What this case shows.
//   // SCHEDULE {"tiles": {"rows": 64}}       (optional; the default schedule otherwise)
//   // TARGET sm_90                           (optional; sm_80 otherwise)
//   // SHARED 20000                           (optional: bytes of shared memory of a block)
//   program ...
//   // EXPECT
//   program ...                               (what the pass leaves, exactly)
//
// Where the pass refuses, the message stands after EXPECT, every line as a remark. With
// FLASHCORE_UPDATE=1 in the environment the test writes what it got into the file; read the diff.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "codegen/pass.h"
#include "dsl/json.h"

namespace flashcore::testing_support {

inline const std::filesystem::path cases_directory =
    std::filesystem::path(FLASHCORE_TESTS_DIR) / "cases";
inline const std::string expect_line = "// EXPECT\n", case_separator = "// -----\n";

struct PassCase {
  std::string input;                    ///< with the directives
  std::optional<std::string> expected;  ///< nothing where the line EXPECT is missing

  /// The rest of the line `// <keyword> ...`, or nothing.
  [[nodiscard]] std::string directive(const std::string& keyword) const {
    std::istringstream lines(input);
    const std::string start = "// " + keyword + " ";
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with(start)) return line.substr(start.size());
    return "";
  }
  [[nodiscard]] Schedule schedule() const {
    const std::string text = directive("SCHEDULE");
    return text.empty() ? Schedule{} : schedule_from_json(text);
  }
  [[nodiscard]] Target target() const {
    const std::string name = directive("TARGET"), shared = directive("SHARED");
    Target target = find_target(name.empty() ? "sm_80" : name);
    if (!shared.empty()) target.shared_per_block = std::stoi(shared);
    return target;
  }
};

/// The names of the files of cases, without their ending.
inline std::vector<std::string> case_files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(cases_directory))
    if (entry.path().extension() == ".fc") names.push_back(entry.path().stem());
  std::sort(names.begin(), names.end());
  return names;
}

inline std::vector<PassCase> read_cases(const std::string& file) {
  std::ostringstream stream;
  stream << std::ifstream(cases_directory / (file + ".fc")).rdbuf();
  std::string text = stream.str();
  std::vector<PassCase> cases;
  while (true) {
    const std::size_t end = text.find(case_separator);
    const std::string one = text.substr(0, end);
    const std::size_t expect = one.find(expect_line);
    PassCase& read = cases.emplace_back();
    read.input = one.substr(0, expect);
    if (!read.input.ends_with('\n')) read.input += '\n';
    if (expect != std::string::npos) read.expected = one.substr(expect + expect_line.size());
    if (end == std::string::npos) return cases;
    text.erase(0, end + case_separator.size());
  }
}

/// The pass of that name, or null.
inline const Pass* find_pass(const std::string& name) {
  for (const Pass& pass : pipeline())
    if (pass.name == name) return &pass;
  return nullptr;
}

}  // namespace flashcore::testing_support
