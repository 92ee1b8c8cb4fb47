#include "runtime/environment.h"

#include <filesystem>
#include <regex>
#include <set>

#include <gmock/gmock.h>

#include "dsl/error.h"
#include "tests/runtime/support/scoped_environment.h"
#include "tests/runtime/support/temporary_directory.h"

namespace flashcore {
namespace {

namespace fs = std::filesystem;

TEST(Environment, TheTableFollowsTheEnumeration) {
  std::set<std::string> names;
  int index = 0;
  for (const EnvironmentEntry& entry : environment_table()) {
    EXPECT_EQ(static_cast<int>(entry.id), index++) << entry.name;
    EXPECT_TRUE(std::string(entry.name).starts_with("FLASHCORE_")) << entry.name;
    EXPECT_STRNE(entry.meaning, "");
    names.insert(entry.name);
  }
  EXPECT_EQ(names.size(), environment_table().size());
  EXPECT_EQ(index, static_cast<int>(EnvironmentVariable::log) + 1);  // the last one
}

TEST(Environment, EmptyCountsAsUnset) {
  const auto read = [](const char* value) {
    const test::ScopedEnvironment environment(
        test::ScopedEnvironment::Variables{{"FLASHCORE_KEEP_SOURCE", value}});
    return value_of(EnvironmentVariable::keep_source);
  };
  EXPECT_FALSE(read(""));
  EXPECT_EQ(read("/x"), "/x");
}

TEST(Environment, AWordThatIsNoChoiceIsAnError) {
  const auto read = [](const char* value) {
    const test::ScopedEnvironment environment(
        test::ScopedEnvironment::Variables{{"FLASHCORE_COMPILE", value}});
    return choice_of(EnvironmentVariable::compile);
  };
  EXPECT_EQ(read(""), "allow");
  EXPECT_EQ(read("allow"), "allow");
  EXPECT_EQ(read("forbid"), "forbid");
  EXPECT_EQ(read("warn"), "warn");
  for (const char* wrong : {"never", "Forbid", "for", "allow forbid", " "}) {
    try {
      read(wrong);
      ADD_FAILURE() << wrong;
    } catch (const CacheError& error) {
      EXPECT_EQ(error.complaint().what, std::string("FLASHCORE_COMPILE=") + wrong);
      EXPECT_EQ(error.complaint().why, "it takes allow or warn or tiered or eager or forbid");
      EXPECT_EQ(error.complaint().fix, "unset it for the default, allow");
    }
  }
}

// Whoever reads a variable on the side hides it from the table.
TEST(Environment, NothingElseReadsIt) {
  const fs::path root = FLASHCORE_SOURCE_DIRECTORY;
  const std::regex call("\\b(secure_)?getenv *\\(");
  for (const char* part : {"dsl", "codegen", "runtime", "templates", "python"}) {
    if (!fs::exists(root / part)) continue;
    for (const auto& file : fs::recursive_directory_iterator(root / part)) {
      const std::string extension = file.path().extension();
      if (extension != ".cpp" && extension != ".h") continue;
      if (file.path() == root / "runtime/environment.cpp") continue;
      EXPECT_FALSE(std::regex_search(test::read_file(file.path()), call)) << file.path();
    }
  }
}

}  // namespace
}  // namespace flashcore
