// Random attention under random schedules for every target, run by the emulator and held against
// the reference. A case is a number: what it draws depends on nothing else.
//
//   FLASHCORE_PROPERTY_CASES  how many cases (default 64)
//   FLASHCORE_PROPERTY_FIRST  the first of them (default 0)
//
// A case that fails says how to run it alone.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "dsl/json.h"
#include "templates/attention.h"
#include "tests/templates/support/attention_run.h"
#include "tests/templates/support/random_expression.h"

namespace flashcore {
namespace {

constexpr int shards = 4;  // test processes that may run side by side

int from_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::atoi(text) : otherwise;
}

/// Masks that ship, and masks as a user writes them: affine and not, with `or`, over heads.
Mask draw_mask(Draw& draw) {
  const int left = draw.between(0, 90), right = draw.between(0, 40), size = draw.between(3, 80);
  switch (draw.between(0, 11)) {
    case 0:
    case 1:
      return full();
    case 2:
    case 3:
      return causal();
    case 4:
      return causal(Align::top_left);
    case 5:
      return sliding_window(left, right);
    case 6:
      return prefix(size) | causal(Align::top_left);
    case 7:
      return chunked(size);
    case 8:
      return Mask([=](const ScoreSite& s) {
        return (s.query_index - s.key_index) % (size % 5 + 2) == s.head % 2;
      });
    case 9:
      return Mask(
          [=](const ScoreSite& s) { return s.query_index < size && s.key_index <= s.query_index; });
    case 10:
      return Mask(
          [=](const ScoreSite& s) { return s.head % 2 == 0 || s.key_index <= s.query_index; });
    default:
      return Mask([=](const ScoreSite& s) {
        return s.query_index * 2 > s.key_index && s.key_index > left;
      });
  }
}

struct Case {
  AttentionSpec spec;
  Schedule schedule;
  const Target* target = nullptr;
  std::vector<AttentionInputs> launches;
  unsigned number_;

  explicit Case(unsigned number) : number_(number) {
    Draw draw(number);
    draw_spec(draw);
    draw_schedule(draw);
    // Lengths near multiples of the tiles, and any others; open ones may be 0.
    const int count = spec.q_len ? 1 : schedule.copy == CopyInstruction::tma ? 2 : 3;
    for (int i = 0; i < count; ++i) {
      AttentionInputs in;
      in.batch = spec.batch ? *spec.batch : draw.between(1, 2);
      in.heads = spec.heads ? spec.heads : draw.between(1, 2);
      in.kv_heads = spec.kv_heads ? spec.kv_heads : in.heads;
      in.q_len = spec.q_len ? *spec.q_len : draw_length(draw, schedule.tiles.at("rows"));
      in.kv_len = spec.kv_len ? *spec.kv_len : draw_length(draw, schedule.tiles.at("cols"));
      if (draw.one_in(3)) in.row_gap = 8 * draw.between(1, 4);
      if (draw.one_in(4)) in.spread = 30;  // scores far apart: one key takes all
      in.seed = number * 16 + static_cast<unsigned>(i);
      draw_lengths(draw, in);
      launches.push_back(in);
    }
  }

  void draw_spec(Draw& draw) {
    spec.dtype = draw.one_of<DType>({DType::f16, DType::bf16});
    spec.head_dim = draw.one_in(3) ? draw.one_of<int>({64, 128}) : draw_dim(draw);
    if (draw.one_in(3)) spec.head_dim_v = draw_dim(draw);
    spec.mask = draw_mask(draw);
    spec.layout = draw.one_of<TensorLayout>({TensorLayout::bhsd, TensorLayout::bshd});
    spec.lse = draw.one_in(2);
    if (draw.one_in(2)) {
      spec.kv_heads = draw.between(1, 2);
      spec.heads = spec.kv_heads * draw.between(1, 3);
    }
    if (draw.one_in(4)) {
      spec.q_len = draw.between(1, 200);
      spec.kv_len = draw.one_in(2) ? 64 * draw.between(1, 3) : draw.between(1, 200);
    } else if (draw.one_in(4)) {
      spec.kv_len = draw.between(1, 200);
    }
    if (draw.one_in(6)) spec.batch = draw.between(1, 2);
    const int kind = draw.between(0, 7);
    if (kind <= 1) {
      spec.layout = TensorLayout::thd;
      spec.q_len = spec.kv_len = std::nullopt;
    } else if (kind == 2) {
      spec.q_lens = !draw.one_in(3);
      spec.kv_lens = !spec.q_lens || draw.one_in(2);
    }
  }

