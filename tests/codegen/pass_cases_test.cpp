// Runs the cases of tests/cases and compares text; see pass_cases.h.
#include "tests/codegen/pass_cases.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "dsl/ir/parse.h"
#include "dsl/ir/print.h"
#include "dsl/ir/verify.h"

namespace flashcore {
namespace {

using namespace testing_support;

std::string as_remarks(const std::string& message) {
  std::istringstream lines(message);
  std::string text;
  for (std::string line; std::getline(lines, line);) text += "// " + line + "\n";
  return text;
}

/// Besides the passes there are two files for what is no pass: round_trip and verify.
std::string run(const std::string& name, const PassCase& one) {
  try {
    ir::Function f = ir::parse(one.input, name + ".fc");
    if (name == "verify") ir::verify(f);
    if (const Pass* pass = find_pass(name)) {
      const Schedule schedule = one.schedule();
      pass->run(f, {schedule, one.target()});
      ir::verify_after(f, name);
    }
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

class PassCases : public testing::TestWithParam<std::string> {};

TEST_P(PassCases, GiveTheExpectedText) {
  const std::string& name = GetParam();
  ASSERT_TRUE(find_pass(name) || name == "round_trip" || name == "verify")
      << name << ".fc is not named after a pass";
  const char* flag = std::getenv("FLASHCORE_UPDATE");
  const bool update = flag && *flag && std::string_view(flag) != "0";
  std::string updated;
  int number = 0;
  for (const PassCase& one : read_cases(name)) {
    SCOPED_TRACE("case " + std::to_string(++number) + " of " + name + ".fc");
    const std::string got = run(name, one);
    updated += (number > 1 ? case_separator : "") + one.input + expect_line + got;
    if (update) continue;
    if (one.expected)
      EXPECT_EQ(got, *one.expected);
    else
      ADD_FAILURE() << "no line \"// EXPECT\"; FLASHCORE_UPDATE=1 adds it";
  }
  if (update) std::ofstream(cases_directory / (name + ".fc")) << updated;
}

TEST(PassCaseFiles, EveryPassHasOne) {
  const std::vector<std::string> files = case_files();
  for (const Pass& pass : pipeline())
    EXPECT_TRUE(std::count(files.begin(), files.end(), pass.name)) << pass.name;
}

INSTANTIATE_TEST_SUITE_P(Text, PassCases, testing::ValuesIn(case_files()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace flashcore
