#include <cctype>
#include <set>
#include <vector>

#include "codegen/prelude.h"
#include "codegen/prelude/warpgroup_products.h"
#include "dsl/error.h"

namespace flashcore {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// The names that follow "fc::" in the body.
std::set<std::string_view> used_names(std::string_view body) {
  std::set<std::string_view> names;
  for (std::size_t at = body.find("fc::"); at != std::string_view::npos;
       at = body.find("fc::", at)) {
    at += 4;
    std::size_t end = at;
    while (end < body.size() && is_word(body[end])) ++end;
    names.insert(body.substr(at, end - at));
  }
  return names;
}

/// Whether the file defines the name: "FC_DEVICE <type> name(" or "struct name ".
bool defines(std::string_view file, std::string_view name) {
  for (std::size_t at = file.find(name); at != std::string_view::npos;
       at = file.find(name, at + 1)) {
    const char before = at ? file[at - 1] : ' ';
    const std::size_t end = at + name.size();
    const char after = end < file.size() ? file[end] : ' ';
    if (before != ' ' || is_word(after)) continue;
    std::size_t line = file.rfind('\n', at);
    line = line == std::string_view::npos ? 0 : line + 1;
    const std::string_view head = file.substr(line, at - line);
    if (head.find("FC_DEVICE") != std::string_view::npos && (after == '(' || after == '<'))
      return true;
    if (head.starts_with("struct") && file.substr(end, 2) == " {") return true;
  }
  return false;
}

class PreludeWriter {
 public:
  void add(const PreludeFile& file) {
    if (!added_.insert(file.name).second) return;
    std::string own;
    std::string_view rest = file.text;
    while (!rest.empty()) {
      const std::size_t end = rest.find('\n');
      const std::string_view line = rest.substr(0, end);
      rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
      if (line.starts_with("#include \"")) {
        add(find(line.substr(10, line.size() - 11)));
      } else if (!line.starts_with("#pragma once")) {
        own += line;
        own += '\n';
      }
    }
    while (own.find("\n\n\n") != std::string::npos) own.replace(own.find("\n\n\n"), 3, "\n\n");
    text_ += own + "\n";
  }
  std::string take() { return std::move(text_); }

 private:
  static const PreludeFile& find(std::string_view name) {
    for (const PreludeFile& file : device_prelude())
      if (file.name == name) return file;
    throw InternalError("the prelude has no file " + std::string(name));
  }

  std::set<std::string_view> added_;
  std::string text_;
};

}  // namespace

std::string prelude_for(std::string_view body) {
  const std::set<std::string_view> names = used_names(body);
  PreludeWriter writer;
  for (const PreludeFile& file : device_prelude()) {
    bool used = false;
    for (std::string_view name : names) used = used || defines(file.text, name);
    if (used) writer.add(file);
  }
  return writer.take() + warpgroup_products(body);
}

}  // namespace flashcore
