#include "dsl/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dsl/json.h"

namespace {

using flashcore::Arguments;
using testing::HasSubstr;

flashcore::Exported double_rows(const Arguments& arguments) {
  flashcore::ProgramBuilder b("double_rows");
  const int width = arguments.integer("width");
  const flashcore::DType dtype = arguments.dtype("dtype", flashcore::DType::f32);
  const auto rows = b.parallel_tiles("rows", flashcore::Extent("n"));
  const auto d = b.whole("d", width);
  const auto x = b.input("x", dtype, {flashcore::Extent("n"), width});
  const auto y = b.output("y", dtype, {flashcore::Extent("n"), width});
  const flashcore::Tile tile = load(x(rows, d));
  store(y(rows, d), tile + tile);
  return {b.finish(), [](const flashcore::Target& target) {
            return flashcore::Schedule{.tiles = {{"rows", target.capability}}};
          }};
}

}  // namespace

FLASHCORE_EXPORT_PROGRAM(double_rows)

namespace {

std::string call(const char* arguments, const char* target) {
  std::string answer;
  flashcore_program_double_rows(arguments, target, &answer,
                                [](void* context, const char* json, std::size_t size) {
                                  static_cast<std::string*>(context)->assign(json, size);
                                });
  return answer;
}

TEST(Export, AnswersWithTheProgramAndTheScheduleOfTheTarget) {
  const std::string answer = call(R"({"width": 32})", "sm_90");
  EXPECT_THAT(answer, HasSubstr("program double_rows\\n"));
  EXPECT_THAT(answer, HasSubstr("x: f32 [n, 32]"));
  EXPECT_THAT(answer, HasSubstr(R"("rows":90)"));
  EXPECT_THAT(answer, HasSubstr("export_test.cpp\",21]"));  // the line of `load`
  EXPECT_THAT(call(R"({"width": 32})", nullptr), testing::Not(HasSubstr("schedule")));
}

TEST(Export, ErrorsCrossWithTheirKind) {
  EXPECT_THAT(call("{}", nullptr), HasSubstr("width"));
  EXPECT_THAT(call("{}", nullptr), HasSubstr(R"("error":"SpecError")"));
  EXPECT_THAT(call(R"({"width": 32, "widht": 1})", nullptr),
              HasSubstr("is not one that the program takes: dtype, width"));
  EXPECT_THAT(call(R"({"width": 3.5})", nullptr), HasSubstr("3.5 is not a whole number"));
  EXPECT_THAT(call(R"({"width": 32})", "sm_20"), HasSubstr(R"("error":"ScheduleError")"));
}

}  // namespace
