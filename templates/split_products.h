// Products of f32 tiles on tensor cores that take 16-bit operands.
#pragma once

#include <vector>

#include "dsl/flashcore.h"

namespace flashcore {

/// An operand of a product as the sum of its parts, the largest first: a 16-bit tile alone, or the
/// three bf16 tiles that an f32 tile is split in.
using Factor = std::vector<Tile>;

/// Three tiles, each with eight bits of `x`.
Factor split(const Tile& x);
/// What tensors of these parts are called, behind the name of what was split.
inline constexpr const char* part_names[] = {"_high", "_middle", "_low"};

Factor transpose(const Factor& x);

/// The product of two operands with as many parts. Of the nine products of three parts each it has
/// the six whose terms may be above 2^-24 of the largest.
Tile dot(const Factor& a, const Factor& b);

}  // namespace flashcore
