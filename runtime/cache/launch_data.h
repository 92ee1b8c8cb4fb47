// How a kernel is launched, as JSON: all of a KernelSource but its name and its text. It is part of
// a kernel's key, and so an entry of the cache tells by itself how to launch what is in it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "codegen/kernel_source.h"

namespace flashcore {

/// Equal signatures give equal text.
std::string write_launch_data(const KernelSource& source);

/// A source without name and text; nothing unless `text` is what `write_launch_data` writes, every
/// number within what a launch relies on.
std::optional<KernelSource> read_launch_data(std::string_view text);

}  // namespace flashcore
