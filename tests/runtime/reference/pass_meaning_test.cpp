// No pass may change what a program means, nor leave what the text form cannot say. The reference
// evaluates attention as built and again after every pass; from mask_tails on tile by tile, with
// padding, loop bounds and slots of shared memory.
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "dsl/ir/print.h"
#include "templates/attention.h"
#include "tests/runtime/reference/arrays.h"

namespace flashcore {
namespace {

struct Case {
  std::string name;
  AttentionSpec spec;
  Schedule schedule;
  std::int64_t q_len, kv_len;
  const char* target = "sm_80";
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

/// The same for producer, consumers and products in flight.
void add_cases_of_warpgroups(std::vector<Case>& all) {
  const Schedule plain{.tiles = {{"rows", 64}, {"cols", 32}},
                       .instruction = Instruction::wgmma,
                       .copy = CopyInstruction::tma};
  AttentionSpec spec{.head_dim = 64, .lse = true};
  const auto add = [&](const char* name, const Schedule& schedule, std::int64_t q_len,
                       std::int64_t kv_len) {
    all.push_back({std::string("warpgroups_") + name, spec, schedule, q_len, kv_len, "sm_90a"});
  };
  add("full", plain, 64, 96);
  add("tails", plain, 70, 45);
  add("fewer_keys_than_a_tile", plain, 3, 5);
  Schedule apart = plain;
  apart.overlap_products = false;
  add("one_product_at_a_time", apart, 70, 110);
  spec.mask = causal();
  add("causal", plain, 128, 128);
  add("causal_more_keys", plain, 70, 155);
  add("causal_rows_without_keys", plain, 155, 70);
  Schedule alone = plain;
  alone.producer = false;
  add("alone_causal", alone, 100, 170);
  alone.stages = 1;
  alone.peel_masks = true;
  alone.cluster_splits = 2;
  add("alone_one_stage", alone, 70, 155);
  Schedule late = plain;
  late.rescale_before_product = true;
  late.peel_masks = true;
  late.stages = 3;
  add("scaled_late", late, 130, 140);
  late.rescale_before_product = false;
  late.lazy_scaling = true;
  late.staged_stores = false;
  add("scaled_lazily", late, 100, 170);
  Schedule persistent = plain;
  persistent.tiles["rows"] = 128;
  persistent.warps_m = 8;
  persistent.ping_pong = persistent.persistent = true;
  persistent.outer_stages = 2;
  persistent.reduction_chains = 2;
  persistent.last_tiles_first = true;
  persistent.grid_order = GridOrder::grouped;
  add("in_turns_persistent", persistent, 200, 150);
  persistent.tile_scheduler = PersistentScheduler::dynamic;
  add("drawn_in_turns", persistent, 200, 150);
  Schedule ascending = plain;
  ascending.descending = false;
  ascending.rescale_before_product = ascending.lazy_scaling = true;
  add("ascending", ascending, 100, 170);
  Schedule shared_out = plain;
  shared_out.cluster_splits = 4;
  add("shared_out_causal", shared_out, 100, 170);
  add("shared_out_few_keys", shared_out, 70, 33);
  shared_out.cluster_splits = 2;
  shared_out.tiles["rows"] = 128;
  shared_out.warps_m = 8;
  shared_out.ping_pong = shared_out.peel_masks = true;
  spec.sink = Sink("h * 0.5");
  add("shared_out_sink", shared_out, 155, 70);
  spec.sink = {};
  shared_out.ping_pong = false;
  shared_out.sums_by_products = true;
  spec.lse = false;
  add("shared_out_sums_by_products", shared_out, 130, 130);
  spec.lse = true;
  shared_out.descending = false;
  spec.mask = prefix(30) | causal(Align::top_left);
  add("shared_out_surveyed", shared_out, 130, 170);
  spec.mask = sliding_window(40, 10);
  ascending.peel_masks = true;
  add("window_ascending", ascending, 130, 170);
  spec.mask = prefix(30) | causal(Align::top_left);
  add("scanned", plain, 130, 170);
  alone.stages = 3;
  add("alone_surveyed", alone, 130, 170);
  spec.mask = causal();
  spec.score = softcap(30);
  add("capped", late, 155, 70);
  shared_out.sums_by_products = false;
  add("capped_shared_out", shared_out, 130, 170);
  spec.score = Score("score + 0.25 * (kv_idx - q_idx)");
  add("biased", late, 155, 70);
  spec.score = {};
  spec = {.head_dim = 40,
          .head_dim_v = 24,
          .heads = 4,
          .kv_heads = 2,
          .dtype = DType::f16,
          .layout = TensorLayout::bshd};
  add("grouped_padded_heads", plain, 33, 65);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const Schedule plain{.tiles = {{"rows", 64}, {"cols", 32}}};
  AttentionSpec spec{.head_dim = 64, .lse = true};
  all.push_back({"full", spec, plain, 64, 64});
  all.push_back({"tails", spec, plain, 70, 45});
  all.push_back({"fewer_keys_than_a_tile", spec, plain, 3, 5});
  spec.mask = causal();
  all.push_back({"causal", spec, plain, 128, 128});
  all.push_back({"causal_more_keys", spec, plain, 70, 155});
  all.push_back({"causal_rows_without_keys", spec, plain, 155, 70});
  spec.score = softcap(50);
  all.push_back({"causal_capped", spec, plain, 70, 155});
  spec.score = Score("score - 0.5 * (q_idx - kv_idx)");
  all.push_back({"causal_biased", spec, plain, 155, 70});
  spec.score = {};
  Schedule ascending = plain;
  ascending.descending = false;
  ascending.stages = 3;
  ascending.last_tiles_first = true;
  all.push_back({"causal_ascending_three_stages", spec, ascending, 100, 170});
  Schedule single = plain;
  single.stages = 1;
  single.keep_operands = true;
  all.push_back({"causal_one_stage", spec, single, 100, 100});
  spec.mask = causal(Align::top_left);
  Schedule kept = ascending;
  kept.keep_operands = true;
  kept.staged_stores = false;
  all.push_back({"top_left_kept_operands", spec, kept, 130, 90});
  AttentionSpec grouped{.head_dim = 40,
                        .head_dim_v = 24,
                        .heads = 4,
                        .kv_heads = 2,
                        .dtype = DType::f16,
                        .layout = TensorLayout::bshd};
  all.push_back({"grouped_padded_heads", grouped, plain, 33, 65});
  add_cases_of_warpgroups(all);
  return all;
}

class PassMeaning : public testing::TestWithParam<Case> {
 protected:
  /// Random arrays for every tensor of the program; `Sq` and the like are found by their dimension.
  std::vector<Array> arrays(const ir::Function& f) {
    const Case& c = GetParam();
    std::mt19937 random(11);
    std::normal_distribution<double> normal;
    std::vector<Array> made;
    for (const ir::Tensor& tensor : f.tensors) {
      const bool of_keys = tensor.name == "k" || tensor.name == "v";
      std::vector<std::int64_t> shape;
      std::int64_t elements = 1;
      const std::size_t length_dim = c.spec.layout == TensorLayout::bhsd ? 2 : 1;
      for (std::size_t i = 0; i < tensor.dims.size(); ++i) {
        const bool is_length = tensor.name == "lse" ? i == 2 : i == length_dim;
        const std::int64_t named = is_length ? (of_keys ? c.kv_len : c.q_len) : 2;
        shape.push_back(tensor.dims[i].is_static() ? tensor.dims[i].value : named);
        elements *= shape.back();
      }
      std::vector<double> values;
      for (std::int64_t i = 0; i < elements && !tensor.output; ++i)
        values.push_back(normal(random));
      made.emplace_back(tensor.dtype, shape, values);
    }
    return made;
  }
};

TEST_P(PassMeaning, IsKept) {
  const Case& c = GetParam();
  const Program program = attention_forward(c.spec);
  std::vector<Array> made = arrays(program.function());
  std::vector<TensorView> views;
  for (Array& array : made) views.push_back(array.view());
  const std::vector<ScalarValue> scalars = {1 / std::sqrt(static_cast<float>(c.spec.head_dim))};
  const std::vector<ReferenceOutput> expected = evaluate(program.function(), views, scalars);

  ReferenceOptions options;  // until tails are masked, whole tiles are what the language promises
  // From expand_tanh on a tanh may be a polynomial, within 1.2e-6 of the true value.
  double allowed = 1e-10;
  const auto check = [&](std::string_view pass, const ir::Function& f) {
    ir::for_each_op(f, f.body, [&](const ir::Op& op, ir::BlockId) {
      if (op.code == ir::OpCode::all_within) allowed = 1e-5;
    });
    if (pass == "mask_tails") options = in_tiles;
    SCOPED_TRACE("after " + std::string(pass));
    const std::string text = ir::print(f);
    EXPECT_EQ(ir::print(ir::parse(text)), text) << "the text form loses something";
    const std::vector<ReferenceOutput> got = evaluate(f, views, scalars, options);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t o = 0; o < got.size(); ++o) {
      ASSERT_EQ(got[o].values.size(), expected[o].values.size());
      int wrong = 0;
      for (std::size_t i = 0; i < got[o].values.size() && wrong < 3; ++i) {
        const double a = got[o].values[i], b = expected[o].values[i];
        if (a == b || std::abs(a - b) <= allowed * (1 + std::abs(b))) continue;
        ADD_FAILURE() << got[o].name << " element " << i << ": " << a << ", not " << b;
        ++wrong;
      }
    }
  };
  generate(program, c.schedule, find_target(c.target), check);
  EXPECT_EQ(options.tiling, Tiling::scheduled);
}

INSTANTIATE_TEST_SUITE_P(Attention, PassMeaning, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace flashcore
