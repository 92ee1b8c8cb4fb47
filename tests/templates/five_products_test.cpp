// Attention's gradients by five products of scores: blocks of keys, which add their shares of dQ up
// in a workspace. Not what ships, which computes seven products and is faster; but all of it is the
// public language, and no other program has products on Hopper whose left operand the block computes
// and reads transposed.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "dsl/flashcore.h"
#include "runtime/emulator/emulated_module.h"
#include "runtime/reference/evaluate_module.h"
#include "runtime/reference/formats.h"
#include "tests/support/column_sums.h"

namespace flashcore {
namespace {

constexpr int dim = 64;
constexpr float log2e = 1.44269504F;

struct Sums {
  Tile dk, dv;
};

/// dk and dv of a tile of keys; of dq what these keys add to it. Of packed sequences all of it within
/// each.
Program gradients(bool is_causal, bool in_order, bool packed = false) {
  ProgramBuilder b("gradients");
  const Extent B("B"), H("H"), Sq("Sq"), Sk("Sk");
  const Axis sequence = packed ? b.parallel("sequence", B) : Axis();
  const Axis head = b.parallel("head", H), cols = b.parallel_tiles("cols", Sk),
             rows = b.tiles("rows", Sq), d = b.whole("d", dim);
  const Tensor q = b.input("q", DType::bf16, {H, Sq, dim}),
               k = b.input("k", DType::bf16, {H, Sk, dim}),
               v = b.input("v", DType::bf16, {H, Sk, dim}),
               dout = b.input("dout", DType::bf16, {H, Sq, dim}),
               lse = b.input("lse_log2", DType::f32, {H, Sq}),
               delta = b.input("delta", DType::f32, {H, Sq});
  const Tensor dq_sums = b.output("dq_sums", DType::f32, {H, Sq, dim});
  const std::vector<Extent> blocks = packed ? std::vector{B, H, Sk} : std::vector{H, Sk};
  const Tensor turns = in_order ? b.output("turns", DType::i32, blocks) : Tensor();
  const Tensor dk = b.output("dk", DType::f32, {H, Sk, dim}),
               dv = b.output("dv", DType::f32, {H, Sk, dim});
  if (packed) {
    const Tensor starts_q = b.input("starts_q", DType::i32, {B + 1}),
                 starts_k = b.input("starts_k", DType::i32, {B + 1});
    const Tile at = index(sequence);
    b.segment(cols, load(starts_k(at)), load(starts_k(at + 1)));
    b.segment(rows, load(starts_q(at)), load(starts_q(at + 1)));
  }
  const Tile key = load(k(head, cols, d)).named("key"),
             value = load(v(head, cols, d)).named("value");
  const Sums last =
      b.loop(rows, Sums{b.fill({cols, d}, 0), b.fill({cols, d}, 0)}, [&](const Sums& s) {
        const Tile query = load(q(head, rows, d)).named("query"),
                   out = load(dout(head, rows, d)).named("dout");
        Tile scores = dot(key, transpose(query)) * log2e;
        if (is_causal) scores = where(index(rows) >= index(cols), scores, -infinity);
        const Tile probs = exp2(scores - load(lse(head, rows))).named("probs");
        const Tile dprobs = dot(value, transpose(out)).named("dprobs");
        const Tile dscores = cast(probs * (dprobs - load(delta(head, rows))), DType::bf16);
        const Tile dq = dot(transpose(dscores), key).named("dq");
        const Tile dv_sum = s.dv + dot(cast(probs, DType::bf16), out);
        const Tile dk_sum = s.dk + dot(dscores, query);
        if (in_order)
          accumulate(dq_sums(head, rows, d), dq, turns);
        else
          accumulate(dq_sums(head, rows, d), dq);
        return Sums{dk_sum, dv_sum};
      });
  store(dk(head, cols, d), last.dk);
  store(dv(head, cols, d), last.dv);
  return b.finish();
}

Program zeros(const char* name, const char* output, DType dtype, const char* length, bool wide) {
  ProgramBuilder b(name);
  const Extent H("H"), L(length);
  const Axis head = b.parallel("head", H), along = b.parallel_tiles("along", L);
  if (wide) {
    const Axis d = b.whole("d", dim);
    store(b.output(output, dtype, {H, L, dim})(head, along, d), b.fill({along, d}, 0));
  } else {
    store(b.output(output, dtype, {H, L})(head, along), cast(b.fill({along}, 0), dtype));
  }
  return b.finish();
}

Program take_dq() {
  ProgramBuilder b("take_dq");
  const Extent H("H"), Sq("Sq");
  const Axis head = b.parallel("head", H), along = b.parallel_tiles("along", Sq),
             d = b.whole("d", dim);
  const Tensor sums = b.input("dq_sums", DType::f32, {H, Sq, dim});
  const Tensor dq = b.output("dq", DType::f32, {H, Sq, dim});
  store(dq(head, along, d), load(sums(head, along, d)));
  return b.finish();
}

Module five_products(bool is_causal, bool in_order) {
  ModuleBuilder m("five_products");
  m.workspace("dq_sums");
  m.kernel(zeros("no_dq", "dq_sums", DType::f32, "Sq", true));
  if (in_order) {
    m.workspace("turns");
    m.kernel(zeros("no_turns", "turns", DType::i32, "Sk", false));
  }
  m.kernel(gradients(is_causal, in_order));
  m.kernel(take_dq());
  return m.finish();
}

Schedule schedule_of(const Program& kernel, bool is_causal, bool late = false) {
  if (kernel.name() != "gradients") return {.tiles = {{"along", 32}}};
  Schedule s{.tiles = {{"rows", 128}, {"cols", 128}}, .warps_m = 8};
  s.instruction = Instruction::wgmma;
  s.copy = CopyInstruction::tma;
  s.descending = false;
  s.last_tiles_first = is_causal;
  s.late_products = s.ping_pong = late;
  return s;
}

/// Tensors of one size, by the order of the module's arguments.
struct Arrays {
  Arrays(const Module& module, std::int64_t rows, std::int64_t cols, std::size_t sequences = 1) {
    std::mt19937 random(1);
    std::normal_distribution<double> normal;
    for (const ir::Tensor& tensor : module.tensors()) {
      std::vector<std::int64_t> shape;
      std::int64_t count = 1;
      for (const Extent& extent : tensor.dims) {
        shape.push_back(extent.is_static()    ? extent.value
                        : extent.name == "Sq" ? rows
                        : extent.name == "Sk" ? cols
                        : extent.name == "B"  ? static_cast<std::int64_t>(sequences) + extent.plus
                                              : 2);
        count *= shape.back();
      }
      std::vector<std::byte>& bytes =
          memory.emplace_back(static_cast<std::size_t>(count * size_of(tensor.dtype)));
      TensorView view{.data = bytes.data(),
                      .dtype = tensor.dtype,
                      .rank = static_cast<int>(shape.size()),
                      .device = cpu_device};
      std::int64_t stride = 1;
      for (std::size_t dim = shape.size(); dim-- > 0; stride *= shape[dim]) {
        view.shape[dim] = shape[dim];
        view.strides[dim] = stride;
      }
      views.push_back(view);
      // Weights of about 1 / cols.
      const double shift = tensor.name == "lse_log2" ? std::log2(cols) : 0,
                   spread = shift ? 0 : 0.3;
      for (std::int64_t i = 0; i < count; ++i)
        write_element(tensor.dtype, bytes.data(), i,
                      tensor.output ? NAN : shift + spread * normal(random));
    }
  }
  std::vector<std::vector<std::byte>> memory;
  std::vector<TensorView> views;
};

EmulatedModule emulated(const Module& module, bool is_causal, const std::string& from = {},
                        std::size_t which = 0, bool late = false) {
  std::vector<std::shared_ptr<const KernelSource>> sources;
  for (const Program& kernel : module.kernels()) {
    KernelSource source =
        generate(kernel, schedule_of(kernel, is_causal, late), find_target("sm_90a"));
    if (kernel.name() == "gradients" && !from.empty()) {
      std::size_t at = source.body.find(from);
      for (std::size_t i = 0; i < which && at != std::string::npos; ++i)
        at = source.body.find(from, at + 1);
      EXPECT_NE(at, std::string::npos) << "the kernel has no " << from << " of number " << which;
      if (at != std::string::npos) source.body.erase(at, from.size());
    }
    sources.push_back(std::make_shared<const KernelSource>(std::move(source)));
  }
  return EmulatedModule::build(module, sources);
}

std::size_t place_of(const Module& module, const std::string& name) {
  const std::vector<ir::Tensor> tensors = module.tensors();
  return static_cast<std::size_t>(std::ranges::find(tensors, name, &ir::Tensor::name) -
                                  tensors.begin());
}

void expect_what_the_reference_computes(const Module& module, const EmulatedModule& kernels,
                                        const Arrays& arrays) {
  const std::vector<ReferenceOutput> expected =
      evaluate(module, arrays.views, {}, emulated_multiprocessors);
  (void)kernels.run(arrays.views, {});
  for (const ReferenceOutput& output : expected) {
    if (output.name == "turns") continue;
    const std::size_t which = place_of(module, output.name);
    double largest = 0, off = 0;
    for (std::size_t i = 0; i < output.values.size(); ++i) {
      const double got =
          read_element(DType::f32, arrays.views[which].data, static_cast<std::int64_t>(i));
      largest = std::max(largest, std::abs(output.values[i]));
      off = std::isnan(got) ? INFINITY : std::max(off, std::abs(got - output.values[i]));
    }
    EXPECT_LT(off, 0.01 * largest) << output.name;
  }
}

TEST(FiveProducts, AreWhatTheReferenceComputes) {
  for (const bool is_causal : {false, true})
    for (const bool in_order : {false, true}) {
      for (const bool late : {false, true}) {
        const Module module = five_products(is_causal, in_order);
        const EmulatedModule kernels = emulated(module, is_causal, {}, 0, late);
        for (const auto& [rows, cols] : {std::pair{200, 300}, {130, 7}, {256, 256}, {500, 130}}) {
          Arrays arrays(module, rows, cols);
          SCOPED_TRACE(fmt::format("{} x {}, causal {}, late {}", rows, cols, is_causal, late));
          expect_what_the_reference_computes(module, kernels, arrays);
        }
      }
    }
}

Module of_packed_sequences(bool is_causal) {
  ModuleBuilder builder("packed");
  builder.kernel(gradients(is_causal, true, true));
  return builder.finish();
}

/// Sequences of several tiles, of one, of no rows and of no keys. Nobody sees the keys of the second,
/// which are NaN; they lie in a tile of the first one.
Arrays packed_arrays(const Module& module) {
  const std::vector<std::int32_t> starts_q{0, 200, 200, 330, 394, 397},
      starts_k{0, 300, 340, 347, 347, 476};
  Arrays arrays(module, starts_q.back(), starts_k.back(), starts_q.size() - 1);
  for (std::size_t i = 0; i < module.tensors().size(); ++i) {
    const std::string& name = module.tensors()[i].name;
    const std::span<std::byte> bytes = arrays.memory[i];
    if (name == "starts_q") std::memcpy(bytes.data(), starts_q.data(), bytes.size());
    if (name == "starts_k") std::memcpy(bytes.data(), starts_k.data(), bytes.size());
    if (name == "dq_sums" || name == "turns") std::ranges::fill(bytes, std::byte{0});
    if (name == "k" || name == "v")
      for (int head = 0; head < 2; ++head)
        for (int at = starts_k[1] * dim; at < starts_k[2] * dim; ++at)
          write_element(DType::bf16, bytes.data(), head * starts_k.back() * dim + at, NAN);
  }
  return arrays;
}

TEST(FiveProducts, OfPackedSequencesAddInTheOrderOfEach) {
  for (const bool is_causal : {false, true}) {
    const Module module = of_packed_sequences(is_causal);
    const EmulatedModule kernels = emulated(module, is_causal);
    const std::size_t dq = place_of(module, "dq_sums");
    Arrays first = packed_arrays(module), second = packed_arrays(module);
    expect_what_the_reference_computes(module, kernels, first);
    (void)kernels.run(second.views, {});
    EXPECT_EQ(first.memory[dq], second.memory[dq]);
  }
}

TEST(FiveProducts, KeysOfOtherSequencesAreClearedFromATile) {
  const Module module = of_packed_sequences(false);
  Arrays arrays = packed_arrays(module);
  (void)emulated(module, false, "fc::store_shared<4>(key + at, zeros);").run(arrays.views, {});
  EXPECT_TRUE(
      std::isnan(read_element(DType::f32, arrays.views[place_of(module, "dq_sums")].data, 0)));
}

std::size_t count(const std::string& body, const std::string& text) {
  std::size_t found = 0;
  for (std::size_t at = body.find(text); at != std::string::npos; at = body.find(text, at + 1))
    ++found;
  return found;
}

struct Part {
  std::string text;
  std::size_t times;
  std::size_t at_the_end = 0;  ///< of these, in front of releases that nobody waits for any more
};

/// What orders the warpgroups, and the additions of the copy engine: how often each stands in the
/// kernel, and that it needs every one.
void expect_needed(bool in_order, const std::vector<Part>& parts, bool late = false) {
  const Module module = five_products(false, in_order);
  const Program& kernel = module.kernels()[in_order ? 2 : 1];
  const std::string body =
      generate(kernel, schedule_of(kernel, false, late), find_target("sm_90a")).body;
  for (const auto& [text, times, at_the_end] : parts) {
    EXPECT_EQ(count(body, text), times) << text;
    for (std::size_t which = 0; which < times - at_the_end; ++which) {
      const EmulatedModule kernels = emulated(module, false, text, which, late);
      Arrays arrays(module, late ? 640 : 384, 384);
      EXPECT_THROW((void)kernels.run(arrays.views, {}), EmulatorError) << text << which;
    }
  }
}

const std::string all_meet = "fc::meet(9, 256);", group_meets = "fc::meet(1 + warp / 4, 128);",
                  fence = "fc::fence_async();", commit = "fc::commit_stores();";

TEST(FiveProducts, EveryWaitForAnAdditionInAnyOrderIsNeeded) {
  // All meet behind what is written for the products of all, and before it is written again.
  expect_needed(false, {{all_meet, 2},
                        {group_meets, 2, 1},
                        {fence, 2},
                        {commit, 1},
                        {"if (thread % 128 == 0) fc::wait_stores_read<1>();", 1},
                        {"if (thread % 128 == 0) fc::wait_stores_read<0>();", 1}});
}

TEST(FiveProducts, EveryWaitForAnAdditionInOrderIsNeeded) {
  // All meet before the turn is passed on, which is also before what is for all is written again.
  expect_needed(true, {{all_meet, 2},
                       {group_meets, 2, 1},
                       {fence, 2},
                       {commit, 1},
                       {"if (thread % 128 == 0) fc::wait_stores<0>();", 1},
                       {"if (cols_begin > 0) fc::wait_turn(turns_at_3 + cols_begin - 128, "
                        "end_of_tile);",
                        1}});
}

TEST(FiveProducts, EveryWaitOfLateProductsIsNeeded) {
  const std::string slot = "operand_tile_slot", phase = "operand_tile_phase";
  expect_needed(
      false,
      {{"fc::wait_phase(operand_tile_full + " + slot + " * 8, " + phase + ");", 2},
       {"fc::arrive_as_warp(operand_tile_full + operand_tile_slot_ahead_3 * 8, lane);", 1},
       {fence, 4},
       {group_meets, 5, 1}},
      /*late=*/true);
}

TEST(FiveProducts, AdditionsOfTheCopyEngineHaveNoBankConflicts) {
  const Module module = five_products(false, false);
  const Program& kernel = module.kernels()[1];
  const std::string body = generate(kernel, schedule_of(kernel, false), find_target("sm_90a")).body;
  const std::size_t at = body.find("fc::store_row_pair");
  ASSERT_NE(at, std::string::npos);
  const auto line =
      1 + std::count(body.begin(), body.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  Arrays arrays(module, 128, 128);
  const EmulationReport report = emulated(module, false).run(arrays.views, {})[1];
  const auto writes = std::ranges::find(report.banks.lines, line, &BankLine::line);
  ASSERT_NE(writes, report.banks.lines.end());
  EXPECT_GT(writes->instructions, 0);
  EXPECT_EQ(writes->conflicts, 0);
}

}  // namespace
}  // namespace flashcore
