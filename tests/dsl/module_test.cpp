// Programs that do or do not fit together, and the numbers that launches compute.
#include "dsl/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dsl/error.h"
#include "dsl/launch_number.h"
#include "tests/support/column_sums.h"
#include "tests/support/split_sum.h"

namespace flashcore {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// y = x + 1 over [n], in place of any program that reads one tensor and writes another.
Program add_one(const std::string& name, const std::string& from, const std::string& to,
                DType dtype = DType::f32) {
  ProgramBuilder b(name);
  const Axis rows = b.parallel_tiles("rows", Extent("n"));
  const Tensor x = b.input(from, dtype, {Extent("n")});
  const Tensor y = b.output(to, dtype, {Extent("n")});
  store(y(rows), cast(cast(load(x(rows)), DType::f32) + 1.F, dtype));
  return b.finish();
}

template <class Build>
std::string refusal(Build&& build) {
  try {
    ModuleBuilder m("m");
    build(m);
    (void)m.finish();
  } catch (const SpecError& error) {
    const Complaint& c = error.complaint();
    return c.what + ": " + c.why + "; " + c.fix;
  }
  return "none";
}

TEST(Module, ItsArgumentsAreWhatIsNoWorkspaceAndNoNumber) {
  const Module module = test::sum_rows();
  std::vector<std::string> tensors;
  for (const ir::Tensor& tensor : module.tensors())
    tensors.push_back(tensor.name + (tensor.output ? " out" : ""));
  EXPECT_THAT(tensors, ElementsAre("x", "y out"));
  EXPECT_TRUE(module.parameters().empty());
  EXPECT_THAT(module.known_numbers(2), ElementsAre("R", "N", "multiprocessors", "splits", "each"));
}

TEST(Module, TextReadsBack) {
  const Module module = test::sum_rows();
  EXPECT_THAT(module.text(), testing::StartsWith("module sum_rows\nnumber splits: max("));
  EXPECT_EQ(Module::parse(module.text()).text(), module.text());
}

TEST(Module, KernelsThatWriteOtherElementsOfOneTensorMayAllWriteIt) {
  ModuleBuilder m("m");
  m.several_writers("y");
  m.kernel(add_one("a", "x", "y"));
  m.kernel(add_one("b", "z", "y"));
  const Module module = m.finish();
  EXPECT_TRUE(module.has_several_writers("y"));
  EXPECT_THAT(module.text(), testing::StartsWith("module m\nseveral_writers y\nprogram a\n"));
  EXPECT_EQ(Module::parse(module.text()).text(), module.text());
  EXPECT_THAT(module.tensors(), testing::SizeIs(3));
}

TEST(Module, TextThatDoesNotParseNamesTheLine) {
  const auto message = [](const char* text) -> std::string {
    try {
      (void)Module::parse(text);
    } catch (const SpecError& error) {
      return error.complaint().what + ": " + error.complaint().why;
    }
    return "none";
  };
  EXPECT_EQ(message("program p\n"),
            "the text of a module, line 1: expected module and its name, found \"program p\"");
  EXPECT_EQ(
      message("module m\nnumber n 3\n"),
      "the text of a module, line 2: expected a name, a colon and an expression, found \"n 3\"");
  EXPECT_EQ(message("module m\n\ntensor t\n"),
            "the text of a module, line 3: expected number, workspace, several_writers or program, "
            "found \"tensor t\"");
}

TEST(Module, OutputsOfOneKernelAreInputsOfLaterOnes) {
  EXPECT_EQ(refusal([](ModuleBuilder& m) {
              m.kernel(add_one("a", "x", "y"));
              m.kernel(add_one("b", "y", "z"));
            }),
            "none");
}

TEST(Module, KernelsThatDoNotFitAreRefused) {
  EXPECT_EQ(refusal([](ModuleBuilder&) {}),
            "the module m: it has no kernel; add one with kernel(program)");
  EXPECT_EQ(refusal([](ModuleBuilder& m) {
              m.kernel(add_one("a", "x", "y"));
              m.kernel(add_one("a", "y", "z"));
            }),
            "the module m: two kernels are named a; profilers and messages tell kernels apart by "
            "name; rename one");
  EXPECT_EQ(refusal([](ModuleBuilder& m) {
              m.kernel(add_one("a", "x", "y"));
              m.kernel(add_one("b", "y", "z", DType::bf16));
            }),
            "the module m: y is f32[n] in a and bf16[n] in b; tensors of one name are one tensor; "
            "declare both alike, or rename one");
  EXPECT_EQ(refusal([](ModuleBuilder& m) {
              m.kernel(add_one("a", "x", "y"));
              m.kernel(add_one("b", "z", "y"));
            }),
            "the module m: a and b both write y; the later one would overwrite the earlier; write "
            "a tensor in one kernel, or declare several_writers(\"y\"), if each writes other "
            "elements");
  EXPECT_EQ(refusal([](ModuleBuilder& m) {
              m.several_writers("y");
              m.kernel(add_one("a", "x", "y"));
            }),
            "the module m: y is declared with several_writers, and one kernel writes it; leave the "
            "declaration out");
  EXPECT_EQ(refusal([](ModuleBuilder& m) {
              m.kernel(add_one("b", "y", "z"));
              m.kernel(add_one("a", "x", "y"));
            }),
            "the module m: a writes y, which b has read; kernels run in the order in which they "
            "were added; add the one that writes first");
}

TEST(Module, KernelsAddToWorkspacesThatOthersHaveWritten) {
  EXPECT_EQ(refusal([](ModuleBuilder& m) {
              m.workspace("sums");
              m.kernel(test::add_rows(false));
              m.kernel(test::take_sums());
            }),
            "the module m: add_rows adds to the workspace sums, which no kernel in front of it "
            "writes; store zeros there in a kernel in front");
}

TEST(Module, KernelsAddToOutputsOfCallers) {
  const auto added_to = [](const Module& module) {
    std::vector<std::string> names;
    for (const ir::Tensor& tensor : module.tensors())
      if (module.adds_to(tensor.name)) names.push_back(tensor.name);
    return names;
  };
  ModuleBuilder to_given("to_given");
  to_given.kernel(test::add_rows(true));
  to_given.kernel(test::take_sums());
  EXPECT_THAT(added_to(to_given.finish()), ElementsAre("sums", "turns"));
  ModuleBuilder to_stored("to_stored");
  to_stored.kernel(test::zeros("zeros", "sums", DType::f32, "N"));
  to_stored.kernel(test::add_rows(false));
  EXPECT_THAT(added_to(to_stored.finish()), ElementsAre());
}

TEST(Module, SeveralKernelsAddToOneTensor) {
  EXPECT_EQ(refusal([](ModuleBuilder& m) {
              m.kernel(test::add_rows(false));
              m.kernel(test::add_rows(false, true, "add_lower_rows"));
            }),
            "none");
  EXPECT_EQ(refusal([](ModuleBuilder& m) {
              m.kernel(test::add_rows(true));
              m.kernel(test::add_rows(true, true, "add_lower_rows"));
            }),
            "the module m: add_rows and add_lower_rows both note their turns in turns; the later "
            "one would not find zeros there; each needs turns of its own");
  EXPECT_EQ(refusal([](ModuleBuilder& m) {
              m.kernel(test::add_rows(false));
              m.kernel(test::take_sums());
              m.kernel(test::add_rows(false, true, "add_lower_rows"));
            }),
            "the module m: add_lower_rows writes sums, which take_sums has read; kernels run in "
            "the order in which they were added; add the one that writes first");
}

TEST(Module, WorkspacesAreWrittenBeforeTheyAreRead) {
  EXPECT_EQ(refusal([](ModuleBuilder& m) {
              m.workspace("y");
              m.kernel(add_one("b", "y", "z"));
            }),
            "the module m: b reads the workspace y, which no kernel in front of it writes; what a "
            "workspace holds before a kernel writes it is undefined");
  EXPECT_EQ(refusal([](ModuleBuilder& m) {
              m.workspace("y");
              m.kernel(add_one("a", "x", "y"));
            }),
            "the module m: no kernel reads the workspace y; what nobody reads need not be written; "
            "or make it an argument");
  EXPECT_EQ(refusal([](ModuleBuilder& m) {
              m.workspace("w");
              m.kernel(add_one("a", "x", "y"));
            }),
            "the module m: no kernel has the workspace w; workspaces are tensors that one kernel "
            "stores and a later one loads");
  EXPECT_EQ(refusal([](ModuleBuilder& m) {
              m.workspace("partial");
              m.number("each", "16");
              m.kernel(test::sum_of_split());
              m.kernel(test::sum_of_sums());
            }),
            "the module m: the workspace partial has the extent splits, which no argument has; "
            "number(\"splits\", ...): an expression of R, N, multiprocessors, each");
}

TEST(Module, NumbersAreWholeAndOfWhatIsKnown) {
  const auto with = [](const char* text) {
    return refusal([text](ModuleBuilder& m) {
      m.number("splits", text);
      m.number("each", "16");
      m.workspace("partial");
      m.kernel(test::sum_of_split());
      m.kernel(test::sum_of_sums());
    });
  };
  EXPECT_EQ(with("N // 64 + 1"), "none");
  EXPECT_THAT(with("each + 1"), HasSubstr("the number splits = each + 1"));
  EXPECT_THAT(with("each + 1"), HasSubstr("an expression of R, N, multiprocessors"));
  EXPECT_EQ(with("N / 64"),
            "the number splits = N / 64: it is f32, and a length is a whole number; `//` divides "
            "whole numbers; where(condition, a, b) makes one of a condition");
  EXPECT_THAT(with("int(sqrt(N))"), HasSubstr("is not for whole numbers"));
  EXPECT_EQ(refusal([](ModuleBuilder& m) {
              m.number("n", "3");
              m.kernel(add_one("a", "x", "y"));
            }),
            "the module m: the number n has the name of an argument's extent, of a scalar or of "
            "another number; every number has a name of its own");
}

std::int64_t value_of(const char* text, std::vector<std::int64_t> values) {
  const std::vector<std::string> names{"a", "b", "c"};
  return NumberFormula({"n", text}, names).evaluate(values);
}

TEST(LaunchNumber, ComputesWhatItSays) {
  EXPECT_EQ(value_of("7", {0, 0, 0}), 7);
  EXPECT_EQ(value_of("(a + 63) // 64 * b - c % 3", {65, 10, 5}), 18);
  EXPECT_EQ(value_of("-a // 2", {3, 0, 0}), -2);
  EXPECT_EQ(value_of("-a % 4", {3, 0, 0}), 1);
  EXPECT_EQ(value_of("max(1, min(a, b))", {5, 3, 0}), 3);
  EXPECT_EQ(value_of("where((a < b) & ~(c == 0), abs(c), 9)", {1, 2, -4}), 4);
  EXPECT_EQ(value_of("where((a >= b) | (c != 0), 1, 2)", {1, 2, 0}), 2);
  EXPECT_EQ(value_of("half = a // 2; half * half", {9, 0, 0}), 16);
}

TEST(LaunchNumber, RefusesWhatIsNoLength) {
  EXPECT_THROW((void)value_of("a // b", {1, 0, 0}), SpecError);
  EXPECT_THROW((void)value_of("a % b", {1, 0, 0}), SpecError);
  EXPECT_THROW((void)value_of("a * b", {1 << 30, 4, 0}), SpecError);
  EXPECT_THROW((void)value_of("a * b * b * b", {1 << 30, 1 << 30, 0}), SpecError);
}

}  // namespace
}  // namespace flashcore
