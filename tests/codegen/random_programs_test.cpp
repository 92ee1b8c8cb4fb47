// Random tile programs under random schedules, run by the emulator and held against the reference.
// Some loop over columns, make an expression of loads, products, positions and masks, and carry its
// sum and its largest element; others are a matrix product with such an expression behind it.
//
//   FLASHCORE_PROPERTY_CASES  how many programs (default 32)
//   FLASHCORE_PROPERTY_FIRST  the first of them (default 0)
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "dsl/flashcore.h"
#include "dsl/json.h"
#include "tests/support/kernel_run.h"

namespace flashcore {
namespace {

int from_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::atoi(text) : otherwise;
}

class RandomProgram {
 public:
  explicit RandomProgram(unsigned number)
      : random_(number * 2654435761u + 99u), grid_(number % 4 == 3) {}

  Program build() { return grid_ ? build_product() : build_loop(); }

  Program build_product() {
    half_ = one_in(2) ? DType::f16 : DType::bf16;
    const Axis k = b_.tiles("k", Extent(std::string("K")));
    const Extent inner(std::string("K"));
    const bool transposed = one_in(3);
    const Tensor a =
        transposed ? b_.input("a", half_, {inner, m_}) : b_.input("a", half_, {m_, inner});
    const Tensor b = b_.input("b", half_, {n_, inner});
    const Tensor row_values = b_.input("row_values", DType::f32, {m_});
    const Tensor column_values = b_.input("column_values", DType::f32, {n_});
    const DType stored = one_in(2) ? half_ : DType::f32;
    const Tensor c = b_.output("c", stored, {m_, n_});
    scalar_ = b_.scalar("scalar", DType::f32, one_in(2));
    const Tile sum = b_.loop(k, b_.fill({rows_, cols_}, 0), [&](const Tile& s) {
      const Tile left = transposed ? transpose(load(a(k, rows_))) : load(a(rows_, k));
      return s + dot(left, transpose(load(b(cols_, k))));
    });
    rows_vector_ = load(row_values(rows_));
    columns_vector_ = load(column_values(cols_));
    tile_ = sum * 0.1;
    const Tile value = tanh(expression(3) + tile_);
    store(c(rows_, cols_), stored == DType::f32 ? value : cast(value, stored));
    return b_.finish();
  }

  Program build_loop() {
    store_tile_ = one_in(3);
    half_ = one_in(2) ? DType::f16 : DType::bf16;
    const bool product = one_in(2);
    const Tensor x = b_.input("x", one_in(2) ? half_ : DType::f32, {m_, n_});
    const Tensor row_values = b_.input("row_values", DType::f32, {m_});
    const Tensor column_values = b_.input("column_values", DType::f32, {n_});
    const Tensor q = b_.input("q", half_, {m_, 24}), k = b_.input("k", half_, {n_, 24});
    const Tensor sums = b_.output("sums", DType::f32, {m_}),
                 largest = b_.output("largest", DType::f32, {m_});
    const DType stored = one_in(2) ? half_ : DType::f32;
    const Tensor tile = store_tile_ ? b_.output("tile", stored, {m_, n_}) : Tensor();
    const Tensor mixed = product ? b_.output("mixed", half_, {m_, 24}) : Tensor();
    scalar_ = b_.scalar("scalar", DType::f32, one_in(2));

    rows_vector_ = load(row_values(rows_));
    const Tile query = load(q(rows_, d_));
    struct State {
      Tile sum, max, out;
    };
    const State start{b_.fill({rows_}, 0), b_.fill({rows_}, lowest), b_.fill({rows_, d_}, 0)};
    const State last = b_.loop(cols_, start, [&](const State& s) {
      columns_vector_ = load(column_values(cols_));
      const Tile loaded = load(x(rows_, cols_));
      tile_ = loaded.dtype() == DType::f32 ? loaded : cast(loaded, DType::f32);
      const Tile keys = load(k(cols_, d_));
      if (product) tile_ = tile_ + dot(query, transpose(keys)) * 0.1;
      const Tile value = tanh(expression(3) + tile_);
      if (store_tile_)
        store(tile(rows_, cols_), stored == DType::f32 ? value : cast(value, stored));
      const Tile seen = one_in(2) ? where(condition(), value, -infinity) : value;
      const Tile weights = one_in(2) ? where(condition(), value, 0.) : exp2(value);
      return State{s.sum + reduce_sum(weights, cols_), maximum(s.max, reduce_max(seen, cols_)),
                   product ? s.out + dot(cast(weights, half_), keys) : s.out};
    });
    store(sums(rows_), last.sum);
    store(largest(rows_), maximum(last.max, rows_vector_));
    if (product) store(mixed(rows_, d_), cast(last.out * scalar_, half_));
    return b_.finish();
  }

  Schedule schedule() {
    Schedule s;
    s.warps_m = one_of({1, 2, 4});
    s.tiles = {{"rows", 16 * s.warps_m * one_of({1, 2})}, {"cols", 16 * one_of({1, 2, 3, 4})}};
    s.stages = one_of({1, 2, 3});
    s.keep_operands = one_in(2);
    s.staged_stores = one_in(2);
    s.peel_masks = one_in(2);
    s.descending = one_in(2);
    s.last_tiles_first = one_in(2);
    if (grid_) {
      s.warps_n = one_of({1, 2, 4});
      s.tiles["cols"] = 16 * s.warps_n * one_of({1, 2});
      s.tiles["k"] = 16 * one_of({1, 2, 3});
      s.grid_order = one_in(2) ? GridOrder::tiles_first : GridOrder::tiles_last;
    }
    if (one_in(4)) take_warpgroups(s);
    return s;
  }

