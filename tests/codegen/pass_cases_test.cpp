// Passes tested on text. Every tests/cases/<pass>.fc holds cases for the pass of its name, `//
// -----` between them:
//
//   // What this case shows.
//   // SCHEDULE {"tiles": {"rows": 64}}       (optional; the default schedule otherwise)
//   // TARGET sm_90                           (optional; sm_80 otherwise)
//   program ...
//   // EXPECT
//   program ...                               (what the pass leaves, exactly)
//
// Where the pass refuses, the message stands after EXPECT, every line as a remark. With
// FLASHCORE_UPDATE=1 in the environment the test writes what it got into the file; read the diff.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "codegen/pass.h"
#include "dsl/ir/parse.h"
#include "dsl/ir/print.h"
#include "dsl/ir/verify.h"
#include "dsl/json.h"

namespace flashcore {
namespace {

const std::filesystem::path cases = std::filesystem::path(__FILE__).parent_path() / "../cases";
const std::string expect_line = "// EXPECT\n", separator = "// -----\n";

using RunPass = std::function<void(ir::Function&, const PassContext&)>;

/// What a file of cases can be named after: the passes, and two that change nothing.
const std::map<std::string, RunPass, std::less<>>& passes_by_name() {
  static const auto passes = [] {
    std::map<std::string, RunPass, std::less<>> table;
    for (const Pass& pass : pipeline()) table[std::string(pass.name)] = pass.run;
    table["round_trip"] = [](ir::Function&, const PassContext&) {};
    table["verify"] = [](ir::Function& f, const PassContext&) { ir::verify(f); };
    return table;
  }();
  return passes;
}

/// The rest of the line `// <keyword> ...`, or nothing.
std::string directive(const std::string& text, const std::string& keyword) {
  std::istringstream lines(text);
  const std::string start = "// " + keyword + " ";
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(start)) return line.substr(start.size());
  return "";
}

std::string as_remarks(const std::string& message) {
  std::istringstream lines(message);
  std::string text;
  for (std::string line; std::getline(lines, line);) text += "// " + line + "\n";
  return text;
}

std::string run(const std::string& name, const std::string& input) {
  try {
    ir::Function f = ir::parse(input, name + ".fc");
    const std::string schedule_text = directive(input, "SCHEDULE");
    const std::string target = directive(input, "TARGET");
    const Schedule schedule =
        schedule_text.empty() ? Schedule{} : schedule_from_json(schedule_text);
    passes_by_name().at(name)(f, {schedule, find_target(target.empty() ? "sm_80" : target)});
    if (name != "round_trip") ir::verify_after(f, name);
    std::string text = ir::print(f);
    EXPECT_EQ(ir::print(ir::parse(text)), text) << "the text form loses something";
    return text;
  } catch (const InternalError& error) {
    ADD_FAILURE() << error.what();
    return as_remarks(error.what());
  } catch (const Error& error) {
    return as_remarks(error.what());
  }
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find(separator, begin)) != std::string::npos;
       begin = end + separator.size())
    parts.push_back(text.substr(begin, end - begin));
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<std::string> case_files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(cases))
    if (entry.path().extension() == ".fc") names.push_back(entry.path().stem());
  std::sort(names.begin(), names.end());
  return names;
}

class PassCases : public testing::TestWithParam<std::string> {};

TEST_P(PassCases, GiveTheExpectedText) {
  const std::string& name = GetParam();
  ASSERT_TRUE(passes_by_name().contains(name)) << name << ".fc is not named after a pass";
  const std::filesystem::path path = cases / (name + ".fc");
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();

  const char* flag = std::getenv("FLASHCORE_UPDATE");
  const bool update = flag && *flag && std::string_view(flag) != "0";
  std::string updated;
  int number = 0;
  for (const std::string& one : split(text.str())) {
    SCOPED_TRACE("case " + std::to_string(++number) + " of " + name + ".fc");
    const std::size_t expect = one.find(expect_line);
    std::string input = one.substr(0, expect);
    if (!input.ends_with('\n')) input += '\n';
    const std::string got = run(name, input);
    updated += (number > 1 ? separator : "") + input + expect_line + got;
    if (update) continue;
    if (expect == std::string::npos)
      ADD_FAILURE() << "no line \"// EXPECT\"; FLASHCORE_UPDATE=1 adds it";
    else
      EXPECT_EQ(got, one.substr(expect + expect_line.size()));
  }
  if (update) std::ofstream(path) << updated;
}

INSTANTIATE_TEST_SUITE_P(Text, PassCases, testing::ValuesIn(case_files()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace flashcore
