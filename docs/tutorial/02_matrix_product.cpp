// Lesson 2: a matrix product, c = a b, on the tensor cores.
//
// New here: a loop over tiles that carries a value, `dot`, and the passes that turn loads in a loop
// into asynchronous copies several tiles ahead.
#include "dsl/flashcore.h"
#include "lesson.h"

namespace fc = flashcore;

fc::Program matrix_product() {
  fc::ProgramBuilder b("matrix_product");
  const fc::Extent m("M"), n("N"), k("K");
  const fc::Tensor left = b.input("a", fc::DType::bf16, {m, k});
  const fc::Tensor right = b.input("b", fc::DType::bf16, {k, n});
  const fc::Tensor out = b.output("c", fc::DType::f32, {m, n});

  const fc::Axis rows = b.parallel_tiles("rows", m), columns = b.parallel_tiles("columns", n);
  const fc::Axis inner = b.tiles("inner", k);  // cut into tiles that the loop walks

  // The body takes the carried value and returns the next one. It runs once a tile of `inner`.
  const fc::Tile sum = b.loop(inner, b.fill({rows, columns}, 0), [&](const fc::Tile& so_far) {
    const fc::Tile a_tile = load(left(rows, inner)).named("a_tile");
    const fc::Tile b_tile = load(right(inner, columns)).named("b_tile");
    return so_far + dot(a_tile, b_tile);
  });
  store(out(rows, columns), sum);
  return b.finish();
}

void lesson_2() {
  const fc::Program program = matrix_product();
  lesson::print("the program", program.text());

  // Three stages: while one tile is multiplied, two more are on their way.
  const fc::Schedule schedule{.tiles = {{"rows", 64}, {"columns", 64}, {"inner", 32}},
                              .warps_m = 2,
                              .warps_n = 2,
                              .stages = 3};

  // generate() shows the program after every pass to whoever asks.
  const fc::KernelSource source =
      fc::generate(program, schedule, fc::find_target("sm_80"),
                   [](std::string_view pass, const fc::ir::Function& f) {
                     if (pass == "pipeline_loads")
                       lesson::print("after pipeline_loads", fc::Program(f).text());
                   });
  lesson::print("the kernel", source.body);

  constexpr int rows = 100, columns = 72, inner = 136;
  lesson::Array a(fc::DType::bf16, {rows, inner}), b(fc::DType::bf16, {inner, columns});
  lesson::Array c(fc::DType::f32, {rows, columns});
  a.fill_random(1);
  b.fill_random(2);
  const fc::EmulationReport report = lesson::run(source, {a.view(), b.view(), c.view()});
  std::printf("---- %lld bank conflicts in %lld transactions of shared memory\n",
              static_cast<long long>(report.banks.conflicts()),
              static_cast<long long>(report.banks.transactions()));

  lesson::compare(c, 1e-4, [&](std::int64_t i) {
    double sum = 0;
    for (int k = 0; k < inner; ++k)
      sum += static_cast<double>(a[i / columns * inner + k]) * b[k * columns + i % columns];
    return sum;
  });
}

int main() { return lesson::teach(lesson_2); }
