// Cuts the text form into tokens. A line ends a statement, so line ends are tokens; `//` starts a
// remark.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dsl/error.h"

namespace flashcore::ir {

struct Token {
  enum class Kind : std::uint8_t { word, value, number, mark, line_end, text_end };
  Kind kind = Kind::text_end;
  std::string_view text;  ///< of a value without its %
  int line = 1, column = 1;
};

/// A cursor over the tokens, with the current one looked at already.
class Lexer {
 public:
  Lexer(std::string_view text, std::string file_name);

  [[nodiscard]] const Token& peek() const { return token_; }
  Token next();

  [[nodiscard]] bool at(Token::Kind kind) const { return token_.kind == kind; }
  /// A word or mark with this spelling.
  [[nodiscard]] bool at(std::string_view text) const;
  /// Whether the token after the current one is the mark, with nothing in between.
  [[nodiscard]] bool followed_by(char mark) const;
  /// Takes the token if it is there.
  bool take(std::string_view text);
  /// Takes the token or complains that `text` was expected.
  void expect(std::string_view text);

  Token word(std::string_view what);
  Token value(std::string_view what);
  std::int64_t integer(std::string_view what);
  double number(std::string_view what);
  /// Takes the end of this line and empty lines after it.
  void line_end();

  [[nodiscard]] Location where() const { return {file_name_, token_.line}; }
  /// Complains about the current token.
  [[noreturn]] void expected(std::string_view what, std::string fix = {}) const;
  /// Complains about an earlier one.
  [[noreturn]] void refuse(const Token& token, std::string what, std::string why,
                           std::string fix = {}) const;

 private:
  Token scan();

  std::string_view text_;
  std::string file_name_;
  std::size_t position_ = 0, line_begin_ = 0;
  int line_ = 1;
  Token token_;
};

}  // namespace flashcore::ir
