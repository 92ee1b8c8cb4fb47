// Loops keep their meaning where their products are in flight: the cases of overlap_products, and
// loops that chance writes, for any number of tiles, none and one among them.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/analysis/product_stages.h"
#include "codegen/generate.h"
#include "dsl/flashcore.h"
#include "dsl/ir/parse.h"
#include "dsl/ir/print.h"
#include "dsl/ir/verify.h"
#include "templates/attention.h"
#include "tests/codegen/pass_cases.h"
#include "tests/runtime/reference/arrays.h"
#include "tests/support/kernel_run.h"

namespace flashcore {
namespace {

using namespace testing_support;

std::vector<ReferenceOutput> outputs_of(const ir::Function& f, int rows, int columns) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  std::vector<Array> arrays;
  for (const ir::Tensor& tensor : f.tensors) {
    std::vector<std::int64_t> shape;
    std::int64_t elements = 1;
    for (const Extent& dim : tensor.dims) {
      shape.push_back(dim.is_static() ? dim.value : dim.name == "M" ? rows : columns);
      elements *= shape.back();
    }
    std::vector<double> values;
    for (std::int64_t i = 0; i < elements && !tensor.output; ++i)
      values.push_back(0.3 * normal(random));
    arrays.emplace_back(tensor.dtype, shape, values);
  }
  std::vector<TensorView> views;
  for (Array& array : arrays) views.push_back(array.view());
  return evaluate(f, views, {}, in_tiles);
}

bool is_same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// Held against the loop as it was, to the last bit: no sum changes its order.
void expect_same_meaning(const std::string& text, const Schedule& schedule, const Target& target) {
  const ir::Function before = ir::parse(text);
  ir::Function after = before;
  find_pass("overlap_products")->run(after, {schedule, target});
  const std::string printed = ir::print(after);
  ir::verify(after);
  EXPECT_EQ(ir::print(ir::parse(printed)), printed);
  for (const int rows : {0, 1, 2, 3, 7})
    for (const int columns : {0, 1, 2, 3, 4, 9}) {
      SCOPED_TRACE(fmt::format("{} rows, {} columns, {}", 64 * rows, 32 * columns, printed));
      const auto wanted = outputs_of(before, 64 * rows, 32 * columns);
      const auto got = outputs_of(after, 64 * rows, 32 * columns);
      ASSERT_EQ(got.size(), wanted.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_TRUE(std::ranges::equal(got[i].values, wanted[i].values, is_same)) << got[i].name;
    }
}

TEST(ProductsInFlight, KeepTheMeaningOfTheCases) {
  for (const PassCase& one : read_cases("overlap_products"))
    expect_same_meaning(one.input, one.schedule(), one.target());
}

/// A loop over columns, whose products take loaded tiles or what it has computed, from products of
/// the same iteration and of the one before.
class RandomLoop {
 public:
  explicit RandomLoop(unsigned seed) : random_(seed * 2654435761u + 5u) {}

  std::string text() {
    const int products = between(2, 6), sums = between(1, 3), slots = between(2, 5);
    std::string declared, carried, first, loops = "%y_0", yielded, stores;
    for (int i = 0; i < sums; ++i) {
      declared += fmt::format("output y_{}: f32 [M, 16]\n", i);
      carried += fmt::format("carry %sum_{} = %zeros : {}\n", i, row_type);
      if (i) loops += fmt::format(", %y_{}", i);
      stores += fmt::format("store y_{0}[m, k], %y_{0}\n", i);
      rows_.push_back(fmt::format("%sum_{}", i));
    }
    std::string tiles;
    for (int i = 0; i < products; ++i) {
      if (i == 0 || between(0, 3)) {
        tiles += fmt::format("channel b_{}: bf16 [32, 16] stages {} by tma\n", i, slots);
        first += fmt::format("acquire in b_{0}\nissue b[n, k] in b_{0}\n", i);
        body_ += fmt::format("%b_{0} = wait in b_{0} : bf16[n, k] @ shared\n", i);
        loaded_.push_back(fmt::format("%b_{}", i));
      }
      add_product();
      for (int n = between(0, 3); n > 0; --n) compute();
    }
    if (!columns_.empty() && between(0, 1)) {
      declared += "output z: f32 [M, N]\n";
      body_ += fmt::format("store z[m, n], {}\n", any_of(columns_));
    }
    for (int i = 0; i < sums; ++i) yielded += (i ? ", " : "") + any_of(rows_);
    return fmt::format(R"(program random_loop
axis m: parallel_tiles M tile 64
axis n: tiles N tile 32
axis k: whole 16 tile 16
input a: bf16 [M, 16]
input b: bf16 [N, 16]
{}channel a: bf16 [64, 16] stages 1 by tma
{}{{
role producer {{
acquire in a
issue a[m, k] in a
loop n {{
tile %tile : i32
{}yield
}}
}}
role consumers {{
%a = wait in a : bf16[m, k] @ shared
%zeros = constant 0 : f32[m, k]
{} = loop n{} {{
tile %at : i32
{}{}yield {}
}}
{}}}
}}
)",
                       declared, tiles, first, loops, "", carried, body_, yielded, stores);
  }

 private:
  static constexpr const char* rows_home = "m(4w 2s*8 8l/4) k(2f 2s 4l*2)";
  static constexpr const char* columns_home = "m(4w 2s*8 8l/4) n(4f 2s 4l*2)";
  static inline const std::string row_type = fmt::format("f32[m, k] @ {}", rows_home);
  static inline const std::string column_type = fmt::format("f32[m, n] @ {}", columns_home);

  void add_product() {
    const std::string right = any_of(loaded_);
    const int id = count_++;
    if (!columns_.empty() && between(0, 1)) {
      body_ += fmt::format("%p_{} = cast {} : bf16[m, n] @ operand {}\n", id, any_of(columns_),
                           columns_home);
      const std::string sum = between(0, 1) ? ", " + any_of(rows_) : "";
      body_ +=
          fmt::format("%v_{0} = dot %p_{0}, {1}{2} using wgmma : {3}\n", id, right, sum, row_type);
      rows_.push_back(fmt::format("%v_{}", id));
      return;
    }
    std::string left = "%a";
    if (!between(0, 4)) {
      left = fmt::format("%p_{}", id);
      body_ +=
          fmt::format("{} = cast {} : bf16[m, k] @ operand {}\n", left, any_of(rows_), rows_home);
    }
    body_ += fmt::format("%t_{} = transpose {} : bf16[k, n] @ shared\n", id, right);
    body_ += fmt::format("%v_{0} = dot {1}, %t_{0} using wgmma : {2}\n", id, left, column_type);
    columns_.push_back(fmt::format("%v_{}", id));
  }

  void compute() {
    const bool rows = columns_.empty() || between(0, 1);
    std::vector<std::string>& tiles = rows ? rows_ : columns_;
    const std::string type = rows ? row_type : column_type, name = fmt::format("%v_{}", count_++);
    if (between(0, 1))
      body_ += fmt::format("{} = tanh {} : {}\n", name, any_of(tiles), type);
    else
      body_ += fmt::format("{} = {} {}, {} : {}\n", name, between(0, 1) ? "mul" : "add",
                           any_of(tiles), any_of(tiles), type);
    tiles.push_back(name);
  }

  int between(int low, int high) {
    return low + static_cast<int>(random_() % static_cast<unsigned>(high - low + 1));
  }
  /// The last ones more often, so that chains come about.
  const std::string& any_of(const std::vector<std::string>& names) {
    const int last = static_cast<int>(names.size()) - 1;
    return names[static_cast<std::size_t>(last - std::min(last, between(0, between(0, last))))];
  }

  std::mt19937 random_;
  int count_ = 0;
  std::string body_;
  std::vector<std::string> rows_, columns_, loaded_;
};

TEST(ProductsInFlight, KeepTheMeaningOfRandomLoops) {
  int stages[4] = {}, refused = 0, alone = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    const std::string text = RandomLoop(seed).text();
    SCOPED_TRACE(fmt::format("seed {}\n{}", seed, text));
    const ir::Function f = ir::parse(text);
    for (const ir::Op& op : f.ops)
      if (op.code == ir::OpCode::loop && !op.results.empty()) {
        const ProductStages found = find_product_stages(f, op, {});
        ++(found.refusal.empty() ? stages[std::min(found.count, 3)] : refused);
        if (!found.refusal.empty() && single_product_stage(f, op).refusal.empty()) ++alone;
      }
    Schedule schedule;
    schedule.rescale_before_product = seed % 2;
    schedule.lazy_scaling = seed % 4 > 1;
    expect_same_meaning(text, schedule, find_target("sm_90a"));
    if (HasFailure()) return;
  }
  RecordProperty("refused", refused);
  EXPECT_GT(stages[1], 5);
  EXPECT_GT(stages[2], 5);
  EXPECT_GT(stages[3], 1);
  EXPECT_GT(refused, 5);
  EXPECT_GT(alone, 5);
}