  /// How long each sequence is, where they differ; those of a packed batch add up to any total.
  void draw_lengths(Draw& draw, AttentionInputs& in) const {
    if (spec.packed() && !spec.batch) in.batch = draw.between(1, 4);
    for (int i = 0; i < in.batch; ++i) {
      if (spec.packed()) {
        in.q_lens.push_back(draw_length(draw, schedule.tiles.at("rows")));
        in.kv_lens.push_back(draw.one_in(3) ? in.q_lens.back()
                                            : draw_length(draw, schedule.tiles.at("cols")));
      }
      if (spec.q_lens) in.q_lens.push_back(draw.between(0, in.q_len));
      if (spec.kv_lens) in.kv_lens.push_back(draw.between(0, in.kv_len));
    }
    if (spec.packed()) in.beyond = draw.between(0, 40);
  }

  void draw_schedule(Draw& draw) {
    const std::span<const Target> targets = all_targets();
    target =
        &targets[static_cast<std::size_t>(draw.between(0, static_cast<int>(targets.size()) - 1))];
    if (draw.one_in(3)) return draw_warpgroups(draw);
    if (!target->bf16) spec.dtype = DType::f16;
    Target plain = *target;
    plain.wgmma = plain.tma = false;
    schedule = attention_schedule(spec, plain);
    schedule.warps_m = draw.one_of<int>({1, 2, 3, 4, 4, 5, 6, 7, 8, 8});
    schedule.warps_n = draw.one_of<int>({1, 1, 1, 1, 2, 2, 3, 4});
    schedule.product_split =
        draw.one_of<ProductSplit>({ProductSplit::terms, ProductSplit::columns});
    if (target->mma_m16n8k16) {
      schedule.softmax =
          draw.one_of<Softmax>({Softmax::registers, Softmax::registers, Softmax::shared});
      if (schedule.softmax == Softmax::shared && draw.one_in(2))
        schedule.instruction = Instruction::wmma;
    }
    if (target->async_copy && draw.one_in(3)) schedule.copy = CopyInstruction::vector;
    schedule.tiles["rows"] = 16 * schedule.warps_m * (draw.one_in(4) ? 2 : 1);
    schedule.tiles["cols"] = 16 * draw.between(1, spec.head_dim > 96 ? 4 : 8);
    if (!draw.one_in(4))
      schedule.tiles["cols"] =
          16 * schedule.warps_n * std::max(1, schedule.tiles["cols"] / 16 / schedule.warps_n);
    if (draw.one_in(16)) schedule.tiles["rows"] = 16 * draw.between(1, 16);
    schedule.stages = draw.one_of<int>({1, 2, 2, 3, 4});
    if (schedule.softmax == Softmax::shared && schedule.stages > 1) {
      // Tiles that go through shared memory need room there.
      schedule.tiles["rows"] = 16 * schedule.warps_m;
      schedule.stages = draw.between(1, 2);
    }
    schedule.keep_operands = draw.one_in(3);
    schedule.staged_stores = !draw.one_in(3);
    schedule.peel_masks = draw.one_in(2);
    schedule.descending = draw.one_in(2);
    schedule.last_tiles_first = draw.one_in(2);
    schedule.grid_order = draw.one_of<GridOrder>({GridOrder::tiles_first, GridOrder::tiles_last});
    draw_float32();
  }

  /// f32 by tf32 in some of the cases on mma.sync; numbers of its own, so that the others stay.
  void draw_float32() {
    Draw draw(number_ + 1'000'000);
    if (!target->tf32 || schedule.instruction != Instruction::mma_m16n8k16 || !draw.one_in(4))
      return;
    spec.dtype = DType::f32;
    spec.products = Products::tf32;
    schedule.instruction = Instruction::mma_m16n8k8_tf32;
  }

