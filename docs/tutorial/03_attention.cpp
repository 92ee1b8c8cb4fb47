// Lesson 3: an attention of one's own, with a penalty for distance (ALiBi; Press et al.,
// arXiv:2108.12409):
//
//   score(i, j) = scale q_i k_j - slope (i - j),   j <= i
//
// New here: a loop that carries a struct, a score and a mask as expressions of positions, and a
// mask that bounds a loop without anybody asking for it.
#include "dsl/flashcore.h"
#include "lesson.h"

namespace fc = flashcore;

constexpr int head_dim = 64;

// What the loop carries for every row: the largest score so far, the sum of the powers, the output.
struct State {
  fc::Tile row_max, row_sum, out;
};

fc::Program distance_attention() {
  fc::ProgramBuilder b("distance_attention");
  const fc::Extent heads("H"), length("S");
  const fc::Tensor q = b.input("q", fc::DType::bf16, {heads, length, head_dim});
  const fc::Tensor k = b.input("k", fc::DType::bf16, {heads, length, head_dim});
  const fc::Tensor v = b.input("v", fc::DType::bf16, {heads, length, head_dim});
  const fc::Tensor o = b.output("o", fc::DType::bf16, {heads, length, head_dim});
  const fc::Tile scale = b.scalar("scale", fc::DType::f32, /*positive=*/true);
  const fc::Tile slope = b.scalar("slope", fc::DType::f32);

  // rows and cols have the same length, yet they are two axes: a tile has each of its axes once.
  const fc::Axis head = b.parallel("head", heads);
  const fc::Axis rows = b.parallel_tiles("rows", length), cols = b.tiles("cols", length);
  const fc::Axis d = b.whole("d", head_dim), dv = b.whole("dv", head_dim);

  const fc::Tile query = load(q(head, rows, d)).named("query");
  const State start{b.fill({rows}, fc::lowest).named("row_max"), b.fill({rows}, 0).named("row_sum"),
                    b.fill({rows, dv}, 0).named("out")};
  const State last = b.loop(cols, start, [&](const State& s) {
    const fc::Tile key = load(k(head, cols, d)).named("key");
    const fc::Tile value = load(v(head, cols, dv)).named("value");
    const fc::Tile distance = fc::cast(fc::index(rows) - fc::index(cols), fc::DType::f32);
    fc::Tile scores = dot(query, transpose(key)) * scale - distance * slope;
    scores = where(fc::index(rows) >= fc::index(cols), scores, -fc::infinity).named("scores");

    const fc::Tile row_max = maximum(s.row_max, reduce_max(scores, cols)).named("new_max");
    const fc::Tile decay = fc::exp(s.row_max - row_max).named("decay");
    const fc::Tile probs = fc::exp(scores - row_max).named("probs");
    return State{row_max, s.row_sum * decay + reduce_sum(probs, cols),
                 s.out * decay + dot(fc::cast(probs, fc::DType::bf16), value)};
  });
  store(o(head, rows, dv), fc::cast(last.out / last.row_sum, fc::DType::bf16));
  return b.finish();
}

void lesson_3() {
  const fc::Program program = distance_attention();
  const fc::Schedule schedule{.tiles = {{"rows", 64}, {"cols", 32}}, .warps_m = 4, .stages = 2};
  const fc::KernelSource source =
      fc::generate(program, schedule, fc::find_target("sm_80"),
                   [](std::string_view pass, const fc::ir::Function& f) {
                     // Look for cols_end and cols_full_end: the tiles above the diagonal are not
                     // visited, and those below it lose their mask when the loop is split.
                     if (pass == "bound_masks")
                       lesson::print("after bound_masks", fc::Program(f).text());
                   });
  lesson::print("the kernel", source.body);

  constexpr int heads = 2, length = 150;
  constexpr float scale = 0.125F, slope = 0.05F;
  lesson::Array q(fc::DType::bf16, {heads, length, head_dim}), k = q, v = q, o = q;
  q.fill_random(1);
  k.fill_random(2);
  v.fill_random(3);
  lesson::run(source, {q.view(), k.view(), v.view(), o.view()}, {scale, slope});

  lesson::compare(o, 2e-2, [&](std::int64_t i) {
    const std::int64_t column = i % head_dim, row = i / head_dim % length;
    const std::int64_t first = i / (head_dim * length) * length;  // of the head, in rows
    double total = 0, sum = 0;
    for (std::int64_t j = 0; j <= row; ++j) {
      double score = -slope * static_cast<double>(row - j);
      for (int c = 0; c < head_dim; ++c)
        score += scale * q[(first + row) * head_dim + c] * k[(first + j) * head_dim + c];
      total += std::exp(score);
      sum += std::exp(score) * v[(first + j) * head_dim + column];
    }
    return sum / total;
  });
}

int main() { return lesson::teach(lesson_3); }
