// Which tiles a masked loop visits, held against the mask evaluated at every position. A tile that
// holds something visible is never skipped, and one that is visited without its mask holds nothing
// hidden: for any condition. Conjunctions of linear comparisons visit at most one empty tile a
// block of rows.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/codegen/support/visits.h"

namespace flashcore {
namespace {

constexpr int row_tile = 32, col_tile = 16;

struct Site {
  int row, col, row_count, col_count;
};

/// A condition as tiles and as numbers.
struct Condition {
  std::string text;
  std::function<Tile(const Positions&)> tile;
  std::function<bool(const Site&)> holds;
};

void PrintTo(const Condition& condition, std::ostream* out) { *out << condition.text; }

struct Number {
  std::string text;
  std::function<Tile(const Positions&)> tile;
  std::function<int(const Site&)> value;
};

int floor_div(int a, int b) { return a / b - (a % b < 0 ? 1 : 0); }

Condition operator&(const Condition& a, const Condition& b) {
  return {"(" + a.text + " & " + b.text + ")",
          [=](const Positions& p) { return a.tile(p) && b.tile(p); },
          [=](const Site& s) { return a.holds(s) && b.holds(s); }};
}
Condition operator|(const Condition& a, const Condition& b) {
  return {"(" + a.text + " | " + b.text + ")",
          [=](const Positions& p) { return a.tile(p) || b.tile(p); },
          [=](const Site& s) { return a.holds(s) || b.holds(s); }};
}
Condition operator~(const Condition& a) {
  return {"~" + a.text, [=](const Positions& p) { return !a.tile(p); },
          [=](const Site& s) { return !a.holds(s); }};
}

/// a row + b col + c (col_count - row_count) + d >= 0
Condition affine(int a, int b, int c, int d) {
  return {fmt::format("{} row + {} col + {} shift + {} >= 0", a, b, c, d),
          [=](const Positions& p) {
            return p.row * a + p.col * b + (p.col_count - p.row_count) * c + d >= 0;
          },
          [=](const Site& s) {
            return s.row * a + s.col * b + (s.col_count - s.row_count) * c + d >= 0;
          }};
}

/// What a block's loop should do, from the mask at every position.
Visits expected(const Condition& condition, int block, int rows, int cols) {
  Visits visits;
  for (int tile = 0; tile * col_tile < cols; ++tile) {
    bool some = false, all = tile * col_tile + col_tile <= cols;
    for (int row = block * row_tile; row < std::min(rows, block * row_tile + row_tile); ++row)
      for (int col = tile * col_tile; col < std::min(cols, tile * col_tile + col_tile); ++col) {
        const bool sees = condition.holds({row, col, rows, cols});
        some = some || sees;
        all = all && sees;
      }
    visits.visited |= std::uint64_t{some} << tile;
    visits.masked |= std::uint64_t{some && !all} << tile;
  }
  return visits;
}

using Tables = std::vector<std::vector<std::int32_t>>;

struct Tally {
  int blocks = 0, empty_tiles = 0, needless_masks = 0;
};

/// At most `spare` empty tiles a block.
Tally check(const Condition& condition, bool descending, int rows, int cols, int spare,
            int needless, const Tables& tables = {}) {
  Schedule schedule;
  schedule.tiles = {{"rows", row_tile}, {"cols", col_tile}};
  schedule.warps_m = 1;
  schedule.descending = descending;
  const std::vector<Visits> visits =
      visits_of(masked_maximum(condition.tile, static_cast<int>(tables.size())), schedule,
                "bound_masks", rows, cols, tables);
  Tally tally;
  for (std::size_t block = 0; block < visits.size(); ++block) {
    const Visits right = expected(condition, static_cast<int>(block), rows, cols),
                 got = visits[block];
    const std::string where =
        fmt::format("block {} of {} rows and {} columns, {}", block, rows, cols, condition.text);
    EXPECT_EQ(right.visited & ~got.visited, 0u)
        << "a tile with something visible is skipped: " << where;
    EXPECT_EQ(right.masked & ~got.masked, 0u)
        << "a tile with something hidden has no mask: " << where;
    const int empty = std::popcount(got.visited & ~right.visited);
    const int unneeded = std::popcount(got.masked & right.visited & ~right.masked);
    EXPECT_LE(empty, spare) << "empty tiles are visited: " << where;
    EXPECT_LE(unneeded, needless) << "full tiles are masked: " << where;
    ++tally.blocks;
    tally.empty_tiles += empty;
    tally.needless_masks += unneeded;
  }
  return tally;
}

const std::vector<std::pair<int, int>> lengths{{1, 1},   {75, 90}, {90, 75}, {97, 33},  {33, 97},
                                               {64, 64}, {40, 16}, {40, 0},  {130, 300}};

// ---- what people write

const Condition causal = affine(1, -1, 1, 0);
Condition window(int left, int right) { return affine(-1, 1, -1, left) & affine(1, -1, 1, right); }
Condition prefix(int n) { return affine(0, -1, 0, n - 1); }
Condition chunked(int n) {
  return {fmt::format("chunks of {}", n),
          [=](const Positions& p) { return p.row / n == p.col / n; },
          [=](const Site& s) { return s.row / n == s.col / n; }};
}
Condition dilated(int n) {
  return {fmt::format("every {}th", n),
          [=](const Positions& p) { return (p.row - p.col) % n == 0; },
          [=](const Site& s) { return (s.row - s.col) % n == 0; }};
}
Condition near(int n) {
  return {fmt::format("at most {} apart", n),
          [=](const Positions& p) { return abs(p.row - p.col) <= n; },
          [=](const Site& s) { return std::abs(s.row - s.col) <= n; }};
}
/// Float arithmetic: true division.
Condition slope(double factor) {
  return {fmt::format("col <= {} row", factor),
          [=](const Positions& p) {
            return cast(p.col, DType::f32) <= cast(p.row, DType::f32) * factor;
          },
          [=](const Site& s) {
            return static_cast<float>(s.col) <=
                   static_cast<float>(s.row) * static_cast<float>(factor);
          }};
}
Condition nearest_multiple(int n) {
  return {fmt::format("a window around the last multiple of {}", n),
          [=](const Positions& p) {
            const Tile at = maximum(p.row / n * n - 5, 3);
            return p.col >= minimum(at, p.row) && p.col < at + 20;
          },
          [=](const Site& s) {
            const int at = std::max(floor_div(s.row, n) * n - 5, 3);
            return s.col >= std::min(at, s.row) && s.col < at + 20;
          }};
}

class WrittenMasks : public testing::TestWithParam<Condition> {};

TEST_P(WrittenMasks, VisitExactlyTheTilesThatHoldSomething) {
  for (const bool descending : {false, true})
    for (const auto& [rows, cols] : lengths) check(GetParam(), descending, rows, cols, 0, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Mask, WrittenMasks,
    testing::Values(causal, affine(1, -1, 0, 0), window(20, 3), window(0, 0), window(60, 40),
                    prefix(40), causal | prefix(40), window(30, 0) | prefix(20), chunked(16),
                    chunked(50), chunked(50) & affine(1, -1, 0, 0),
                    dilated(3) & causal & window(100, 0), near(17), ~near(100), ~causal,
                    ~(causal | prefix(40)), ~causal& prefix(100), slope(0.5), slope(3),
                    window(10, 10) | affine(-1, 1, 0, -100), nearest_multiple(7),
                    affine(0, 1, 0, -60) | affine(0, -1, 0, 9)),
    [](const auto& info) { return std::to_string(info.index); });

// ---- what data says

/// Documents of random lengths, the same for rows and columns.
std::vector<std::int32_t> documents_of(std::mt19937& random, int length, int longest) {
  std::vector<std::int32_t> ids;
  for (int id = 3; static_cast<int>(ids.size()) < length; ++id)
    ids.insert(ids.end(), 1 + random() % static_cast<unsigned>(longest), id);
  ids.resize(static_cast<std::size_t>(length));
  return ids;
}

Condition same_document(const std::vector<std::int32_t>& of_rows,
                        const std::vector<std::int32_t>& of_cols) {
  // Outside its table a document is 0.
  const auto at = [](const std::vector<std::int32_t>& table, int i) {
    return i < static_cast<int>(table.size()) ? table[static_cast<std::size_t>(i)] : 0;
  };
  return {"the same document",
          [](const Positions& p) {
            return gather(p.tables[0], {p.row}) == gather(p.tables[1], {p.col});
          },
          [=](const Site& s) { return at(of_rows, s.row) == at(of_cols, s.col); }};
}

TEST(DocumentMasks, VisitExactlyTheTilesThatHoldSomething) {
  std::mt19937 random(7);
  for (const int longest : {5, 40, 150})
    for (const int length : {1, 33, 75, 130, 300}) {
      const std::vector<std::int32_t> ids = documents_of(random, length, longest);
      const Condition same = same_document(ids, ids);
      check(same, false, length, length, 0, 0, {ids, ids});
      check(same & causal, true, length, length, 0, 0, {ids, ids});
      check(same & window(20, 0), true, length, length, 0, 0, {ids, ids});
      check(same | prefix(10), true, length, length, 0, 0, {ids, ids});
    }
}

TEST(DocumentMasks, InNoOrderAreNeverSkipped) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const int rows = 1 + static_cast<int>(random() % 150);
    const int cols = 1 + static_cast<int>(random() % 300);
    std::vector<std::int32_t> of_rows, of_cols;
    for (int i = 0; i < rows; ++i) of_rows.push_back(static_cast<int>(random() % 400) - 100);
    for (int i = 0; i < cols; ++i) of_cols.push_back(static_cast<int>(random() % 400) - 100);
    const Condition same = same_document(of_rows, of_cols);
    check(same, true, rows, cols, 50, 50, {of_rows, of_cols});
    check(~same & affine(1, -1, 0, 60), false, rows, cols, 50, 50, {of_rows, of_cols});
    // What rows alone decide is looked at row by row.
    const Condition wanted{
        "rows of even number see their first columns",
        [](const Positions& p) {
          const Tile number = gather(p.tables[0], {p.row});
          return number % 2 == 0 && p.col < number;
        },
        [=](const Site& s) { return of_rows[s.row] % 2 == 0 && s.col < of_rows[s.row]; }};
    check(wanted, true, rows, cols, 50, 50, {of_rows, of_cols});
  }
}

TEST(DocumentMasks, OutsideATableNumbersAreZero) {
  const std::vector<std::int32_t> of_rows{5, 5, 0, 0, 7}, of_cols{5, 1, 0, 7};
  check(same_document(of_rows, of_cols), true, 70, 100, 50, 50, {of_rows, of_cols});
}

TEST(DocumentMasks, CountFromTheEndWhereTheyWrap) {
  std::mt19937 random(11);
  // The number at an index less than zero, by rows and by columns.
  const auto before = [](const Tensor& table, const Tile& index) {
    ProgramBuilder* owner = index.owner();
    return Tile(owner, owner->ops().gather(table.id(), {(index - 30).id()}, /*wraps=*/1));
  };
  const auto at = [](const std::vector<std::int32_t>& table, int index) {
    const int length = static_cast<int>(table.size());
    if (index < 0) index += length;
    return index >= 0 && index < length ? table[static_cast<std::size_t>(index)] : 0;
  };
  for (const int length : {10, 33, 75, 130}) {
    const std::vector<std::int32_t> ids = documents_of(random, length, 20);
    const Condition same{"the same document, 30 before",
                         [=](const Positions& p) {
                           return before(p.tables[0], p.row) == before(p.tables[1], p.col);
                         },
                         [=](const Site& s) { return at(ids, s.row - 30) == at(ids, s.col - 30); }};
    check(same, true, length, length, 50, 50, {ids, ids});
    check(same & causal, true, length, length, 50, 50, {ids, ids});
  }
}

// ---- what chance writes

class Chance {
 public:
  explicit Chance(unsigned seed) : random_(seed * 7919u + 3u) {}
  int between(int low, int high) {
    return low + static_cast<int>(random_() % static_cast<unsigned>(high - low + 1));
  }

