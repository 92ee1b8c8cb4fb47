// Names that a generated file cannot give to something of its own.
#pragma once

#include <string_view>

namespace flashcore {

/// Words of C++ and CUDA, macros, and what every generated file is made of: no identifier anywhere.
bool is_reserved(std::string_view name);

/// Functions that are there in every file: no name of a kernel, though one of anything inside it.
bool is_declared_outside(std::string_view name);

}  // namespace flashcore