  RunInputs inputs(unsigned seed) {
    // Copies along rows need rows of whole chunks.
    return {.extents = {{"M", grid_ ? 8 * between(1, 16) : between(1, 90)},
                        {"N", 8 * between(1, 16)},
                        {"K", 8 * between(0, 12)}},
            .scalars = {0.1 + between(1, 9) * 0.1},
            .row_gap = one_in(2) ? 8 : 0,
            .seed = seed};
  }

 private:
  void take_warpgroups(Schedule& s) {
    s.instruction = Instruction::wgmma;
    s.copy = CopyInstruction::tma;
    s.keep_operands = false;
    s.warps_m = one_of({4, 8});
    s.warps_n = 1;
    s.tiles["rows"] = 16 * s.warps_m;
    s.overlap_products = one_in(2);
    s.rescale_before_product = one_in(2);
    s.persistent = one_in(2);
    if (!s.persistent) s.positions_per_block = one_of({1, 2});
    s.flat_grid = one_in(3);
  }

  int between(int low, int high) {
    return low + static_cast<int>(random_() % static_cast<unsigned>(high - low + 1));
  }
  bool one_in(int n) { return between(1, n) == 1; }
  int one_of(const std::vector<int>& choices) {
    return choices[static_cast<std::size_t>(between(0, static_cast<int>(choices.size()) - 1))];
  }

  Tile leaf() {
    switch (between(0, 5)) {
      case 0:
        return rows_vector_;
      case 1:
        return columns_vector_;
      case 2:
        return scalar_;
      case 3:
        return cast(integer(2), DType::f32) * 0.01;
      default:
        return tile_;
    }
  }

  /// Functions without jumps, so that a rounding stays a rounding.
  Tile expression(int depth) {
    if (depth == 0) return leaf();
    const Tile a = expression(depth - 1);
    switch (between(0, 10)) {
      case 0:
        return a + expression(depth - 1);
      case 1:
        return a - expression(depth - 1);
      case 2:
        return a * tanh(expression(depth - 1));
      case 3:
        return minimum(a, expression(depth - 1));
      case 4:
        return maximum(a, expression(depth - 1));
      case 5:
        return where(condition(), a, expression(depth - 1));
      case 6:
        return sqrt(abs(a) + 1);
      case 7:
        return log2(abs(a) + 1) - log(abs(a) + 2);
      case 8:
        return a / (abs(expression(depth - 1)) + 1);
      case 9:
        return exp(minimum(a, 1)) - reciprocal(exp2(a) + 1);
      default:
        return -a;
    }
  }

  Tile integer(int depth) {
    if (depth == 0) return one_in(2) ? index(rows_) : index(cols_);
    const Tile a = integer(depth - 1);
    switch (between(0, 6)) {
      case 0:
        return a + integer(depth - 1);
      case 1:
        return a - integer(depth - 1);
      case 2:
        return a * between(-3, 3);
      case 3:
        return a % between(1, 9);
      case 4:
        return a / between(1, 9);
      case 5:
        return minimum(a, length(cols_) - length(rows_));
      default:
        return a + between(-40, 40);
    }
  }

  Tile condition() {
    const Tile a = integer(between(0, 2)), b = integer(between(0, 2));
    switch (between(0, 7)) {
      case 0:
        return a < b;
      case 1:
        return a <= b;
      case 2:
        return a > between(-20, 60);
      case 3:
        return a >= b;
      case 4:
        return a == b;
      case 5:
        return a != b;
      case 6:
        return condition() && condition();
      default:
        return condition() || !condition();
    }
  }

  std::mt19937 random_;
  bool grid_;
  ProgramBuilder b_{"random_program"};
  Extent m_{std::string("M")}, n_{std::string("N")};
  Axis rows_ = b_.parallel_tiles("rows", m_),
       cols_ = grid_ ? b_.parallel_tiles("cols", n_) : b_.tiles("cols", n_), d_ = b_.whole("d", 24);
  bool store_tile_ = false;
  DType half_ = DType::f16;
  Tile scalar_, rows_vector_, columns_vector_, tile_;
};

TEST(RandomPrograms, MatchTheReference) {
  const int first = from_environment("FLASHCORE_PROPERTY_FIRST", 0);
  const int cases = from_environment("FLASHCORE_PROPERTY_CASES", 32);
  int ran = 0, refused = 0;
  for (int number = first; number < first + cases; ++number) {
    RandomProgram random(static_cast<unsigned>(number));
    try {
      const Program program = random.build();
      const Schedule schedule = random.schedule();
      SCOPED_TRACE(
          fmt::format("FLASHCORE_PROPERTY_FIRST={} FLASHCORE_PROPERTY_CASES=1 test_codegen "
                      "--gtest_filter='RandomPrograms*'\n{}\n{}",
                      number, program.text(), to_json(schedule)));
      try {
        KernelSource source;
        try {
          const bool warpgroups = schedule.instruction == Instruction::wgmma;
          source = generate(program, schedule, find_target(warpgroups ? "sm_90a" : "sm_80"));
        } catch (const ScheduleError&) {
          ++refused;
          continue;
        }
        ++ran;
        for (unsigned launch = 0; launch < 2; ++launch) {
          const RunInputs in = random.inputs(static_cast<unsigned>(number) * 2 + launch);
          SCOPED_TRACE(fmt::format("M {} N {}", in.extents.at("M"), in.extents.at("N")));
          KernelRun run(program, in);
          (void)run.emulate(source);
          EXPECT_EQ(run.compare(), "");
        }
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    } catch (const Error& error) {
      ADD_FAILURE() << "program " << number << " cannot be built: " << error.what();
    }
  }
  RecordProperty("ran", ran);
  RecordProperty("refused", refused);
  if (cases >= 8) {
    EXPECT_GT(ran, refused);
  }
}

}  // namespace
}  // namespace flashcore
