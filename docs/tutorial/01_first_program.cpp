// Lesson 1: a softmax over the rows of a matrix.
//
//   y[row, :] = exp(x[row, :] - max) / sum
//
// A program says what is computed, a schedule how it is cut, and code generation writes the kernel.
// This lesson prints all three, then runs the kernel on the CPU.
#include "dsl/flashcore.h"
#include "lesson.h"

namespace fc = flashcore;

// The algorithm. Nothing here knows of threads, or of how many rows there are.
fc::Program softmax() {
  fc::ProgramBuilder b("softmax");
  const fc::Extent row_count("R");  // a named length: read off the arrays at every launch
  const int columns = 200;          // a constant: compiled in
  const fc::Tensor x = b.input("x", fc::DType::f32, {row_count, columns});
  const fc::Tensor y = b.output("y", fc::DType::f32, {row_count, columns});

  // A thread block computes one tile of `rows`; `cols` is always whole in a tile.
  const fc::Axis rows = b.parallel_tiles("rows", row_count), cols = b.whole("cols", columns);

  const fc::Tile values = load(x(rows, cols)).named("values");
  const fc::Tile largest = reduce_max(values, cols).named("largest");  // one number a row
  const fc::Tile powers = fc::exp(values - largest).named("powers");   // broadcasts along cols
  const fc::Tile total = reduce_sum(powers, cols).named("total");
  store(y(rows, cols), powers / total);
  return b.finish();
}

void lesson_1() {
  const fc::Program program = softmax();
  lesson::print("the program, as text", program.text());

  // 32 rows a block, shared by two warps. Try {{"rows", 24}} to see a refusal.
  const fc::Schedule schedule{.tiles = {{"rows", 32}}, .warps_m = 2};
  const fc::KernelSource source = fc::generate(program, schedule, fc::find_target("sm_80"));
  lesson::print("the kernel, without the device primitives before it", source.body);

  // 77 is no multiple of 32, and 200 none of the sizes a warp likes: tails are the compiler's
  // business.
  constexpr int rows = 77, columns = 200;
  lesson::Array x(fc::DType::f32, {rows, columns}), y(fc::DType::f32, {rows, columns});
  x.fill_random(1);
  lesson::run(source, {x.view(), y.view()});

  lesson::compare(y, 1e-5, [&](std::int64_t i) {
    const std::int64_t row = i / columns;
    double total = 0;
    for (int c = 0; c < columns; ++c) total += std::exp(static_cast<double>(x[row * columns + c]));
    return std::exp(static_cast<double>(x[i])) / total;
  });
}

int main() { return lesson::teach(lesson_1); }
