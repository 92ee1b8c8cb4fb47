// A finished tile program: what is computed, with nothing said about how.
#pragma once

#include <string>
#include <string_view>

#include "dsl/ir/function.h"

namespace flashcore {

class Program {
 public:
  explicit Program(ir::Function function) : function_(std::move(function)) {}

  [[nodiscard]] const ir::Function& function() const { return function_; }
  [[nodiscard]] const std::string& name() const { return function_.name; }
  /// The text form of the IR, as ir::parse reads it.
  [[nodiscard]] std::string text() const;
  /// The inverse of text(). Throws SpecError with the line that does not parse or verify.
  static Program parse(std::string_view text, std::string file_name = "text");

 private:
  ir::Function function_;
};

}  // namespace flashcore
