// The part of the prelude that a kernel uses.
#pragma once

#include <string>
#include <string_view>

namespace flashcore {

/// The prelude files that define what `body` calls in namespace fc, each after those it includes,
/// with their include lines gone: the beginning of a file that includes nothing.
std::string prelude_for(std::string_view body);

}  // namespace flashcore