TEST(ProductsInFlight, MayReadASlotThatTheIterationBeforeHasAwaited) {
  ProgramBuilder b("one_tile_twice");
  const Extent m("M"), n("N");
  const Axis rows = b.parallel_tiles("rows", m), cols = b.tiles("cols", n), d = b.whole("d", 32);
  const Tensor q = b.input("q", DType::bf16, {m, 32}), k = b.input("k", DType::bf16, {n, 32}),
               out = b.output("out", DType::f32, {m, 32});
  const Tile query = load(q(rows, d));
  const Tile sum = b.loop(cols, b.fill({rows, d}, 0), [&](const Tile& before) {
    const Tile keys = load(k(cols, d));
    return before + dot(cast(tanh(dot(query, transpose(keys))), DType::bf16), keys);
  });
  store(out(rows, d), sum);
  const Program program = b.finish();
  Schedule schedule{.tiles = {{"rows", 64}, {"cols", 32}}, .stages = 3};
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  for (const bool persistent : {false, true}) {
    schedule.persistent = persistent;
    const KernelSource source = generate(program, schedule, find_target("sm_90a"));
    EXPECT_NE(source.text().find("_ahead = (k_slot"), std::string::npos) << source.text();
    for (const int columns : {8, 32, 40, 64, 200, 320}) {
      SCOPED_TRACE(fmt::format("{} columns", columns));
      KernelRun run(program, {.extents = {{"M", 200}, {"N", columns}}});
      (void)run.emulate(source);
      EXPECT_EQ(run.compare(), "");
    }
  }
}

