// Indices into a Function's arenas. Copying a function keeps them valid; a map over values is a
// vector.
#pragma once

#include <compare>
#include <cstdint>

namespace flashcore::ir {

template <class Tag>
struct Id {
  static constexpr std::uint32_t none = 0xffffffffu;
  std::uint32_t index = none;

  constexpr Id() = default;
  constexpr explicit Id(std::uint64_t index) : index(static_cast<std::uint32_t>(index)) {}
  constexpr explicit operator bool() const { return index != none; }
  constexpr auto operator<=>(const Id&) const = default;
};

using ValueId = Id<struct ValueTag>;
using OpId = Id<struct OpTag>;
using BlockId = Id<struct BlockTag>;
using AxisId = Id<struct AxisTag>;
using TensorId = Id<struct TensorTag>;
using ParameterId = Id<struct ParameterTag>;
using BufferId = Id<struct BufferTag>;

}  // namespace flashcore::ir