  /// Producer, consumers and products in flight, with every field of theirs.
  void draw_warpgroups(Draw& draw) {
    target = &find_target("sm_90a");
    schedule = {};
    schedule.instruction = Instruction::wgmma;
    schedule.copy = CopyInstruction::tma;
    schedule.warps_m = spec.head_dim > 128 ? 4 : draw.one_of<int>({4, 4, 8, 8, 12});
    schedule.tiles["rows"] = 16 * schedule.warps_m;
    schedule.tiles["cols"] = 16 * draw.between(1, spec.head_dim > 96 ? 4 : 8);
    schedule.stages = draw.one_of<int>({1, 2, 2, 2, 3});
    schedule.staged_stores = !draw.one_in(3);
    schedule.peel_masks = draw.one_in(3);
    schedule.descending = draw.one_in(2);
    schedule.last_tiles_first = draw.one_in(2);
    schedule.overlap_products = !draw.one_in(4);
    schedule.late_products = draw.one_in(3);
    schedule.rescale_before_product = draw.one_in(2);
    schedule.rescale_before_wait = schedule.rescale_before_product && draw.one_in(2);
    schedule.lazy_scaling = draw.one_in(2);
    schedule.reduction_chains = draw.one_of<int>({1, 2, 4});
    schedule.sums_by_products = draw.one_in(3);
    schedule.ping_pong = schedule.warps_m > 4 && draw.one_in(2);
    schedule.producer = schedule.warps_m > 4 || draw.one_in(2);
    schedule.persistent =
        schedule.producer && !spec.packed() && !spec.q_lens && !spec.kv_lens && draw.one_in(2);
    if (schedule.producer) schedule.producer_warps = draw.between(1, 2);
    if (schedule.persistent) schedule.outer_stages = draw.between(1, 2);
    if (schedule.persistent && draw.one_in(2))
      schedule.tile_scheduler = PersistentScheduler::dynamic;
    if (!schedule.persistent && draw.one_in(2))
      schedule.cluster_splits = draw.one_of<int>({2, 2, 4, 8});
    if (!schedule.persistent && schedule.producer && schedule.cluster_splits == 1 &&
        draw.one_in(2)) {
      schedule.positions_per_block = draw.between(2, 4);
      schedule.outer_stages = draw.between(1, 2);
    }
    schedule.grid_order = draw.one_of<GridOrder>({GridOrder::tiles_first, GridOrder::tiles_last});
    if (schedule.persistent && draw.one_in(3)) schedule.grid_order = GridOrder::grouped;
    divide_columns();
    share_loads();
    align_tiles();
    keep_operands();
  }

  /// The query, in registers, in some of the cases; numbers of its own.
  void keep_operands() {
    Draw draw(number_ + 5'000'000);
    schedule.keep_operands = draw.one_in(3);
  }

  /// To the end of the query rows, in some of the cases; numbers of its own. Refused where rows are packed.
  void align_tiles() {
    Draw draw(number_ + 4'000'000);
    schedule.end_aligned_tiles = schedule.multicast_blocks == 1 && draw.one_in(2);
  }

  /// Between two blocks, in some of the cases; numbers of its own.
  void share_loads() {
    Draw draw(number_ + 3'000'000);
    if (schedule.persistent && draw.one_in(2)) schedule.multicast_blocks = 2;
  }

  /// Among warpgroups, in some of the cases; numbers of its own, so that the others stay.
  void divide_columns() {
    Draw draw(number_ + 2'000'000);
    if (schedule.warps_m > 4 || !schedule.producer || schedule.cluster_splits > 1 ||
        !draw.one_in(2))
      return;
    schedule.warps_n = draw.between(2, 3);
    schedule.product_split = ProductSplit::columns;
    schedule.tiles["cols"] = 8 * schedule.warps_n * 2 * draw.between(1, 3);
    schedule.stages = draw.between(1, 2);
  }

  static int draw_dim(Draw& draw) { return 8 * draw.between(1, draw.one_in(4) ? 32 : 14); }

  static int draw_length(Draw& draw, int tile) {
    switch (draw.between(0, 5)) {
      case 0:
        return draw.one_of<int>({0, 1, 1, 2});
      case 1:
        return tile * draw.between(1, std::max(1, 200 / tile)) + draw.between(-1, 1);
      default:
        return draw.between(1, 300);
    }
  }

