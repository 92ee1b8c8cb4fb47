// Generated CUDA, byte for byte, as it stands in golden/. A change of the printed text shows here
// as a diff that a person reads; FLASHCORE_UPDATE=1 in the environment writes the files anew. They
// were written by another process, so the bytes depend on nothing that changes from run to run.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "dsl/variants.h"
#include "templates/attention.h"
#include "templates/attention_in_parts.h"
#include "tests/codegen/support/programs.h"
#include "tests/codegen/support/schedules.h"
#include "tests/support/column_sums.h"

namespace flashcore {
namespace {

const std::filesystem::path golden = std::filesystem::path(FLASHCORE_TESTS_DIR) / "codegen/golden";

struct Golden {
  const char* name;
  std::function<KernelSource()> make;
};

void PrintTo(const Golden& kernel, std::ostream* out) { *out << kernel.name; }

Schedule schedule_of(std::map<std::string, int> tiles, int warps_m, int warps_n = 1) {
  Schedule schedule;
  schedule.tiles = std::move(tiles);
  schedule.warps_m = warps_m;
  schedule.warps_n = warps_n;
  return schedule;
}

KernelSource attention(AttentionSpec spec, const Schedule& schedule, const char* target) {
  return generate(attention_forward(spec), schedule, find_target(target));
}

const Golden kernels[] = {
    {"attention_full",
     [] {
       AttentionSpec spec;
       spec.head_dim = 128;
       return attention(spec, schedule_of({{"rows", 128}, {"cols", 64}}, 4), "sm_90");
     }},
    {"attention_float32_by_tf32",
     [] {
       AttentionSpec spec;
       spec.head_dim = 64;
       spec.dtype = DType::f32;
       spec.products = Products::tf32;
       spec.mask = causal();
       Schedule schedule = schedule_of({{"rows", 128}, {"cols", 32}}, 4);
       schedule.instruction = Instruction::mma_m16n8k8_tf32;
       return attention(spec, schedule, "sm_80");
     }},
    {"attention_float32_in_parts",
     [] {
       AttentionSpec spec;
       spec.head_dim = 256;
       spec.dtype = DType::f32;
       spec.mask = causal();
       Schedule schedule = warpgroups(64, 32);
       schedule.stages = 1;
       schedule.overlap_products = false;
       return generate(attention_forward_in_parts(spec), schedule, find_target("sm_90a"));
     }},
    {"attention_causal",
     [] {
       AttentionSpec spec;
       spec.head_dim = 64;
       spec.mask = causal();
       spec.lse = true;
       Schedule schedule = schedule_of({{"rows", 128}, {"cols", 128}}, 4);
       schedule.last_tiles_first = true;
       return attention(spec, schedule, "sm_80");
     }},
    {"attention_documents",
     [] {
       AttentionSpec spec;
       spec.head_dim = 128;
       spec.mask = documents({"doc", DType::i32, 2}) & causal();
       Schedule schedule = schedule_of({{"rows", 128}, {"cols", 64}}, 4);
       schedule.stages = 1;
       return attention(spec, schedule, "sm_90");
     }},
    {"attention_bias_by_distance",
     [] {
       AttentionSpec spec;
       spec.head_dim = 64;
       spec.score = Score("score + table[h, wrap(q_idx - kv_idx)]", {{"table", DType::f32, 2}});
       return attention(spec, schedule_of({{"rows", 64}, {"cols", 64}}, 4), "sm_80");
     }},
    {"attention_grouped_bshd",
     [] {
       AttentionSpec spec;
       spec.head_dim = 64;
       spec.heads = 32;
       spec.kv_heads = 8;
       spec.layout = TensorLayout::bshd;
       Schedule schedule = schedule_of({{"rows", 64}, {"cols", 64}}, 4);
       schedule.stages = 1;
       schedule.grid_order = GridOrder::tiles_last;
       return attention(spec, schedule, "sm_89");
     }},
    {"attention_f16_odd_sizes",
     [] {
       AttentionSpec spec;
       spec.dtype = DType::f16;
       spec.head_dim = 72;
       spec.head_dim_v = 40;
       spec.q_len = 100;
       spec.kv_len = 333;
       spec.mask = causal(Align::top_left);
       Schedule schedule = schedule_of({{"rows", 96}, {"cols", 48}}, 3);
       schedule.stages = 3;
       schedule.keep_operands = true;
       schedule.peel_masks = true;
       schedule.descending = false;
       return attention(spec, schedule, "sm_120");
     }},
    {"attention_two_warps_along_keys",
     [] {
       AttentionSpec spec;
       spec.head_dim = 32;
       spec.mask = causal();
       return attention(spec, schedule_of({{"rows", 32}, {"cols", 32}}, 2, 2), "sm_80");
     }},
    {"attention_softmax_in_shared_memory",
     [] {
       AttentionSpec spec;
       spec.head_dim = 32;
       Schedule schedule = schedule_of({{"rows", 64}, {"cols", 32}}, 2, 2);
       schedule.softmax = Softmax::shared;
       schedule.copy = CopyInstruction::vector;
       return attention(spec, schedule, "sm_80");
     }},
    {"attention_wmma",
     [] {
       AttentionSpec spec;
       spec.dtype = DType::f16;
       spec.head_dim = 64;
       spec.mask = causal();
       return attention(spec, attention_schedule(spec, find_target("sm_75")), "sm_75");
     }},
    {"attention_hopper_causal",
     [] {
       AttentionSpec spec;
       spec.head_dim = 128;
       spec.mask = causal();
       Schedule schedule = warpgroups(128, 128);
       schedule.persistent = true;
       schedule.outer_stages = 2;
       schedule.staged_stores = false;
       schedule.last_tiles_first = true;
       schedule.grid_order = GridOrder::tiles_last;
       return attention(spec, schedule, "sm_90a");
     }},
    {"attention_hopper_end_aligned",
     [] {
       AttentionSpec spec;
       spec.head_dim = 128;
       spec.mask = causal();
       Schedule schedule = warpgroups(192, 80);
       schedule.persistent = schedule.peel_masks = true;
       schedule.staged_stores = false;
       schedule.last_tiles_first = schedule.end_aligned_tiles = true;
       return attention(spec, schedule, "sm_90a");
     }},
    {"attention_hopper_multicast",
     [] {
       AttentionSpec spec;
       spec.head_dim = 128;
       Schedule schedule = warpgroups(128, 176);
       schedule.persistent = schedule.ping_pong = true;
       schedule.multicast_blocks = 2;
       schedule.staged_stores = false;
       return attention(spec, schedule, "sm_90a");
     }},
    {"attention_hopper_multicast_causal",
     [] {
       AttentionSpec spec;
       spec.head_dim = 256;
       spec.mask = causal();
       Schedule schedule = warpgroups(128, 80);
       schedule.persistent = schedule.peel_masks = true;
       schedule.multicast_blocks = 2;
       schedule.staged_stores = false;
       schedule.last_tiles_first = true;
       schedule.grid_order = GridOrder::grouped;
       schedule.tile_scheduler = PersistentScheduler::dynamic;
       return attention(spec, schedule, "sm_90a");
     }},
    {"attention_hopper_no_producer",
     [] {
       AttentionSpec spec;
       spec.head_dim = 64;
       spec.mask = documents({"doc", DType::i32, 2}) & causal();
       Schedule schedule = warpgroups(64, 64);
       schedule.producer = false;
       schedule.blocks_per_processor = 4;
       return attention(spec, schedule, "sm_90a");
     }},
    {"attention_hopper_softcap_window",
     [] {
       AttentionSpec spec;
       spec.head_dim = 64;
       spec.mask = sliding_window(256, 0);
       spec.score = softcap(30);
       return attention(spec, warpgroups(128, 64), "sm_90a");
     }},
    {"attention_hopper_softcap_causal",
     [] {
       AttentionSpec spec;
       spec.head_dim = 80;
       spec.mask = causal();
       spec.score = softcap(30);
       return attention(spec, warpgroups(128, 128), "sm_90a");
     }},
    {"attention_hopper_dense_bias",
     [] {
       AttentionSpec spec;
       spec.head_dim = 64;
       spec.mask = causal();
       spec.score = bias({"bias", DType::bf16, 3, /*unit_stride=*/true, /*aligned_rows=*/true});
       return attention(spec, warpgroups(128, 64), "sm_90a");
     }},
    {"attention_hopper_dense_mask",
     [] {
       AttentionSpec spec;
       spec.head_dim = 64;
       spec.mask = Mask("visible[b, 0, q_idx, kv_idx]", {{"visible", DType::i1, 4, true, true}});
       return attention(spec, warpgroups(128, 96), "sm_90a");
     }},
    {"attention_hopper_window_peeled",
     [] {
       AttentionSpec spec;
       spec.head_dim = 64;
       spec.mask = sliding_window(256, 0);
       Schedule schedule = warpgroups(64, 64);
       schedule.peel_masks = true;
       return attention(spec, schedule, "sm_90a");
     }},
    {"attention_hopper_full",
     [] {
       AttentionSpec spec;
       spec.head_dim = 64;
       spec.lse = true;
       Schedule schedule = warpgroups(192, 128);
       schedule.ping_pong = true;
       schedule.rescale_before_product = true;
       schedule.lazy_scaling = true;
       schedule.reduction_chains = 2;
       return attention(spec, schedule, "sm_90a");
     }},
    {"attention_hopper_divided_columns",
     [] {
       AttentionSpec spec;
       spec.head_dim = 512;
       spec.mask = causal();
       Schedule schedule = warpgroups(64, 64);
       schedule.warps_n = 2;
       schedule.product_split = ProductSplit::columns;
       schedule.stages = 1;
       return attention(spec, schedule, "sm_90a");
     }},
    {"attention_hopper_dynamic",
     [] {
       AttentionSpec spec;
       spec.head_dim = 64;
       spec.mask = causal();
       Schedule schedule = warpgroups(128, 64);
       schedule.persistent = true;
       schedule.ping_pong = true;
       schedule.tile_scheduler = PersistentScheduler::dynamic;
       schedule.grid_order = GridOrder::grouped;
       schedule.last_tiles_first = true;
       return attention(spec, schedule, "sm_90a");
     }},
    {"attention_hopper_documents",
     [] {
       AttentionSpec spec;
       spec.head_dim = 80;
       spec.mask = documents({"doc", DType::i32, 2}) & causal();
       return attention(spec, warpgroups(64, 64), "sm_90a");
     }},
    {"attention_hopper_heads_per_block",
     [] {
       AttentionSpec spec;
       spec.head_dim = 64;
       spec.mask = documents({"doc", DType::i32, 1, /*unit_stride=*/true});
       Schedule schedule = warpgroups(64, 64);
       schedule.positions_per_block = 4;
       return attention(spec, schedule, "sm_90a");
     }},
    {"attention_flat_grid",
     [] {
       AttentionSpec spec;
       spec.head_dim = 64;
       spec.mask = causal();
       Schedule schedule = schedule_of({{"rows", 64}, {"cols", 64}}, 4);
       schedule.last_tiles_first = schedule.flat_grid = true;
       return attention(spec, schedule, "sm_80");
     }},
    {"matrix_product_hopper",
     [] {
       Schedule schedule = schedule_of({{"m", 128}, {"n", 128}, {"k", 64}}, 8);
       schedule.instruction = Instruction::wgmma;
       schedule.copy = CopyInstruction::tma;
       schedule.persistent = true;
       schedule.stages = 3;
       return generate(matrix_product(DType::bf16, DType::bf16), schedule, find_target("sm_90a"));
     }},
    {"transposed_product_hopper",
     [] {
       Schedule schedule = schedule_of({{"m", 128}, {"n", 80}, {"k", 64}}, 8);
       schedule.instruction = Instruction::wgmma;
       schedule.copy = CopyInstruction::tma;
       return generate(transposed_product(), schedule, find_target("sm_90a"));
     }},
    {"paged_products_hopper",
     [] {
       Schedule schedule = schedule_of({{"rows", 64}, {"cols", 32}}, 4);
       schedule.instruction = Instruction::wgmma;
       schedule.copy = CopyInstruction::tma;
       return generate(paged_products(64, 64, true), schedule, find_target("sm_90a"));
     }},
    {"paged_products_of_small_pages_hopper",
     [] {
       Schedule schedule = schedule_of({{"rows", 64}, {"cols", 64}}, 4);
       schedule.instruction = Instruction::wgmma;
       schedule.copy = CopyInstruction::tma;
       return generate(paged_products(16, 128, true), schedule, find_target("sm_90a"));
     }},
    {"matrix_product",
     [] {
       return generate(matrix_product(DType::bf16, DType::bf16),
                       schedule_of({{"m", 128}, {"n", 128}, {"k", 32}}, 2, 2),
                       find_target("sm_80"));
     }},
    {"chained_product",
     [] {
       return generate(chained_product(), schedule_of({{"m", 64}, {"n", 64}}, 4),
                       find_target("sm_80"));
     }},
    {"linear_attention",
     [] {
       return generate(linear_attention(), schedule_of({{"t", 64}, {"dv", 32}}, 4),
                       find_target("sm_80"));
     }},
    {"row_softmax",
     [] {
       return generate(row_softmax(), schedule_of({{"rows", 32}, {"cols", 128}}, 4),
                       find_target("sm_80"));
     }},
    {"elementwise",
     [] {
       return generate(elementwise(128), schedule_of({{"rows", 64}}, 4), find_target("sm_80"));
     }},
    {"additions_in_order",
     [] {
       const Program add_rows = test::column_sums(true).kernels()[2];
       return generate(add_rows, test::column_sums_schedule(add_rows), find_target("sm_90"));
     }},
    {"integers",
     [] {
       return generate(integers(), schedule_of({{"rows", 64}}, 4), find_target("sm_80"));
     }},
};

class GoldenKernels : public testing::TestWithParam<Golden> {};

TEST_P(GoldenKernels, AreTheSameBytes) {
  const KernelSource source = GetParam().make();
  const std::string text = source.body;
  EXPECT_TRUE(GetParam().make().text() == source.text()) << "the same input, other bytes";
  EXPECT_EQ(text.find('\t'), std::string::npos);
  EXPECT_EQ(text.find(" \n"), std::string::npos) << "spaces at the end of a line";

  const std::filesystem::path path = golden / (std::string(GetParam().name) + ".cu");
  const char* flag = std::getenv("FLASHCORE_UPDATE");
  if (flag && *flag && std::string_view(flag) != "0") {
    std::filesystem::create_directories(golden);
    std::ofstream(path, std::ios::binary) << text;
    return;
  }
  std::ostringstream expected;
  expected << std::ifstream(path, std::ios::binary).rdbuf();
  EXPECT_EQ(text, expected.str()) << "FLASHCORE_UPDATE=1 writes " << path.filename();
}

/// A launch fills in no field that the kernel does not read.
TEST_P(GoldenKernels, ReadAllTheirParameters) {
  const std::string text = GetParam().make().body;
  const std::size_t end = text.find("};");
  std::istringstream lines(text.substr(0, end));
  std::string line;
  int fields = 0;
  while (std::getline(lines, line)) {
    const std::size_t semicolon = line.find(';');
    if (semicolon == std::string::npos) continue;
    // "  const float* x;", or several of one type: "  fc::i64 x_stride_0, x_stride_1;"
    std::istringstream words(line.substr(0, semicolon));
    for (std::string word, type; words >> word;) {
      if (word == "const" || std::exchange(type, word).empty()) continue;
      if (word.back() == ',') word.pop_back();
      EXPECT_TRUE(std::regex_search(text.begin() + static_cast<std::ptrdiff_t>(end), text.end(),
                                    std::regex("\\bp\\." + word + "\\b")))
          << word;
      ++fields;
    }
  }
  EXPECT_GT(fields, 1);
}

// Behind such a branch ptxas has left the one lane and the others of its warp apart (mbarrier.cuh).
TEST_P(GoldenKernels, OneThreadArrivesForOthersByAPredicate) {
  const std::string text = GetParam().make().body;
  EXPECT_FALSE(std::regex_search(text, std::regex(R"(if \((thread|lane)\b[^\n]*\) fc::arrive)")));
  const bool releases = text.find("_empty, ") != std::string::npos;
  if (releases) EXPECT_NE(text.find("_if(thread % 128 == 0, "), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Kernel, GoldenKernels, testing::ValuesIn(kernels),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace flashcore
