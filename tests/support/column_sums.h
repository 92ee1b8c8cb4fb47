// A module for tests whose blocks add to the same elements: the sums of a matrix's columns.
#pragma once

#include "dsl/flashcore.h"

namespace flashcore::test {

/// A vector of zeros.
inline Program zeros(const std::string& name, const std::string& output, DType dtype,
                     const std::string& extent) {
  ProgramBuilder b(name);
  const Axis along = b.parallel_tiles("along", Extent(extent));
  const Tensor y = b.output(output, dtype, {Extent(extent)});
  const Tile zero = b.fill({along}, 0);
  store(y(along), dtype == DType::f32 ? zero : cast(zero, dtype));
  return b.finish();
}

/// sums[j] += the sum of x[i, j] over the rows i of a block. Below the diagonal alone, the columns
/// that a block visits depend on its rows.
inline Program add_rows(bool in_order, bool below_diagonal = false,
                        const std::string& name = "add_rows") {
  ProgramBuilder b(name);
  const Extent R("R"), N("N");
  const Axis rows = b.parallel_tiles("rows", R), cols = b.tiles("cols", N);
  const Tensor x = b.input("x", DType::f32, {R, N});
  const Tensor sums = b.output("sums", DType::f32, {N});
  const Tensor turns = in_order ? b.output("turns", DType::i32, {R}) : Tensor();
  b.loop(cols, [&] {
    Tile values = load(x(rows, cols));
    if (below_diagonal) values = where(index(rows) >= index(cols), values, 0.F);
    const Tile sum = reduce_sum(values, rows);
    if (in_order)
      accumulate(sums(cols), sum, turns);
    else
      accumulate(sums(cols), sum);
  });
  return b.finish();
}

/// y[j] = sums[j]
inline Program take_sums() {
  ProgramBuilder b("take_sums");
  const Axis cols = b.parallel_tiles("cols", Extent("N"));
  const Tensor sums = b.input("sums", DType::f32, {Extent("N")});
  const Tensor y = b.output("y", DType::f32, {Extent("N")});
  store(y(cols), load(sums(cols)));
  return b.finish();
}

inline Module column_sums(bool in_order, bool below_diagonal = false) {
  ModuleBuilder m("column_sums");
  m.workspace("sums");
  m.kernel(zeros("no_sums_yet", "sums", DType::f32, "N"));
  if (in_order) {
    m.workspace("turns");
    m.kernel(zeros("no_turns_yet", "turns", DType::i32, "R"));
  }
  m.kernel(add_rows(in_order, below_diagonal));
  m.kernel(take_sums());
  return m.finish();
}

/// The same added to an output of the caller's, by two kernels: y[j] += the sum of x[:, j], and that
/// of what lies below the diagonal.
inline Module column_sums_added(bool in_order) {
  ModuleBuilder m("column_sums_added");
  m.kernel(add_rows(in_order));
  m.kernel(add_rows(false, true, "add_lower_rows"));
  return m.finish();
}

inline Schedule column_sums_schedule(const Program& kernel) {
  if (kernel.name().starts_with("add_"))
    return {.tiles = {{"rows", 16}, {"cols", 32}}, .warps_m = 2};
  return {.tiles = {{kernel.name() == "take_sums" ? "cols" : "along", 32}}, .warps_m = 1};
}

}  // namespace flashcore::test
