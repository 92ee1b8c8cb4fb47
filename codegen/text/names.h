// Identifiers of the generated kernel: the author's names, made unique and of letters that C++
// takes. All identifiers come from here, so a program may call its parts whatever it likes.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace flashcore {

class Names {
 public:
  /// `wanted`, or the first of wanted_2, wanted_3, ... that is free. Empty asks for a short name.
  std::string unique(std::string_view wanted);

  /// The scope of the name has ended.
  void release(std::string_view name);

 private:
  std::set<std::string, std::less<>> taken_;
};

/// The names of a kernel's body, where some are what the printer always calls things.
Names names_of_body();

/// What the kernel of a program is called in its file, and by the driver.
std::string entry_name(std::string_view program);

// reserved_names.cpp: names that a generated file cannot give to something of its own

/// Words of C++ and CUDA, macros, and what every generated file is made of: no identifier anywhere.
bool is_reserved(std::string_view name);

/// Functions that are there in every file: no name of a kernel, though one of anything inside it.
bool is_declared_outside(std::string_view name);

}  // namespace flashcore
