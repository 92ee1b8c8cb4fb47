// What insert_barriers has to find in a role, taken away: a wait that is missing, or stands too
// late.
#include <string>

#include <gtest/gtest.h>

#include "codegen/passes/passes.h"
#include "dsl/error.h"
#include "dsl/ir/parse.h"
#include "dsl/ir/verify.h"
#include "dsl/schedule.h"
#include "dsl/target.h"

namespace flashcore {
namespace {

const std::string head = R"(program test
axis m: parallel_tiles M tile 64
axis n: tiles N tile 32
axis d: whole 64 tile 64
input b: bf16 [N, 64]
output y: bf16 [M, 64]
channel b: bf16 [32, 64] stages 2 by tma at 1024
buffer ones: bf16 [64, 32] stages 1 at 9216
buffer y_tile: bf16 [64, 64] stages 1 at 13312
buffer sums_tile: f32 [32, 64] stages 2 at 21504
{
  %one = constant 1 : bf16[m, n]
  %ones = convert %one in ones : bf16[m, n] @ shared
  role consumers warps 0 to 4 {
    %out = constant 0 : bf16[m, d]
)";
const std::string tail = "  }\n}\n";

std::string complaint(const std::string& role, const std::string& outputs = {}) {
  std::string declared = head;
  declared.insert(declared.find("channel"), outputs);
  ir::Function f = ir::parse(declared + role + tail, "t");
  ir::verify(f);
  try {
    insert_barriers(f, {{}, find_target("sm_90a")});
  } catch (const InternalError& error) {
    const std::string text = error.what();
    const std::string start = "FlashCore met a bug of its own: ";
    return text.substr(start.size(), text.find('\n') - start.size());
  }
  return "fine";
}

/// A loop in which `%s` is issued; what stands behind it.
std::string loop(const std::string& ops) {
  return "    loop n {\n      tile %t : i32\n      %b = wait in b : bf16[n, d] @ shared\n"
         "      %s = dot %ones, %b using wgmma issued : f32[m, d]\n" +
         ops + "      yield\n    }\n    store y[m, d], %out\n";
}
const std::string landing = "      %l = wait_products %s pending 0 : f32[m, d]\n";
const std::string release = "      release in b\n";

TEST(BarriersOfRoles, ASlotIsReleasedBehindTheProductsThatReadIt) {
  EXPECT_EQ(complaint(loop(landing + release)), "fine");
  EXPECT_EQ(complaint(loop(release + landing)),
            "release releases a slot of b, which a product in flight reads");
  EXPECT_EQ(complaint(loop("      %l = wait_products %s pending 1 : f32[m, d]\n" + release)),
            "release releases a slot of b, which a product in flight reads");
  EXPECT_EQ(complaint(loop("      issue b[n, d] in b\n" + landing + release)),
            "issue fills a slot of b, which a product in flight reads");
}

TEST(BarriersOfRoles, StoresHaveReadWhatIsWrittenNext) {
  const std::string staged =
      "    %y = convert %out in y_tile : bf16[m, d] @ shared\n    store y[m, d], %y\n";
  const std::string again =
      "    %z = convert %out in y_tile : bf16[m, d] @ shared\n    store y[m, d], %z\n";
  const std::string drain = "    drain_stores\n";
  EXPECT_EQ(complaint(staged + drain), "fine");
  EXPECT_EQ(complaint(staged), "role ends while the copy engine reads y_tile");
  EXPECT_EQ(complaint(staged + drain + again + drain), "fine");
  EXPECT_EQ(complaint(staged + again + drain),
            "convert changes y_tile, which the copy engine reads");
}

/// An iteration that adds a tile of sums; what stands in front of its conversion, and behind.
std::string addition(const std::string& order, const std::string& front,
                     const std::string& behind = {}) {
  return "    %sum = constant 1 : f32[n, d]\n    loop n {\n      tile %t : i32\n" + front +
         "      %staged = convert %sum in sums_tile : f32[n, d] @ shared\n"
         "      store sums[n, d], %staged adding" +
         order + "\n" + behind + "      yield\n    }\n    store y[m, d], %out\n    drain_stores\n";
}

const std::string sums = "output sums: f32 [N, 64]\n", turns = "output turns: i32 [M]\n";

TEST(BarriersOfRoles, ATileHasAsManyAdditionsInFlightAsSlots) {
  EXPECT_EQ(complaint(addition("", "      drain_stores pending 1\n"), sums), "fine");
  EXPECT_EQ(complaint(addition("", "      drain_stores\n"), sums), "fine");
  EXPECT_EQ(complaint(addition("", ""), sums),
            "convert changes sums_tile, which the copy engine reads");
}

TEST(BarriersOfRoles, ATurnIsPassedOnWhenTheEngineHasAdded) {
  const std::string order = " in order of turns",
                    pass =
                        "      %end = constant 32 : i32\n      meet_role\n"
                        "      release_turn turns[m], %end along m\n";
  EXPECT_EQ(complaint(addition(order, "", "      complete_stores\n" + pass), sums + turns), "fine");
  EXPECT_EQ(complaint(addition(order, "", "      drain_stores\n" + pass), sums + turns),
            "release_turn passes the turn on while the copy engine adds sums_tile");
}

}  // namespace
}  // namespace flashcore
