// Which segment of many a number belongs to; and tiles of segments that lie one behind the other, numbered
// without a sum over all of them.
#pragma once

#include "math.cuh"
#include "memory.cuh"
#include "thread.cuh"

namespace fc {

// Segment i of `count` begins at starts[i], and has the numbers from starts[i] / tile + i on: one for
// each of its tiles, and at times one more. `segment`: the one that has this number. `own`: which of its
// tiles that is, the last one first if `descending`; for a number too many the one behind its last, and
// then the result is false.
template <int tile, bool descending>
FC_DEVICE bool find_segment(const int* starts, int count, int number, int& segment, int& own) {
  const auto start = [&](int i) {
    int at[1];
    load_global<1>(at, starts + i);
    return max(at[0], 0);
  };
  int begin = start(0);
  segment = 0;
  for (int behind = count; behind - segment > 1;) {
    const int middle = (segment + behind) / 2, from = start(middle);
    if (from / tile + middle <= number) {
      segment = middle;
      begin = from;
    } else {
      behind = middle;
    }
  }
  const int tiles = max((start(segment + 1) - begin + tile - 1) / tile, 0);
  own = number - (begin / tile + segment);
  if (own < 0 || own >= tiles) {
    own = tiles;
    return false;
  }
  if (descending) own = tiles - 1 - own;
  return true;
}

// How many of `count` numbers, which do not decrease, are at most `number`.
FC_DEVICE int searchsorted(const int* numbers, int count, int number) {
  int found = 0;
  for (int behind = count; behind > found;) {
    const int middle = (found + behind) / 2;
    int at[1];
    load_global<1>(at, numbers + middle);
    if (at[0] <= number)
      found = middle + 1;
    else
      behind = middle;
  }
  return found;
}

// The same by all 32 lanes of a warp together, which look at as many numbers at once: one load behind the
// other for each factor of 32 that there are numbers, and not for each factor of two.
FC_DEVICE int searchsorted(const int* numbers, int count, int number, int lane) {
  int apart = 1;
  while (apart * 32 < count) apart *= 32;
  int found = 0;
  for (; apart > 0; apart /= 32) {
    const int last = found + (lane + 1) * apart - 1;
    int at[1] = {0};
    if (last < count) load_global<1>(at, numbers + last);
    found += count_lanes(last < count && at[0] <= number) * apart;
  }
  return found;
}

}  // namespace fc
