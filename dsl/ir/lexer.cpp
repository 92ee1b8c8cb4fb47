#include "dsl/ir/lexer.h"

#include <charconv>
#include <limits>

#include <fmt/format.h>

#include "dsl/shortened.h"

namespace flashcore::ir {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool in_word(char c) { return is_letter(c) || is_digit(c); }

std::string quoted(const Token& token) {
  switch (token.kind) {
    case Token::Kind::line_end:
      return "the end of the line";
    case Token::Kind::text_end:
      return "the end of the text";
    case Token::Kind::value:
      return fmt::format("\"%{}\"", shortened(token.text));
    default:
      return fmt::format("\"{}\"", shortened(token.text));
  }
}

}  // namespace

Lexer::Lexer(std::string_view text, std::string file_name)
    : text_(text), file_name_(std::move(file_name)), token_(scan()) {
  if (at(Token::Kind::line_end)) line_end();
}

Token Lexer::scan() {
  auto peek_char = [&](std::size_t ahead = 0) {
    return position_ + ahead < text_.size() ? text_[position_ + ahead] : '\0';
  };
  while (peek_char() == ' ' || peek_char() == '\t' || peek_char() == '\r') ++position_;
  if (peek_char() == '/' && peek_char(1) == '/')
    while (position_ < text_.size() && text_[position_] != '\n') ++position_;

  Token token;
  token.line = line_;
  token.column = static_cast<int>(position_ - line_begin_) + 1;
  if (position_ >= text_.size()) return token;

  const std::size_t begin = position_;
  const char first = text_[position_++];
  if (first == '\n') {
    token.kind = Token::Kind::line_end;
    ++line_;
    line_begin_ = position_;
  } else if (first == '%' && in_word(peek_char())) {
    token.kind = Token::Kind::value;
    while (in_word(peek_char())) ++position_;
    token.text = text_.substr(begin + 1, position_ - begin - 1);
    return token;
  } else if (is_letter(first)) {
    token.kind = Token::Kind::word;
    while (in_word(peek_char())) ++position_;
  } else if (is_digit(first) || (first == '-' && (is_digit(peek_char()) || peek_char() == 'i'))) {
    token.kind = Token::Kind::number;
    double ignored = 0;
    const char* end = text_.data() + text_.size();
    position_ = static_cast<std::size_t>(std::from_chars(text_.data() + begin, end, ignored).ptr -
                                         text_.data());
    if (position_ == begin) ++position_;
  } else {
    token.kind = Token::Kind::mark;
  }
  token.text = text_.substr(begin, position_ - begin);
  return token;
}

Token Lexer::next() {
  Token token = token_;
  token_ = scan();
  return token;
}

bool Lexer::at(std::string_view text) const {
  return (token_.kind == Token::Kind::word || token_.kind == Token::Kind::mark) &&
         token_.text == text;
}

bool Lexer::followed_by(char mark) const {
  return position_ < text_.size() && text_[position_] == mark;
}

bool Lexer::take(std::string_view text) {
  if (!at(text)) return false;
  next();
  return true;
}

void Lexer::expect(std::string_view text) {
  if (!take(text)) expected(fmt::format("\"{}\"", text));
}

Token Lexer::word(std::string_view what) {
  if (!at(Token::Kind::word)) expected(what);
  return next();
}

Token Lexer::value(std::string_view what) {
  if (!at(Token::Kind::value)) expected(what);
  return next();
}

std::int64_t Lexer::integer(std::string_view what) {
  std::int64_t result = 0;
  const char* end = token_.text.data() + token_.text.size();
  if (!at(Token::Kind::number) || std::from_chars(token_.text.data(), end, result).ptr != end ||
      result < 0 || result > std::numeric_limits<std::int32_t>::max())
    expected(what);
  next();
  return result;
}

double Lexer::number(std::string_view what) {
  double result = 0;
  const char* end = token_.text.data() + token_.text.size();
  if (token_.text.empty() || std::from_chars(token_.text.data(), end, result).ptr != end)
    expected(what);
  next();
  return result;
}

void Lexer::line_end() {
  if (!at(Token::Kind::line_end) && !at(Token::Kind::text_end)) expected("the end of the line");
  while (at(Token::Kind::line_end)) next();
}

void Lexer::expected(std::string_view what, std::string fix) const {
  refuse(token_, fmt::format("expected {}", what), fmt::format("found {}", quoted(token_)),
         std::move(fix));
}

void Lexer::refuse(const Token& token, std::string what, std::string why, std::string fix) const {
  if (fix.empty()) fix = "the text form of programs, as Program.text and kernel.ir() write it";
  throw SpecError({std::move(what), fmt::format("{} in column {}", why, token.column),
                   std::move(fix), Location(file_name_, token.line)});
}

}  // namespace flashcore::ir
