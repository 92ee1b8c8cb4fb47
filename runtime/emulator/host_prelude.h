// The emulator's primitives, prelude/, embedded at build time: the text in front of a body on the
// CPU.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "codegen/prelude.h"

namespace flashcore {

/// Every file of runtime/emulator/prelude/, sorted by name.
std::span<const PreludeFile> emulator_prelude();

/// A file and all it includes, each once, in the order of their needs. Files come from
/// runtime/emulator/prelude/ or else from codegen/prelude/.
std::string expand_prelude(std::string_view name);

}  // namespace flashcore
