// The products of wgmma.cuh for the shapes that a kernel uses: too many exist to write them all
// down.
#pragma once

#include <string>
#include <string_view>

namespace flashcore {

/// A specialisation of fc::multiply_warpgroup for every shape that `body` calls it with.
std::string warpgroup_products(std::string_view body);

}  // namespace flashcore
