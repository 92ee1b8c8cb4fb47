#include "templates/key_range.h"

#include "dsl/ir/affine.h"

namespace flashcore {
KeyRange::KeyRange(const AttentionSpec& spec) {
  if (spec.mask.is_full()) return;
  ProgramBuilder b("key_range");
  const Axis batch = b.parallel("batch", Extent("B")), head = b.parallel("head", Extent("H"));
  const Axis rows = b.parallel_tiles("rows", Extent("Sq")), cols = b.tiles("cols", Extent("Sk"));
  const Tile q_len = b.scalar("q_len", DType::i32), kv_len = b.scalar("kv_len", DType::i32);
  declare_captured(b, captured_tensors(spec));
  const ScoreSite site{index(batch), index(head), index(rows), index(cols), q_len, kv_len};
  const Tile visible = apply(spec.mask, site);
  for (AffineForm term : affine_condition(b.function(), visible.id()).terms) {
    const std::int64_t of_key = term.positions[cols.id];
    Bound bound{.of_row = term.positions[rows.id],
                .of_q_len = term.scalars[q_len.id()],
                .of_kv_len = term.scalars[kv_len.id()],
                .constant = term.constant};
    term.positions.erase(cols.id);
    term.positions.erase(rows.id);
    term.scalars.erase(q_len.id());
    term.scalars.erase(kv_len.id());
    if (!term.positions.empty() || !term.scalars.empty() || !term.quotients.empty()) continue;
    if (of_key != 1 && of_key != -1) continue;
    // bound + key >= 0, or bound - key >= 0.
    const auto add = [of_key](Bounds& bounds, const Bound& b) {
      const Bound first{-b.of_row, -b.of_q_len, -b.of_kv_len, -b.constant};
      const Bound last{b.of_row, b.of_q_len, b.of_kv_len, b.constant + 1};
      // Nothing new where that says no more than the length.
      if (of_key == 1 && (first.of_row || first.of_q_len || first.of_kv_len || first.constant > 0))
        bounds.least.push_back(first);
      if (of_key == -1 &&
          (last.of_row || last.of_q_len || last.of_kv_len != 1 || last.constant < 0))
        bounds.most.push_back(last);
    };
    add(of_each_row_, bound);
    // Of all rows, the one that sees the most: the last, or the first.
    if (bound.of_row > 0) {
      bound.of_q_len += bound.of_row;
      bound.constant -= bound.of_row;
    }
    bound.of_row = 0;
    add(of_some_row_, bound);
  }
}

template <WholeNumber Number>
std::pair<Number, Number> KeyRange::ends(const Bounds& bounds, const Number& row,
                                         const Number& q_len, const Number& kv_len) {
  using Constant = ConstantFor<Number>;
  const auto value = [&](const Bound& bound) {
    const Number of_keys = kv_len * Constant(bound.of_kv_len);
    const Number of_rows = q_len * Constant(bound.of_q_len);
    const Number of_all = of_rows + of_keys + Constant(bound.constant);
    return bound.of_row == 0 ? of_all : of_all + row * Constant(bound.of_row);
  };
  Number begin = kv_len * Constant(0), end = kv_len;
  for (const Bound& bound : bounds.least) begin = maximum(begin, value(bound));
  for (const Bound& bound : bounds.most) end = minimum(end, value(bound));
  begin = minimum(begin, kv_len);
  end = maximum(begin, end);
  return {begin, end};
}

std::pair<Tile, Tile> KeyRange::range(const Tile& q_len, const Tile& kv_len) const {
  return ends(of_some_row_, q_len, q_len, kv_len);
}

std::int64_t KeyRange::count(std::int64_t q_len, std::int64_t kv_len) const {
  const auto [begin, end] = ends(of_some_row_, q_len, q_len, kv_len);
  return end - begin;
}

Tile KeyRange::count(const Tile& q_len, const Tile& kv_len) const {
  if (!bounded()) return kv_len;
  const auto [begin, end] = range(q_len, kv_len);
  return end - begin;
}

std::int64_t KeyRange::typical_count(std::int64_t q_len, std::int64_t kv_len) const {
  const auto [begin, end] = ends(of_each_row_, (q_len - 1) / 2, q_len, kv_len);
  return end - begin;
}

}  // namespace flashcore
