#include "runtime/reference/gather.h"

#include <vector>

#include "runtime/reference/formats.h"
#include "runtime/reference/walk.h"

namespace flashcore {

void gather(const TensorView& tensor, std::span<const TypedTile> indices, std::uint8_t wraps,
            const ir::TileType& type, Precision precision, TileValue& result) {
  std::vector<Walk> walks;
  for (const TypedTile& index : indices) walks.emplace_back(index, type);
  const auto element = [&](std::int64_t i, std::int64_t j) -> double {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < walks.size(); ++d) {
      auto at = static_cast<std::int64_t>(walks[d].at(i, j));
      if (at < 0 && wraps >> d & 1) at += tensor.shape[d];
      if (at < 0 || at >= tensor.shape[d]) return 0;
      offset += at * tensor.strides[d];
    }
    const double value = read_element(tensor.dtype, tensor.data, offset);
    // Integers are read as i32 whatever the precision; an exact evaluation keeps all of a float.
    return is_float(tensor.dtype) && precision == Precision::exact ? value
                                                                   : round_to(type.dtype, value);
  };
  for (std::int64_t i = 0; i < result.outer; ++i)
    for (std::int64_t j = 0; j < result.inner; ++j)
      result.data[static_cast<std::size_t>(i * result.inner + j)] = element(i, j);
}

}  // namespace flashcore