  [[nodiscard]] std::string text() const {
    return fmt::format(
        "{} head_dim {} head_dim_v {} heads {} kv_heads {} mask [{}] layout {} lse {} batch {} "
        "q_len "
        "{} kv_len {} q_lens {} kv_lens {}\n  on {} with {}",
        name_of(spec.dtype), spec.head_dim, spec.value_dim(), spec.heads, spec.kv_heads,
        spec.mask.text, name_of(spec.layout), spec.lse, spec.batch.value_or(-1),
        spec.q_len.value_or(-1), spec.kv_len.value_or(-1), spec.q_lens, spec.kv_lens, target->name,
        to_json(schedule));
  }
};

std::string describe(const AttentionInputs& in) {
  return fmt::format(
      "batch {} heads {}/{} q_len {} kv_len {} row_gap {} spread {} q_lens [{}] kv_lens [{}]",
      in.batch, in.heads, in.kv_heads, in.q_len, in.kv_len, in.row_gap, in.spread,
      fmt::join(in.q_lens, ", "), fmt::join(in.kv_lens, ", "));
}

void expect_strict(const AttentionSpec& spec, const KernelSource& source,
                   const EmulationReport& report, int warps_n, bool pitched, bool float32) {
  for (const OutputCoverage& output : report.outputs) {
    // Rows of a packed output that belong to no sequence are nobody's.
    EXPECT_TRUE(output.unwritten == 0 || spec.packed())
        << output.name << " has elements that nobody wrote";
    EXPECT_EQ(output.rewritten, 0) << output.name << " has elements that were written twice";
  }
  // The emulator takes the k-th access of every lane at a line for one instruction. It is not where
  // some lanes leave out a chunk beyond the last column.
  const bool guarded = spec.value_dim() % (16 * warps_n) != 0;
  for (const BankLine& line : report.banks.lines) {
    if (guarded && line.primitive == Primitive::load_shared) continue;
    // Rows of fewer than 64 columns that are not swizzled: a copy writes the ends of two of them at
    // once.
    const bool copies = line.primitive == Primitive::copy_async ||
                        line_of(source, line.line).find("copy_chunk") != std::string::npos;
    if (pitched && copies) continue;
    // Computed operands in f32: of the lanes that write at once, 8 or 16 bytes each, two rows have
    // the same chunks.
    if (float32 && line.primitive == Primitive::store_shared) continue;
    EXPECT_EQ(line.conflicts, 0) << name_of(line.primitive) << " has bank conflicts, "
                                 << line.conflicts << " of " << line.transactions << "\n"
                                 << line_of(source, line.line);
  }
}

class AttentionProperty : public testing::TestWithParam<int> {};

TEST_P(AttentionProperty, RandomCasesMatchTheReference) {
  const int first = from_environment("FLASHCORE_PROPERTY_FIRST", 0);
  const int cases = from_environment("FLASHCORE_PROPERTY_CASES", 64);
  int ran = 0, refused = 0;
  for (int number = first; number < first + cases; ++number) {
    if (number % shards != GetParam()) continue;
    const Case c(static_cast<unsigned>(number));
    SCOPED_TRACE(
        fmt::format("FLASHCORE_PROPERTY_FIRST={} FLASHCORE_PROPERTY_CASES=1 test_templates "
                    "--gtest_filter='*RandomCases*'\n  {}",
                    number, c.text()));
    try {
      const Program program = attention_forward(c.spec);
      KernelSource source;
      try {
        source = generate(program, c.schedule, *c.target);
      } catch (const ScheduleError& error) {
        ++refused;
        EXPECT_FALSE(error.complaint().fix.empty()) << "no way out: " << error.what();
        continue;
      }
      ++ran;
      for (const AttentionInputs& in : c.launches) {
        SCOPED_TRACE(describe(in));
        KernelRun run = attention_run(c.spec, in);
        const EmulationReport report = run.emulate(source);
        EXPECT_EQ(run.compare(), "");
        expect_strict(c.spec, source, report, c.schedule.warps_n,
                      c.schedule.instruction == Instruction::wmma, c.spec.dtype == DType::f32);
      }
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
  RecordProperty("ran", ran);
  RecordProperty("refused", refused);
  // A generator that refuses everything would pass otherwise.
  if (ran + refused >= 8) {
    EXPECT_GT(ran, refused);
  }
}

INSTANTIATE_TEST_SUITE_P(Shard, AttentionProperty, testing::Range(0, shards));

}  // namespace
}  // namespace flashcore
