// A module for tests: the sums of rows, each row by several blocks, whose sums a second kernel adds.
#pragma once

#include "dsl/flashcore.h"

namespace flashcore::test {

/// partial[split, i] = the sum of x[i, j] over the split's j.
inline Program sum_of_split() {
  const Extent R("R"), N("N"), splits("splits");
  ProgramBuilder b("sum_of_split");
  const Axis split = b.parallel("split", splits), rows = b.parallel_tiles("rows", R),
             cols = b.tiles("cols", N);
  const Tensor x = b.input("x", DType::f32, {R, N});
  const Tensor partial = b.output("partial", DType::f32, {splits, R});
  const Tile each = b.scalar("each", DType::i32, /*positive=*/true);
  b.segment(cols, index(split) * each, (index(split) + 1) * each);
  const Tile sum = b.loop(cols, b.fill({rows}, 0),
                          [&](const Tile& s) { return s + reduce_sum(load(x(rows, cols)), cols); });
  store(partial(split, rows), sum);
  return b.finish();
}

/// y[i] = the sum of partial[:, i].
inline Program sum_of_sums() {
  const Extent R("R"), splits("splits");
  ProgramBuilder b("sum_of_sums");
  const Axis rows = b.parallel_tiles("rows", R), split = b.tiles("split", splits);
  const Tensor partial = b.input("partial", DType::f32, {splits, R});
  const Tensor y = b.output("y", DType::f32, {R});
  const Tile sum = b.loop(split, b.fill({rows}, 0), [&](const Tile& s) {
    return s + reduce_sum(load(partial(split, rows)), split);
  });
  store(y(rows), sum);
  return b.finish();
}

inline constexpr const char* splits_text =
    "max(1, min((N + 63) // 64, 2 * multiprocessors // max(1, (R + 15) // 16)))";
inline constexpr const char* each_text = "((N + splits - 1) // splits + 15) // 16 * 16";

inline Module sum_rows() {
  ModuleBuilder m("sum_rows");
  m.number("splits", splits_text);
  m.number("each", each_text);
  m.workspace("partial");
  m.kernel(sum_of_split());
  m.kernel(sum_of_sums());
  return m.finish();
}

inline Schedule sum_rows_schedule(std::size_t kernel) {
  return kernel == 0 ? Schedule{.tiles = {{"rows", 16}, {"cols", 32}}}
                     : Schedule{.tiles = {{"rows", 16}, {"split", 16}}};
}

}  // namespace flashcore::test
