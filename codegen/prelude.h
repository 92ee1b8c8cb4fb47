// The device primitives of codegen/prelude/, embedded at build time: the text in front of every
// kernel.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace flashcore {

struct PreludeFile {
  std::string_view name;  ///< "mma_m16n8k16.cuh"
  std::string_view text;
};

/// Every file of codegen/prelude/, sorted by name.
std::span<const PreludeFile> device_prelude();

/// The prelude files that define what `body` calls in namespace fc, each after those it includes,
/// with their include lines gone: the beginning of a file that includes nothing.
std::string prelude_for(std::string_view body);

}  // namespace flashcore
