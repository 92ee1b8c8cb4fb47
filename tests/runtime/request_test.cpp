#include "runtime/request.h"

#include <set>

#include <gtest/gtest.h>

#include "codegen/generate.h"

namespace flashcore {
namespace {

Program program_of(const std::string& factor) {
  return Program::parse(R"(program scale
axis rows: parallel_tiles R
axis cols: whole 32
input x: f32 [R, 32]
output y: f32 [R, 32]
{
  %x = load x[rows, cols] : f32[rows, cols]
  %factor = constant )" +
                        factor + R"( : f32
  %y = mul %x, %factor : f32[rows, cols]
  store y[rows, cols], %y
}
)");
}

TEST(Request, TellsApartWhatGeneratesOtherCode) {
  Schedule schedule{.tiles = {{"rows", 64}}}, other = schedule;
  other.stages += 1;
  const Program program = program_of("2.0");
  const Target &sm_80 = find_target("sm_80"), &sm_90 = find_target("sm_90");
  const std::set<std::string> requests{
      request_of(program, schedule, sm_80), request_of(program, schedule, sm_90),
      request_of(program, other, sm_80), request_of(program_of("2.0000000001"), schedule, sm_80)};
  EXPECT_EQ(requests.size(), 4U);
  for (const std::string& request : requests) {
    EXPECT_EQ(request.size(), 64U);
    EXPECT_EQ(request.find_first_not_of("0123456789abcdef"), std::string::npos);
  }
}

TEST(Request, IsTheSameForTheSame) {
  const Schedule schedule{.tiles = {{"rows", 64}}};
  const Program program = program_of("2.0"), again = Program::parse(program.text());
  const Target& target = find_target("sm_80");
  EXPECT_EQ(request_of(program, schedule, target), request_of(again, schedule, target));
  EXPECT_EQ(generate(program, schedule, target).text(), generate(again, schedule, target).text());
}

TEST(Request, HoldsTheCodeGenerationsDigest) { EXPECT_EQ(generator_digest().size(), 64U); }

}  // namespace
}  // namespace flashcore
