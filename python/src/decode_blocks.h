// Blocks of decoding as Python has them.
#pragma once

#include <string>
#include <tuple>

#include "templates/choice/decode_splits.h"

namespace flashcore::python {

using NamedBlocks = std::tuple<std::string, int, bool, bool, bool>;
NamedBlocks named(const DecodeBlocks& blocks);
DecodeBlocks blocks_named(const NamedBlocks& blocks);

}  // namespace flashcore::python
