// The emulator's prelude and the device's are two texts: every kind of program also has to please
// NVRTC.
#include "runtime/compile.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "runtime/cuda/nvrtc.h"
#include "runtime/cuda/nvrtc_search.h"
#include "tests/codegen/support/programs.h"

namespace flashcore {
namespace {

/// Null on a machine without NVRTC.
const Nvrtc* nvrtc() {
  static const std::unique_ptr<Nvrtc> compiler = [] {
    try {
      return std::make_unique<Nvrtc>(find_nvrtc(NvrtcSearch::from_environment()));
    } catch (const CompileError&) {
      return std::unique_ptr<Nvrtc>();
    }
  }();
  return compiler.get();
}

void expect_compiles(const Program& program, const Schedule& schedule) {
  SCOPED_TRACE(program.name());
  const std::string target = schedule.instruction == Instruction::wgmma ? "sm_90a" : "sm_90";
  try {
    const KernelSource source = generate(program, schedule, find_target(target));
    const Cubin cubin = compile_cubin(*nvrtc(), source, target);
    EXPECT_EQ(cubin.resources.spill_store_bytes, 0);
    EXPECT_EQ(cubin.resources.stack_bytes, 0) << "an array that is not in registers";
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
}

void expect_compiles(const Program& program, std::map<std::string, int> tiles, int warps_m,
                     int warps_n = 1) {
  Schedule schedule;
  schedule.tiles = std::move(tiles);
  schedule.warps_m = warps_m;
  schedule.warps_n = warps_n;
  expect_compiles(program, schedule);
}

TEST(Compile, ProductsOfWarpgroups) {
  if (!nvrtc()) GTEST_SKIP() << "no libnvrtc on this machine";
  Schedule schedule;
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  schedule.warps_m = 8;
  schedule.tiles = {{"m", 128}, {"n", 80}, {"k", 64}};
  for (const bool transposed : {false, true})
    expect_compiles(transposed_product(transposed), schedule);
  expect_compiles(grouped_product(), schedule);
  schedule.tiles = {{"rows", 128}, {"cols", 64}};
  for (const int page_size : {128, 16})
    expect_compiles(paged_products(page_size, 64, true), schedule);
  schedule.tiles = {{"m", 128}, {"n", 80}, {"k", 64}};
  schedule.tiles["n"] = 128;
  expect_compiles(matrix_product(DType::bf16, DType::bf16), schedule);
}

TEST(Compile, EveryKindOfProgram) {
  if (!nvrtc()) GTEST_SKIP() << "no libnvrtc on this machine";
  expect_compiles(elementwise(40), {{"rows", 64}}, 4);
  expect_compiles(elementwise(128), {{"rows", 64}}, 4);
  expect_compiles(matrix_product(DType::f16, DType::f32), {{"m", 64}, {"n", 64}, {"k", 32}}, 4);
  expect_compiles(matrix_product(DType::bf16, DType::bf16), {{"m", 128}, {"n", 128}, {"k", 32}}, 2,
                  2);
  expect_compiles(transposed_product(), {{"m", 64}, {"n", 64}, {"k", 32}}, 2, 2);
  expect_compiles(chained_product(), {{"m", 64}, {"n", 64}}, 2, 2);
  expect_compiles(linear_attention(128, 128), {{"t", 64}, {"dv", 64}}, 4);
  expect_compiles(row_softmax(), {{"rows", 32}, {"cols", 64}}, 4);
  expect_compiles(column_reductions(), {{"rows", 32}, {"cols", 32}}, 1);
  expect_compiles(layer_norm(), {{"rows", 32}}, 4);
  expect_compiles(exchanging(), {{"rows", 32}, {"cols", 32}}, 1);
  expect_compiles(integers(), {{"rows", 64}}, 4);
  expect_compiles(gather(), {{"rows", 32}}, 4);
  expect_compiles(chained_products(), {{"m", 64}, {"n", 32}}, 4);
  expect_compiles(two_passes(), {{"rows", 64}, {"cols", 64}}, 4);
  expect_compiles(mixed_use(), {{"rows", 64}, {"cols", 64}}, 4);
}

}  // namespace
}  // namespace flashcore
