// Persistent blocks take every tile once, with the serpentine and the dynamic scheduler, and with
// the dynamic one where a launch has no counter. The emulator refuses a launch that leaves the
// counter other than it found it.
#include <string>
#include <vector>

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

/// Runs the kernel of the order, whose every element is written once, on each of some inputs.
void expect_every_tile_once(const Order& order, const AttentionSpec& spec,
                            const std::vector<AttentionInputs>& launches) {
  Schedule schedule;
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  schedule.tiles = {{"rows", 64}, {"cols", 32}};
  schedule.persistent = schedule.last_tiles_first = true;
  schedule.outer_stages = 2;
  schedule.tile_scheduler = order.tiles;
  schedule.grid_order = order.grid;
  KernelSource source = generate(attention_forward(spec), schedule, find_target("sm_90a"));
  const std::string counter = "p.tile_counter";
  for (std::size_t at = source.body.find(counter); !order.has_counter && at != std::string::npos;
       at = source.body.find(counter, at))
    source.body.replace(at, counter.size(), "0");
  for (const AttentionInputs& in : launches) {
    SCOPED_TRACE(fmt::format("{} heads, {} queries, sequences of {}", in.heads, in.q_len,
                             fmt::join(in.q_lens, ", ")));
    KernelRun run = attention_run(spec, in);
    const EmulationReport report = run.emulate(source);
    EXPECT_EQ(run.compare(), "");
    for (const OutputCoverage& output : report.outputs) {
      EXPECT_EQ(output.unwritten, in.beyond * in.heads * (output.name == "o" ? spec.head_dim : 1));
      EXPECT_EQ(output.rewritten, 0);
    }
  }
}

TEST_P(PersistentSchedulers, EveryTileIsComputedOnce) {
  expect_every_tile_once(GetParam(), {.head_dim = 32, .mask = causal()},
                         {{.batch = 2, .heads = 3, .kv_heads = 3, .q_len = 200, .kv_len = 150},
                          {.q_len = 3, .kv_len = 40},
                          {.heads = 7, .kv_heads = 7, .q_len = 64, .kv_len = 64}});
}

AttentionInputs of_sequences(std::vector<int> q_lens, std::vector<int> kv_lens, int beyond = 0) {
  AttentionInputs in{.batch = static_cast<int>(q_lens.size()), .heads = 3, .kv_heads = 3};
  in.q_lens = std::move(q_lens);
  in.kv_lens = std::move(kv_lens);
  in.beyond = beyond;
  return in;
}

// The tiles of all sequences have numbers together, of which some stand for none: those of sequences
// without rows, and one more of each that ends with a whole tile.
TEST_P(PersistentSchedulers, EveryTileOfPackedSequencesIsComputedOnce) {
  AttentionSpec spec{.head_dim = 32, .mask = causal(), .lse = true};
  spec.layout = TensorLayout::thd;
  const std::vector<int> nothing(40, 0);
  std::vector<int> far = nothing;
  far.push_back(65);
  const std::vector<AttentionInputs> launches{
      of_sequences({200, 0, 64, 1, 130}, {150, 20, 64, 1, 300}, 70),
      of_sequences({64, 64, 128}, {64, 100, 0}), of_sequences({1}, {40}), of_sequences(far, far),
      of_sequences({5, 0, 0}, {5, 0, 0}, 300)};
  expect_every_tile_once(GetParam(), spec, launches);
  spec.mask = full();
  expect_every_tile_once(GetParam(), spec, launches);
}

TEST_P(PersistentSchedulers, EveryTileOfPaddedSequencesIsComputedOnce) {
  AttentionSpec spec{.head_dim = 32, .mask = causal()};
  spec.kv_lens = true;
  AttentionInputs in{.batch = 3, .heads = 2, .kv_heads = 2, .q_len = 130, .kv_len = 90};
  in.kv_lens = {90, 0, 33};
  expect_every_tile_once(GetParam(), spec, {in});
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