  Condition comparison() {
    int a = 0, b = 0;
    while (b == 0) a = between(-3, 3), b = between(-3, 3);
    return affine(a, b, between(-1, 1), between(-90, 90));
  }

  Number number(int depth) {
    const int which = between(0, depth > 0 ? 9 : 2);
    const auto two = [&](const char* name, Tile (*tiles)(Operand, Operand),
                         int (*numbers)(int, int)) {
      const Number a = number(depth - 1), b = number(depth - 1);
      return Number{fmt::format("{}({}, {})", name, a.text, b.text),
                    [=](const Positions& p) { return tiles(a.tile(p), b.tile(p)); },
                    [=](const Site& s) { return numbers(a.value(s), b.value(s)); }};
    };
    switch (which) {
      case 0:
        return {"row", [](const Positions& p) { return p.row; },
                [](const Site& s) { return s.row; }};
      case 1:
        return {"col", [](const Positions& p) { return p.col; },
                [](const Site& s) { return s.col; }};
      case 2:
        return {"shift", [](const Positions& p) { return p.col_count - p.row_count; },
                [](const Site& s) { return s.col_count - s.row_count; }};
      case 3:
        return two(
            "add", [](Operand a, Operand b) { return a + b; }, [](int a, int b) { return a + b; });
      case 4:
        return two(
            "sub", [](Operand a, Operand b) { return a - b; }, [](int a, int b) { return a - b; });
      case 5:
        return two("min", minimum, [](int a, int b) { return std::min(a, b); });
      case 6:
        return two("max", maximum, [](int a, int b) { return std::max(a, b); });
      case 7: {
        const Number a = number(depth - 1);
        return {"abs(" + a.text + ")", [=](const Positions& p) { return abs(a.tile(p)); },
                [=](const Site& s) { return std::abs(a.value(s)); }};
      }
      default: {
        const Number a = number(depth - 1);
        const int n = between(2, 40);
        if (which == 8)
          return {fmt::format("({} // {})", a.text, n),
                  [=](const Positions& p) { return a.tile(p) / n; },
                  [=](const Site& s) { return floor_div(a.value(s), n); }};
        return {fmt::format("({} % {})", a.text, n),
                [=](const Positions& p) { return a.tile(p) % n; },
                [=](const Site& s) { return a.value(s) - n * floor_div(a.value(s), n); }};
      }
    }
  }

