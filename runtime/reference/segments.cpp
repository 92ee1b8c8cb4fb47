#include "runtime/reference/segments.h"

#include <algorithm>

#include "runtime/reference/formats.h"

namespace flashcore {

SegmentTile find_segment(const TensorView& starts, std::int64_t count, std::int64_t number,
                         std::int64_t tile, bool descending) {
  const auto start = [&](std::int64_t i) {
    const double element = read_element(starts.dtype, starts.data, i * starts.strides[0]);
    return std::max<std::int64_t>(0, static_cast<std::int64_t>(element));
  };
  const auto first_number = [&](std::int64_t i) { return start(i) / tile + i; };
  std::int64_t segment = 0;
  while (segment + 1 < count && first_number(segment + 1) <= number) ++segment;
  const std::int64_t length = std::max<std::int64_t>(0, start(segment + 1) - start(segment)),
                     tiles = (length + tile - 1) / tile, own = number - first_number(segment);
  if (own < 0 || own >= tiles) return {segment, tiles, false};
  return {segment, descending ? tiles - 1 - own : own, true};
}

std::int64_t searchsorted(const TensorView& numbers, std::int64_t count, std::int64_t number) {
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < count; ++i)
    if (read_element(numbers.dtype, numbers.data, i * numbers.strides[0]) <=
        static_cast<double>(number))
      ++found;
  return found;
}

}  // namespace flashcore
