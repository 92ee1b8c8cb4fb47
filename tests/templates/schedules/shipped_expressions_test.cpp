// Every schedule that a problem may get makes a kernel of random masks and scores, or is refused in
// words that say why and is followed by one that does. The program is verified behind every pass.
//
//   FLASHCORE_PROPERTY_CASES  how many specs (default 100)
//   FLASHCORE_PROPERTY_FIRST  the first of them (default 0)
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "dsl/error.h"
#include "dsl/json.h"
#include "templates/schedules/schedule_lists.h"
#include "tests/templates/support/random_expression.h"

namespace flashcore {
namespace {

int from_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::atoi(text) : otherwise;
}

AttentionSpec draw_spec(unsigned number) {
  Draw draw(number + 500000);
  AttentionSpec spec;
  const std::vector<CapturedValues> captured = draw_captured(draw, draw.between(0, 4));
  if (!draw.one_in(4)) {
    const RandomExpression mask = draw_mask_expression(draw, captured);
    spec.mask = Mask(mask.text(), mask.reads(captured));
  }
  if (!draw.one_in(4)) {
    const RandomExpression score = draw_score_expression(draw, captured);
    spec.score = Score(score.text(), score.reads(captured));
  }
  spec.head_dim = draw.one_of<int>({64, 80, 128, 192});
  spec.lse = draw.one_in(2);
  return spec;
}

/// What is wrong with a list of schedules, the first that is accepted among them; empty if nothing.
std::string complaint(const AttentionSpec& spec, const std::vector<Schedule>& list,
                      const Target& target) {
  std::string refusals;
  for (const Schedule& schedule : list) try {
      (void)generate(attention_forward(spec), schedule, target);
      return "";
    } catch (const ScheduleError& error) {
      refusals += fmt::format("{}\n", error.what());
    } catch (const Error& error) {
      return fmt::format("{}\n{}", error.what(), to_json(schedule));
    }
  return "no schedule of the list is accepted:\n" + refusals;
}

TEST(ShippedExpressions, HaveAKernelUnderEveryScheduleThatAProblemMayGet) {
  const int first = from_environment("FLASHCORE_PROPERTY_FIRST", 0);
  const int count = from_environment("FLASHCORE_PROPERTY_CASES", 100);
  for (int number = first; number < first + count; ++number) {
    const AttentionSpec spec = draw_spec(static_cast<unsigned>(number));
    for (const char* name : {"sm_80", "sm_90a"}) {
      SCOPED_TRACE(fmt::format("spec {} on {}: mask {}, score {}", number, name, spec.mask.text,
                               spec.score.text));
      const Target& target = find_target(name);
      for (const std::vector<Schedule>& list : schedule_lists(SpecTraits(spec), target))
        EXPECT_EQ(complaint(spec, list, target), "");
    }
  }
}

}  // namespace
}  // namespace flashcore