  Condition condition(int depth) {
    switch (between(0, depth > 0 ? 5 : 1)) {
      case 0:
        return comparison();
      case 1: {
        const Number a = number(2), b = number(1);
        const int add = between(-30, 30);
        if (between(0, 3) == 0)
          return {fmt::format("{} == {} + {}", a.text, b.text, add),
                  [=](const Positions& p) { return a.tile(p) == b.tile(p) + add; },
                  [=](const Site& s) { return a.value(s) == b.value(s) + add; }};
        return {fmt::format("{} < {} + {}", a.text, b.text, add),
                [=](const Positions& p) { return a.tile(p) < b.tile(p) + add; },
                [=](const Site& s) { return a.value(s) < b.value(s) + add; }};
      }
      case 2:
        return ~condition(depth - 1);
      case 3:
        return condition(depth - 1) | condition(depth - 1);
      default:
        return condition(depth - 1) & condition(depth - 1);
    }
  }

 private:
  std::mt19937 random_;
};

/// A mask that looks at no position is no mask of tiles.
Condition depending_on_both(Condition condition) { return condition & affine(1, 1, 0, 0); }

TEST(RandomMasks, LinearOnesVisitAtMostOneEmptyTile) {
  Tally total;
  for (unsigned seed = 0; seed < 300; ++seed) {
    Chance chance(seed);
    Condition condition = chance.comparison();
    for (int more = chance.between(0, 2); more > 0; --more)
      condition = condition & chance.comparison();
    for (const auto& [rows, cols] : std::vector<std::pair<int, int>>{{130, 300}, {97, 120}}) {
      const Tally tally = check(condition, seed % 2 == 0, rows, cols, 1, cols);
      total.blocks += tally.blocks;
      total.empty_tiles += tally.empty_tiles;
    }
  }
  RecordProperty("blocks", total.blocks);
  RecordProperty("empty_tiles", total.empty_tiles);
}

TEST(RandomMasks, OthersNeverSkipWhatIsVisible) {
  Tally total;
  for (unsigned seed = 1000; seed < 1400; ++seed) {
    Chance chance(seed);
    const Condition condition = depending_on_both(chance.condition(3));
    const Tally tally = check(condition, seed % 2 == 0, 100, 200, 50, 50);
    total.blocks += tally.blocks;
    total.empty_tiles += tally.empty_tiles;
  }
  RecordProperty("empty_tiles", total.empty_tiles);
  EXPECT_LT(total.empty_tiles, total.blocks * 2) << "the analysis says next to nothing";
}

}  // namespace
}  // namespace flashcore
