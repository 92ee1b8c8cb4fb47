#include "codegen/text/writer.h"

#include <iterator>

namespace flashcore {

void Writer::append_line(fmt::string_view format, fmt::format_args args) {
  text_.append(static_cast<std::size_t>(2 * depth_), ' ');
  fmt::vformat_to(std::back_inserter(text_), format, args);
  text_ += '\n';
}

Writer::Scope Writer::open_block(fmt::string_view format, fmt::format_args args) {
  const std::string head = fmt::vformat(format, args);
  line("{}{{", head.empty() ? head : head + " ");
  return Scope(*this, "}");
}

}  // namespace flashcore
