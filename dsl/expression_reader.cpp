// A recursive descent over the text that appends to the program as it goes. Numbers stay numbers
// until they meet a value, whose type they take.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "dsl/expression_text.h"
#include "dsl/program_builder.h"
#include "dsl/shortened.h"

namespace flashcore {
namespace {

using ir::OpCode;

// Everything that reads an expression later, down to the compiler of the kernel, goes down its
// depth on the stack and through all of it for each of a few hundred unrolled elements.
constexpr int deepest = 200;
constexpr std::size_t most_operations = 4096;

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

struct Token {
  enum class Kind { name, number, mark, end };
  Kind kind = Kind::end;
  std::string_view text;
  std::size_t at = 0;
};

/// A value of the program or, without one, a number.
struct Term {
  ir::ValueId value;
  double number = 0;
  bool whole = false;    ///< a number written without a point
  bool logical = false;  ///< true or false
};

class Reader {
 public:
  Reader(ProgramBuilder& builder, std::string_view text,
         const std::map<std::string, Tile, std::less<>>& names,
         const std::map<std::string, Tensor, std::less<>>& tensors)
      : builder_(builder),
        text_(text),
        tensors_(tensors),
        operations_before_(builder.function().ops.size()) {
    const auto foreign = std::find_if_not(text.begin(), text.end(), is_ascii);
    if (foreign != text.end())
      refuse(
          static_cast<std::size_t>(foreign - text.begin()),
          fmt::format("the byte {:#04x}, which is not ASCII", static_cast<unsigned char>(*foreign)),
          "write names and numbers in ASCII");
    for (const auto& [name, tile] : names) values_[name] = {tile.id()};
    next();
  }

  Tile run() {
    while (true) {
      if (token_.kind == Token::Kind::end) expected("a value");
      if (is_let()) {
        read_let();
        continue;
      }
      const Term result = disjunction();
      take(";");
      if (token_.kind != Token::Kind::end) expected("an operator or the end");
      return {&builder_, as_value(result)};
    }
  }

 private:
  // ---- tokens

  void next() {
    while (position_ < text_.size() && std::isspace(byte(position_)) != 0) ++position_;
    const std::size_t begin = position_;
    token_ = {Token::Kind::end, {}, begin};
    if (begin == text_.size()) return;
    if (std::isalpha(byte(begin)) != 0 || text_[begin] == '_') {
      while (position_ < text_.size() &&
             (std::isalnum(byte(position_)) != 0 || text_[position_] == '_'))
        ++position_;
      token_.kind = Token::Kind::name;
    } else if (std::isdigit(byte(begin)) != 0 || text_[begin] == '.') {
      double ignored = 0;
      const char* end =
          std::from_chars(text_.data() + begin, text_.data() + text_.size(), ignored).ptr;
      position_ = std::max(begin + 1, static_cast<std::size_t>(end - text_.data()));
      token_.kind = Token::Kind::number;
    } else {
      static constexpr std::string_view pairs[] = {"<=", ">=", "==", "!=", "//"};
      position_ += 1;
      for (std::string_view pair : pairs)
        if (text_.substr(begin).starts_with(pair)) position_ = begin + 2;
      token_.kind = Token::Kind::mark;
    }
    token_.text = text_.substr(begin, position_ - begin);
  }
  [[nodiscard]] int byte(std::size_t at) const { return static_cast<unsigned char>(text_[at]); }

  bool at(std::string_view mark) const {
    return token_.kind == Token::Kind::mark && token_.text == mark;
  }
  bool take(std::string_view mark) {
    if (!at(mark)) return false;
    next();
    return true;
  }
  void expect(std::string_view mark) {
    if (!take(mark)) expected(fmt::format("\"{}\"", mark));
  }
  [[noreturn]] void expected(std::string_view what) const {
    refuse(token_.at, fmt::format("expected {}, found {}", what,
                                  token_.kind == Token::Kind::end
                                      ? "the end"
                                      : fmt::format("\"{}\"", shortened(token_.text))));
  }
  [[noreturn]] void refuse(std::size_t at, const std::string& why, std::string fix = {}) const {
    throw SpecError({fmt::format("cannot read the expression \"{}\"", shortened(text_)),
                     fmt::format("at character {}: {}", at + 1, why),
                     std::move(fix),
                     {}});
  }

  /// One step down; comes back up where it goes out of scope.
  class Level {
   public:
    explicit Level(Reader& reader) : depth_(reader.depth_) {
      if (++depth_ > deepest)
        reader.refuse(reader.token_.at, fmt::format("nested more than {} deep", deepest),
                      "name its parts: t = ...; t + 1");
    }
    ~Level() { --depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    int& depth_;
  };
  void check_size() const {
    if (builder_.function().ops.size() - operations_before_ > most_operations)
      refuse(token_.at, fmt::format("more than {} operations", most_operations),
             "look up an array where it repeats itself");
  }

