// Texts of callers in messages: a message stays short and readable whatever it speaks of.
#pragma once

#include <string>
#include <string_view>

namespace flashcore {

/// The beginning of a long text; "?" stands for every byte that is not printable ASCII.
std::string shortened(std::string_view text, std::size_t most = 200);

}  // namespace flashcore