/// The refusal of the only loop that carries something.
std::string refusal_of(const std::string& text, StageRules rules = {}) {
  const ir::Function f = ir::parse(text);
  for (const ir::Op& op : f.ops)
    if (op.code == ir::OpCode::loop && !op.results.empty())
      return find_product_stages(f, op, rules).refusal;
  return "there is no loop";
}

/// The same, of its iterations one by one.
std::string alone_refusal_of(const std::string& text) {
  const ir::Function f = ir::parse(text);
  for (const ir::Op& op : f.ops)
    if (op.code == ir::OpCode::loop && !op.results.empty())
      return single_product_stage(f, op).refusal;
  return "there is no loop";
}

/// Behind that wait it would hold the product up: the tile is there, and its sums are not.
TEST(ProductsInFlight, ScaleASumInFrontOfTheWaitForWhatItsProductReads) {
  AttentionSpec spec;
  spec.head_dim = 64;
  Schedule schedule;
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  schedule.tiles = {{"rows", 128}, {"cols", 64}};
  schedule.warps_m = 8;
  schedule.rescale_before_product = true;
  const auto pinned = [&](bool rescale_before_wait) {
    schedule.rescale_before_wait = rescale_before_wait;
    const std::string text =
        generate(attention_forward(spec), schedule, find_target("sm_90a")).body;
    const std::regex scaled(
        R"(\* decay\w*\[0\]\[\(e / 2\)\];\s*fc::pin\(out\);\s*fc::wait_phase\(value_full)");
    return std::distance(std::sregex_iterator(text.begin(), text.end(), scaled), {});
  };
  EXPECT_EQ(pinned(true), 2);  // in the loop, and for the last tile behind it
  EXPECT_EQ(pinned(false), 0);
}

TEST(ProductsInFlight, SayWhyALoopIsNotPipelined) {
  for (const PassCase& one : read_cases("overlap_products")) {
    const auto has = [&](const char* text) { return one.input.find(text) != std::string::npos; };
    if (has("program fed_back"))
      EXPECT_EQ(refusal_of(one.input),
                "%s needs %x, which the iteration before makes in a later stage");
    else if (has("\"late_products\": true"))
      EXPECT_EQ(refusal_of(one.input, {.late_products = true}), "");
    else if (has("program one_operand") && has("stages 3"))
      EXPECT_EQ(refusal_of(one.input, {.hold_slots = false}),
                "2 iterations hold a slot of b, which the role fills itself");
    else if (has("program one_operand"))
      EXPECT_EQ(refusal_of(one.input),
                "2 iterations hold a slot of b, which needs another to be filled and has 2");
    else if (has("program backward_keys"))
      EXPECT_EQ(refusal_of(one.input),
                "2 iterations hold a slot of q, which needs another to be filled and has 2");
    else if (has("program one_sum"))
      EXPECT_EQ(refusal_of(one.input),
                "2 iterations hold a slot of a, which needs another to be filled and has 1");
    else
      EXPECT_EQ(refusal_of(one.input), "");
    if (has("program backward_keys")) {
      EXPECT_EQ(alone_refusal_of(one.input), "");
    }
    if (has("program one_operand") || has("program one_sum")) {
      EXPECT_EQ(alone_refusal_of(one.input), "every product needs the one in front of it");
    }
  }
}

}  // namespace
}  // namespace flashcore