  // ---- statements

  [[nodiscard]] bool is_let() const {
    if (token_.kind != Token::Kind::name) return false;
    std::size_t after = position_;
    while (after < text_.size() && std::isspace(byte(after)) != 0) ++after;
    return after + 1 < text_.size() && text_[after] == '=' && text_[after + 1] != '=';
  }
  void read_let() {
    const Token name = token_;
    if (values_.contains(name.text) || tensors_.contains(name.text))
      refuse(name.at, fmt::format("{} has a meaning already", name.text), "choose another name");
    next();
    expect("=");
    const Term value = disjunction();
    expect(";");
    values_.emplace(name.text, value);
  }

  // ---- expressions, loosest first

  Term disjunction() {
    const Level level(*this);
    Term left = conjunction();
    for (Token op = token_; take("|"); op = token_)
      left = logic(op, OpCode::logical_or, left, conjunction());
    return left;
  }
  Term conjunction() {
    Term left = comparison();
    for (Token op = token_; take("&"); op = token_)
      left = logic(op, OpCode::logical_and, left, comparison());
    return left;
  }
  Term comparison() {
    static constexpr std::pair<std::string_view, OpCode> codes[] = {
        {"<", OpCode::lt},  {"<=", OpCode::le}, {">", OpCode::gt},
        {">=", OpCode::ge}, {"==", OpCode::eq}, {"!=", OpCode::ne}};
    Term left = sum();
    for (const auto& [mark, code] : codes) {
      const Token op = token_;
      if (!take(mark)) continue;
      const Term right = sum();
      for (const auto& [other, ignored] : codes)
        if (at(other)) refuse(token_.at, "comparisons do not chain", "write (a < b) & (b < c)");
      if (!left.value && !right.value)
        refuse(op.at, "a comparison of two numbers", "write true or false");
      const bool conditions = type_of(left) == DType::i1 && type_of(right) == DType::i1;
      if (conditions && (code == OpCode::eq || code == OpCode::ne))
        return agreement(code == OpCode::eq, as_value(left), as_value(right));
      if (conditions)
        return {builder_.ops().elementwise(code, {as_number(left), as_number(right)})};
      const auto [a, b] = alike(left, right);
      return {builder_.ops().elementwise(code, {a, b})};
    }
    return left;
  }
  /// Whether two conditions hold alike, or just one of them: in words that a scan understands.
  Term agreement(bool agree, ir::ValueId a, ir::ValueId b) {
    const auto make = [&](OpCode code, std::vector<ir::ValueId> operands) {
      return builder_.ops().elementwise(code, operands);
    };
    const ir::ValueId no_a = make(OpCode::logical_not, {a}), no_b = make(OpCode::logical_not, {b});
    return {make(OpCode::logical_or, {make(OpCode::logical_and, {a, agree ? b : no_b}),
                                      make(OpCode::logical_and, {no_a, agree ? no_b : b})})};
  }
  Term sum() {
    Term left = product();
    while (at("+") || at("-")) {
      const bool plus = at("+");
      next();
      left = arithmetic(plus ? OpCode::add : OpCode::sub, left, product());
    }
    return left;
  }
  Term product() {
    Term left = unary();
    while (at("*") || at("/") || at("//") || at("%")) {
      const Token op = token_;
      next();
      const Term right = unary();
      if (op.text == "*")
        left = arithmetic(OpCode::mul, left, right);
      else if (op.text == "/")
        left = arithmetic(OpCode::div, as_float(left), as_float(right));
      else
        left = floor_division(op, left, right);
    }
    return left;
  }
  Term unary() {
    check_size();
    const Token op = token_;
    if (take("-")) {
      const Level level(*this);
      Term x = unary();
      if (!x.value) return {{}, -x.number, x.whole};
      return {builder_.ops().elementwise(OpCode::neg, {as_number(x)})};
    }
    if (take("~")) {
      const Level level(*this);
      const ir::ValueId x = condition(op, unary());
      return {builder_.ops().elementwise(OpCode::logical_not, {x})};
    }
    return primary();
  }

