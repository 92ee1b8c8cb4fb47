// Every tile of every segment has one number, and the numbers end where is said how many there are.
#include "runtime/reference/segments.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace flashcore {
namespace {

using Place = std::pair<std::int64_t, std::int64_t>;  ///< a segment, and a tile of it

TensorView view_of(std::vector<std::int32_t>& numbers) {
  TensorView view;
  view.data = numbers.data();
  view.dtype = DType::i32;
  view.rank = 1;
  view.shape[0] = static_cast<std::int64_t>(numbers.size());
  view.strides[0] = 1;
  return view;
}

TEST(Segments, EveryTileHasOneNumber) {
  std::mt19937 draw(20261129);
  for (int round = 0; round < 200; ++round) {
    const std::int64_t tile = std::vector{1, 16, 64, 192}[draw() % 4], count = 1 + draw() % 9;
    std::vector<std::int32_t> starts{static_cast<std::int32_t>(draw() % 3 ? 0 : draw() % 100)};
    std::set<Place> expected;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t length = draw() % 3 ? draw() % 400 : draw() % 3 * tile;
      starts.push_back(starts.back() + static_cast<std::int32_t>(length));
      for (std::int64_t t = 0; t * tile < length; ++t) expected.emplace(i, t);
    }
    const std::int64_t numbers = starts.back() / tile + count;
    for (const bool descending : {false, true}) {
      std::set<Place> found;
      for (std::int64_t number = 0; number < numbers; ++number) {
        const SegmentTile at = find_segment(view_of(starts), count, number, tile, descending);
        if (at.exists) EXPECT_TRUE(found.emplace(at.segment, at.tile).second) << number;
      }
      EXPECT_EQ(found, expected);
      EXPECT_FALSE(find_segment(view_of(starts), count, numbers, tile, descending).exists);
    }
  }
}

TEST(Segments, TheLastTilesOfASegmentComeFirst) {
  std::vector<std::int32_t> starts{0, 130, 130, 194};
  const auto at = [&](std::int64_t number) {
    const SegmentTile found = find_segment(view_of(starts), 3, number, 64, /*descending=*/true);
    return found.exists ? Place(found.segment, found.tile) : Place(-1, -1);
  };
  EXPECT_EQ(at(0), Place(0, 2));
  EXPECT_EQ(at(2), Place(0, 0));
  EXPECT_EQ(at(3).first, -1);  // of the segment without rows
  EXPECT_EQ(at(4), Place(2, 0));
}

TEST(Segments, SearchSortedCountsWhatIsAtMostANumber) {
  std::mt19937 draw(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::int32_t> numbers(1 + draw() % 20);
    for (std::int32_t& number : numbers) number = static_cast<std::int32_t>(draw() % 30) - 5;
    std::ranges::sort(numbers);
    const auto size = static_cast<std::int64_t>(numbers.size());
    for (std::int32_t wanted = -7; wanted < 28; ++wanted)
      EXPECT_EQ(searchsorted(view_of(numbers), size, wanted),
                std::ranges::upper_bound(numbers, wanted) - numbers.begin());
  }
}

}  // namespace
}  // namespace flashcore
