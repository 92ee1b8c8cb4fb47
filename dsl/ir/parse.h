// Reads the text form that print() writes. It checks the grammar and that names exist; verify()
// checks the rest, so that a test can write down a function that verify() must refuse.
#pragma once

#include <string>
#include <string_view>

#include "dsl/ir/function.h"

namespace flashcore::ir {

/// print(parse(print(f))) == print(f). Throws SpecError with the file, the line and what was
/// expected.
Function parse(std::string_view text, std::string file_name = "text");

}  // namespace flashcore::ir
