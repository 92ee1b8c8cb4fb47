#include "dsl/program.h"

#include "dsl/ir/parse.h"
#include "dsl/ir/print.h"
#include "dsl/ir/verify.h"

namespace flashcore {

std::string Program::text() const { return ir::print(function_); }

Program Program::parse(std::string_view text, std::string file_name) {
  ir::Function function = ir::parse(text, std::move(file_name));
  ir::verify(function);
  return Program(std::move(function));
}

}  // namespace flashcore