  Term primary() {
    const Token token = token_;
    if (take("(")) {
      const Term inner = disjunction();
      expect(")");
      return inner;
    }
    if (token.kind == Token::Kind::number) {
      double number = 0;
      const char* end =
          std::from_chars(token.text.data(), token.text.data() + token.text.size(), number).ptr;
      if (end != token.text.data() + token.text.size()) expected("a number");
      next();
      return {{}, number, token.text.find_first_of(".eE") == std::string_view::npos};
    }
    if (token.kind != Token::Kind::name) expected("a value");
    next();
    if (at("(")) return call(token);
    if (at("[")) return element(token);
    if (const auto found = values_.find(token.text); found != values_.end()) return found->second;
    if (token.text == "inf") return {{}, HUGE_VAL, false};
    if (token.text == "true" || token.text == "false")
      return {{}, token.text == "true" ? 1.0 : 0.0, true, true};
    if (tensors_.contains(token.text))
      refuse(token.at, fmt::format("the tensor {} without an index", token.text),
             fmt::format("{}[...], one index a dimension", token.text));
    std::string known;
    for (const auto& [name, ignored] : values_) known += (known.empty() ? "" : ", ") + name;
    refuse(token.at, fmt::format("{} is not defined", shortened(token.text)),
           "the values are " + shortened(known));
  }

  Term element(const Token& name) {
    const auto found = tensors_.find(name.text);
    if (found == tensors_.end())
      refuse(name.at, fmt::format("no captured tensor is named {}", shortened(name.text)));
    std::vector<ir::ValueId> indices;
    std::uint8_t wraps = 0;
    expect("[");
    do {
      const std::size_t at = token_.at;
      const bool wrap = token_.kind == Token::Kind::name && token_.text == "wrap";
      if (wrap) {
        next();
        expect("(");
        if (indices.size() < 8) wraps |= static_cast<std::uint8_t>(1U << indices.size());
      }
      const Term index = disjunction();
      if (wrap) expect(")");
      const ir::ValueId value = index.value ? as_number(index) : as_value(index);
      if (builder_.function()[value].type.dtype != DType::i32)
        refuse(at, "an index that is not an integer", "int(...)");
      indices.push_back(value);
    } while (take(","));
    expect("]");
    const std::size_t rank = builder_.function()[found->second.id()].dims.size();
    if (indices.size() != rank)
      refuse(name.at, fmt::format("{} indices for {}, which has {} dimensions", indices.size(),
                                  name.text, rank));
    return {builder_.ops().gather(found->second.id(), std::move(indices), wraps)};
  }

  Term call(const Token& name) {
    std::vector<Term> arguments;
    expect("(");
    if (!at(")")) {
      do arguments.push_back(disjunction());
      while (take(","));
    }
    expect(")");
    const auto takes = [&](std::size_t count) {
      if (arguments.size() != count)
        refuse(name.at, fmt::format("{} with {} arguments; it takes {}", name.text,
                                    arguments.size(), count));
    };
    static constexpr std::pair<std::string_view, OpCode> of_floats[] = {
        {"exp", OpCode::exp},     {"exp2", OpCode::exp2},   {"log", OpCode::log},
        {"log2", OpCode::log2},   {"sqrt", OpCode::sqrt},   {"tanh", OpCode::tanh},
        {"sin", OpCode::sin},     {"cos", OpCode::cos},     {"tan", OpCode::tan},
        {"atan", OpCode::atan},   {"erf", OpCode::erf},     {"expm1", OpCode::expm1},
        {"log1p", OpCode::log1p}, {"floor", OpCode::floor}, {"round", OpCode::round}};
    for (const auto& [function, code] : of_floats)
      if (function == name.text) {
        takes(1);
        return {builder_.ops().elementwise(code, {as_value(as_float(arguments[0]))})};
      }
    if (name.text == "min" || name.text == "max") {
      if (arguments.size() < 2)
        refuse(name.at,
               fmt::format("{} of {} values; it takes two or more", name.text, arguments.size()));
      Term result = arguments[0];
      for (std::size_t i = 1; i < arguments.size(); ++i)
        result = arithmetic(name.text == "min" ? OpCode::min : OpCode::max, result, arguments[i]);
      return result;
    }
    if (name.text == "where") {
      takes(3);
      const ir::ValueId c = condition(name, arguments[0]);
      const auto [yes, no] = alike(arguments[1], arguments[2]);
      return {builder_.ops().elementwise(OpCode::where, {c, yes, no})};
    }
    if (name.text == "wrap")
      refuse(name.at, "wrap outside of an index", "table[wrap(...)]: it stands around a whole one");
    if (name.text == "abs") {
      takes(1);
      if (!arguments[0].value) return {{}, std::abs(arguments[0].number), arguments[0].whole};
      return {builder_.ops().elementwise(OpCode::abs, {as_number(arguments[0])})};
    }
    if (name.text == "float") {
      takes(1);
      return as_float(arguments[0]);
    }
    if (name.text == "int") {
      takes(1);
      if (!arguments[0].value) return {{}, std::trunc(arguments[0].number), true};
      return {builder_.ops().cast(as_number(arguments[0]), DType::i32)};
    }
    refuse(
        name.at, fmt::format("no function is named {}", shortened(name.text)),
        "abs, min, max, where, exp, exp2, log, log2, sqrt, tanh, sin, cos, tan, atan, erf, expm1, "
        "log1p, floor, round, float, int");
  }

