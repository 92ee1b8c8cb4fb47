// bf16 has the exponents of f32, so that each difference is exact and no part overflows. Where x1
// is at most 2^-8 of x0, and x2 at most 2^-16, the products of a = a0 + a1 + a2 and b alike are
//
//   a b = a0 b0 + (a0 b1 + a1 b0) + (a0 b2 + a1 b1 + a2 b0) + terms of 2^-24 and less
//
// The small ones come first: what these are rounded by is small as well, and only the steps of the
// last product round a sum of full size.
#include "templates/split_products.h"

namespace flashcore {

Factor split(const Tile& x) {
  const Tile high = cast(x, DType::bf16), rest = x - cast(high, DType::f32);
  const Tile middle = cast(rest, DType::bf16);
  return {high, middle, cast(rest - cast(middle, DType::f32), DType::bf16)};
}

Factor transpose(const Factor& x) {
  Factor transposed;
  for (const Tile& part : x) transposed.push_back(transpose(part));
  return transposed;
}

Tile dot(const Factor& a, const Factor& b) {
  Tile sum;
  for (std::size_t order = a.size(); order-- > 0;)
    for (std::size_t i = 0; i <= order; ++i) {
      const Tile product = dot(a[i], b[order - i]);
      sum = sum.owner() ? sum + product : product;
    }
  return sum;
}

}  // namespace flashcore
