// Persistent blocks take every tile once, with the serpentine and the dynamic scheduler, and with
// the dynamic one where a launch has no counter. The emulator refuses a launch that leaves the
// counter other than it found it.
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "templates/attention.h"
#include "tests/templates/support/attention_run.h"

namespace flashcore {
namespace {

struct Order {
  const char* name;
  PersistentScheduler tiles;
  GridOrder grid;
  bool has_counter = true;
};

void PrintTo(const Order& order, std::ostream* out) { *out << order.name; }

class PersistentSchedulers : public testing::TestWithParam<Order> {};

TEST_P(PersistentSchedulers, EveryTileIsComputedOnce) {
  Schedule schedule;
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  schedule.tiles = {{"rows", 64}, {"cols", 32}};
  schedule.persistent = schedule.last_tiles_first = true;
  schedule.outer_stages = 2;
  schedule.tile_scheduler = GetParam().tiles;
  schedule.grid_order = GetParam().grid;
  const AttentionSpec spec{.head_dim = 32, .mask = causal()};
  KernelSource source = generate(attention_forward(spec), schedule, find_target("sm_90a"));
  const std::string counter = "p.tile_counter";
  for (std::size_t at = source.body.find(counter);
       !GetParam().has_counter && at != std::string::npos; at = source.body.find(counter, at))
    source.body.replace(at, counter.size(), "0");
  for (const AttentionInputs& in :
       {AttentionInputs{.batch = 2, .heads = 3, .kv_heads = 3, .q_len = 200, .kv_len = 150},
        AttentionInputs{.q_len = 3, .kv_len = 40},
        AttentionInputs{.heads = 7, .kv_heads = 7, .q_len = 64, .kv_len = 64}}) {
    SCOPED_TRACE(fmt::format("{} heads, {} queries", in.heads, in.q_len));
    KernelRun run = attention_run(spec, in);
    const EmulationReport report = run.emulate(source);
    EXPECT_EQ(run.compare(), "");
    for (const OutputCoverage& output : report.outputs) {
      EXPECT_EQ(output.unwritten, 0);
      EXPECT_EQ(output.rewritten, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Order, PersistentSchedulers,
    testing::Values(
        Order{"serpentine", PersistentScheduler::serpentine, GridOrder::tiles_first},
        Order{"serpentine_grouped", PersistentScheduler::serpentine, GridOrder::grouped},
        Order{"dynamic", PersistentScheduler::dynamic, GridOrder::tiles_first},
        Order{"dynamic_across_heads", PersistentScheduler::dynamic, GridOrder::tiles_last},
        Order{"dynamic_grouped", PersistentScheduler::dynamic, GridOrder::grouped},
        Order{"without_a_counter", PersistentScheduler::dynamic, GridOrder::tiles_last, false},
        Order{"grouped_without_a_counter", PersistentScheduler::dynamic, GridOrder::grouped,
              false}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace flashcore