  // ---- types

  [[nodiscard]] DType type_of(const Term& x) const {
    if (x.value) return builder_.function()[x.value].type.dtype;
    return x.logical ? DType::i1 : x.whole ? DType::i32 : DType::f32;
  }
  ir::ValueId as_value(const Term& x) {
    if (x.value) return x.value;
    const DType type = type_of(x);
    if (type == DType::i32 && !(x.number >= std::numeric_limits<std::int32_t>::min() &&
                                x.number <= std::numeric_limits<std::int32_t>::max()))
      refuse(token_.at,
             fmt::format("the number {:.0f} before it does not fit in 32 bits", x.number),
             fmt::format("{:.0f}.0, if a rounded number is meant", x.number));
    return builder_.ops().constant(x.number, type);
  }
  /// A condition as 0 or 1.
  ir::ValueId as_number(const Term& x) {
    const ir::ValueId value = as_value(x);
    if (type_of(x) != DType::i1) return value;
    ir::Builder& ops = builder_.ops();
    return ops.elementwise(OpCode::where,
                           {value, ops.constant(1, DType::i32), ops.constant(0, DType::i32)});
  }
  Term as_float(const Term& x) {
    if (!x.value) return {{}, x.number, false};
    return {builder_.ops().cast(as_number(x), DType::f32)};
  }
  ir::ValueId condition(const Token& op, const Term& x) {
    if (type_of(x) != DType::i1)
      refuse(op.at, fmt::format("\"{}\" of a number", op.text), "compare it with something first");
    return as_value(x);
  }
  /// Both in the type that holds either.
  std::pair<ir::ValueId, ir::ValueId> alike(const Term& a, const Term& b) {
    if (type_of(a) == DType::i1 && type_of(b) == DType::i1) return {as_value(a), as_value(b)};
    const bool floats = is_float(type_of(a)) || is_float(type_of(b));
    const auto one = [&](const Term& x) {
      return floats ? as_value(as_float(x)) : as_number(x.value ? x : Term{{}, x.number, true});
    };
    return {one(a), one(b)};
  }

  Term logic(const Token& op, OpCode code, const Term& a, const Term& b) {
    return {builder_.ops().elementwise(code, {condition(op, a), condition(op, b)})};
  }
  Term arithmetic(OpCode code, const Term& a, const Term& b) {
    if (!a.value && !b.value) return fold(code, a, b);
    if (type_of(a) == DType::i1 && type_of(b) == DType::i1)
      return {builder_.ops().elementwise(code, {as_number(a), as_number(b)})};
    const auto [left, right] = alike(a, b);
    return {builder_.ops().elementwise(code, {left, right})};
  }
  Term floor_division(const Token& op, const Term& a, const Term& b) {
    const bool floats = is_float(type_of(a)) || is_float(type_of(b));
    const bool remainder = op.text == "%";
    if (!b.value && b.number == 0) refuse(op.at, "a division by zero");
    if (!a.value && !b.value) {
      const double quotient = std::floor(a.number / b.number);
      return {{}, remainder ? a.number - b.number * quotient : quotient, a.whole && b.whole};
    }
    if (!floats) return arithmetic(remainder ? OpCode::mod : OpCode::div, a, b);
    const Term quotient{builder_.ops().elementwise(
        OpCode::floor, {as_value(arithmetic(OpCode::div, as_float(a), as_float(b)))})};
    if (!remainder) return quotient;
    return arithmetic(OpCode::sub, as_float(a), arithmetic(OpCode::mul, as_float(b), quotient));
  }
  static Term fold(OpCode code, const Term& a, const Term& b) {
    const bool whole = a.whole && b.whole;
    switch (code) {
      case OpCode::add:
        return {{}, a.number + b.number, whole};
      case OpCode::sub:
        return {{}, a.number - b.number, whole};
      case OpCode::mul:
        return {{}, a.number * b.number, whole};
      case OpCode::div:
        return {{}, a.number / b.number, false};
      case OpCode::min:
        return {{}, std::fmin(a.number, b.number), whole};
      default:
        return {{}, std::fmax(a.number, b.number), whole};
    }
  }

  ProgramBuilder& builder_;
  std::string_view text_;
  const std::map<std::string, Tensor, std::less<>>& tensors_;
  std::map<std::string, Term, std::less<>> values_;
  std::size_t operations_before_;
  std::size_t position_ = 0;
  int depth_ = 0;
  Token token_;
};

}  // namespace

Tile read_expression(ProgramBuilder& builder, std::string_view text,
                     const std::map<std::string, Tile, std::less<>>& names,
                     const std::map<std::string, Tensor, std::less<>>& tensors) {
  builder.ops().at({});
  return Reader(builder, text, names, tensors).run();
}

}  // namespace flashcore
