#include "templates/key_range.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "dsl/ir/affine.h"

namespace flashcore {
namespace {

// The same arithmetic on numbers, on scalars of a program, and as text.
struct OnHost {
  using Number = std::int64_t;
  static Number times(Number a, std::int64_t factor) { return a * factor; }
  static Number plus(Number a, Number b) { return a + b; }
  static Number plus_constant(Number a, std::int64_t b) { return a + b; }
  static Number least(Number a, Number b) { return std::min(a, b); }
  static Number most(Number a, Number b) { return std::max(a, b); }
};
struct InProgram {
  using Number = Tile;
  static Tile times(const Tile& a, std::int64_t factor) { return a * static_cast<double>(factor); }
  static Tile plus(const Tile& a, const Tile& b) { return a + b; }
  static Tile plus_constant(const Tile& a, std::int64_t b) { return a + static_cast<double>(b); }
  static Tile least(const Tile& a, const Tile& b) { return minimum(a, b); }
  static Tile most(const Tile& a, const Tile& b) { return maximum(a, b); }
};
struct InText {
  using Number = std::string;
  static Number times(const Number& a, std::int64_t factor) {
    return fmt::format("({}) * {}", a, factor);
  }
  static Number plus(const Number& a, const Number& b) { return fmt::format("({} + {})", a, b); }
  static Number plus_constant(const Number& a, std::int64_t b) {
    return fmt::format("({} + {})", a, b);
  }
  static Number least(const Number& a, const Number& b) { return fmt::format("min({}, {})", a, b); }
  static Number most(const Number& a, const Number& b) { return fmt::format("max({}, {})", a, b); }
};

}  // namespace

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
    // Of all rows, the one that sees the most: the last, or the first.
    const std::int64_t of_key = term.positions[cols.id], of_row = term.positions[rows.id];
    Bound bound{.of_q_len = term.scalars[q_len.id()],
                .of_kv_len = term.scalars[kv_len.id()],
                .constant = term.constant};
    term.positions.erase(cols.id);
    term.positions.erase(rows.id);
    term.scalars.erase(q_len.id());
    term.scalars.erase(kv_len.id());
    if (!term.positions.empty() || !term.scalars.empty() || !term.quotients.empty()) continue;
    if (of_row > 0) {
      bound.of_q_len += of_row;
      bound.constant -= of_row;
    }
    // bound + key >= 0, or bound - key >= 0; nothing new where that says no more than the length.
    const Bound first{-bound.of_q_len, -bound.of_kv_len, -bound.constant};
    const Bound last{bound.of_q_len, bound.of_kv_len, bound.constant + 1};
    if (of_key == 1 && (first.of_q_len || first.of_kv_len || first.constant > 0))
      least_.push_back(first);
    if (of_key == -1 && (last.of_q_len || last.of_kv_len != 1 || last.constant < 0))
      most_.push_back(last);
  }
}

template <class Numbers>
auto KeyRange::ends(const typename Numbers::Number& q_len,
                    const typename Numbers::Number& kv_len) const {
  const auto value = [&](const Bound& bound) {
    return Numbers::plus_constant(Numbers::plus(Numbers::times(q_len, bound.of_q_len),
                                                Numbers::times(kv_len, bound.of_kv_len)),
                                  bound.constant);
  };
  auto begin = Numbers::times(kv_len, 0);
  auto end = kv_len;
  for (const Bound& bound : least_) begin = Numbers::most(begin, value(bound));
  for (const Bound& bound : most_) end = Numbers::least(end, value(bound));
  begin = Numbers::least(begin, kv_len);
  end = Numbers::most(begin, end);
  return std::pair(begin, end);
}

std::pair<Tile, Tile> KeyRange::range(const Tile& q_len, const Tile& kv_len) const {
  return ends<InProgram>(q_len, kv_len);
}

std::int64_t KeyRange::count(std::int64_t q_len, std::int64_t kv_len) const {
  const auto [begin, end] = ends<OnHost>(q_len, kv_len);
  return end - begin;
}

std::string KeyRange::count_text(const std::string& q_len, const std::string& kv_len) const {
  if (!bounded()) return kv_len;
  const auto [begin, end] = ends<InText>(q_len, kv_len);
  return fmt::format("({} - {})", end, begin);
}

}  // namespace flashcore
