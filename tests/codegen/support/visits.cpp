#include "tests/codegen/support/visits.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "codegen/analysis/tile_guard.h"
#include "codegen/generate.h"
#include "codegen/passes/rewrite.h"
#include "dsl/ir/verify.h"
#include "runtime/reference/reference.h"

namespace flashcore {

Program masked_maximum(const std::function<Tile(const Positions&)>& visible, int tables) {
  ProgramBuilder b("masked_maximum");
  const Axis rows = b.parallel_tiles("rows", Extent("M")), cols = b.tiles("cols", Extent("N"));
  const Tensor s = b.input("s", DType::f32, {Extent("M"), Extent("N")});
  std::vector<Tensor> inputs;
  for (int i = 0; i < tables; ++i)
    inputs.push_back(
        b.gathered_input(fmt::format("t{}", i), DType::i32, {Extent(fmt::format("L{}", i))}));
  const Tensor y = b.output("y", DType::f32, {Extent("M")});
  const Tile last = b.loop(cols, b.fill({rows}, lowest), [&](const Tile& largest) {
    const Tile seen = visible({index(rows), index(cols), length(rows), length(cols), inputs});
    return maximum(largest, reduce_max(where(seen, load(s(rows, cols)), -infinity), cols));
  });
  store(y(rows), last);
  return b.finish();
}

namespace {

using namespace ir;

bool is_mask(const Function& f, const Op& op) {
  return op.code == OpCode::where && is_minus_infinity(f, op.operands[2]);
}

bool has_masks(const Function& f, BlockId body) {
  return std::ranges::any_of(f[body].ops, [&](OpId id) { return is_mask(f, f[id]); });
}

/// What says of a tile that no mask of the loop cuts it.
ValueId guard_in(const Function& f, BlockId body) {
  for (OpId id : f[body].ops)
    if (is_mask(f, f[id])) return guard_of(f, f[id]);
  return {};
}

/// Carries two sums of powers of two, and stores their pair of bit sets in place of the result.
Function with_counters(const Function& lowered, bool masked) {
  Function f = lowered;
  OpId loop, store;
  for (OpId id : f[f.body].ops) {
    if (f[id].code == OpCode::loop) loop = id;
    if (f[id].code == OpCode::store) store = id;
  }
  const std::vector<AxisId> rows = f[f[store].operands[0]].type.axes;
  const ValueId start = Builder(f, f.body, 0).constant(0, DType::f32, rows);
  const BlockId body = f[loop].body;
  const ValueId carried = add_carried(f, loop, start, "count"), tile = f[body].arguments[0];
  Builder b(f, body, f[body].ops.size() - 1);
  const ValueId bit = b.elementwise(OpCode::exp2, {b.cast(tile, DType::f32)});
  const ValueId zero = b.constant(0, DType::f32);
  ValueId counted = bit;
  if (masked && !has_masks(f, body))
    counted = zero;
  else if (const ValueId guard = masked ? guard_in(f, body) : ValueId{})
    counted = b.where(guard, zero, bit);
  const ValueId next = b.add(carried, counted);
  last_of(f, body).operands.push_back(next);
  f[store].operands[0] = f[loop].results.back();
  verify_after(f, "the test");
  return f;
}

}  // namespace

std::vector<Visits> visits_of(const Program& program, const Schedule& schedule,
                              std::string_view pass, int rows, int cols,
                              const std::vector<std::vector<std::int32_t>>& tables) {
  Function lowered;
  (void)generate(program, schedule, find_target("sm_80"),
                 [&](std::string_view name, const Function& f) {
                   if (name == pass) lowered = f;
                 });
  std::vector<float> s(static_cast<std::size_t>(rows) * cols, 1), y(static_cast<std::size_t>(rows));
  std::vector<TensorView> views{TensorView::dense(s.data(), DType::f32, {rows, cols}, cpu_device)};
  for (const auto& table : tables)
    views.push_back(TensorView::dense(const_cast<std::int32_t*>(table.data()), DType::i32,
                                      {static_cast<std::int64_t>(table.size())}, cpu_device));
  views.push_back(TensorView::dense(y.data(), DType::f32, {rows}, cpu_device));
  const auto sums = [&](bool masked) {
    return evaluate(with_counters(lowered, masked), views, {}, {.tiling = Tiling::scheduled})[0]
        .values;
  };
  const std::vector<double> visited = sums(false), masked = sums(true);
  std::vector<Visits> visits;
  for (int row = 0; row < rows; row += schedule.tiles.at("rows"))
    visits.push_back(
        {static_cast<std::uint64_t>(visited[row]), static_cast<std::uint64_t>(masked[row])});
  return visits;
}

}  // namespace flashcore
