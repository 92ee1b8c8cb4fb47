// Trees as text, and what they mean.
#include "tests/templates/support/expression_tree.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include <fmt/format.h>

namespace flashcore {

namespace {

constexpr double wide = 2147483648.0;

// ---- text

int level_of(const ExpressionNode& node) {
  if (node.op == "|") return 1;
  if (node.op == "&") return 2;
  static const std::set<std::string> comparisons{"<", "<=", ">", ">=", "==", "!="};
  if (comparisons.contains(node.op)) return 3;
  if (node.op == "+" || node.op == "-") return 4;
  if (node.op == "*" || node.op == "/" || node.op == "//" || node.op == "%") return 5;
  if (node.op == "neg" || node.op == "~" || (node.op == "#" && std::signbit(node.number))) return 6;
  return 7;
}

std::string print(const ExpressionNode& node, int level);

std::string list(const ExpressionNode& node) {
  std::string text;
  for (const ExpressionTree& arg : node.args) text += (text.empty() ? "" : ", ") + print(*arg, 0);
  return text;
}

std::string bare(const ExpressionNode& node) {
  if (node.op == "#") {
    if (node.kind == Kind::condition) return node.number != 0 ? "true" : "false";
    if (std::isinf(node.number)) return node.number < 0 ? "-inf" : "inf";
    if (node.kind == Kind::integer)
      return fmt::format("{}", static_cast<std::int64_t>(node.number));
    return node.number == std::floor(node.number) ? fmt::format("{:.1f}", node.number)
                                                  : fmt::format("{}", node.number);
  }
  if (node.op == "a") return fmt::format("a{}", node.number);
  if (node.op == "[]") return fmt::format("{}[{}]", node.name, list(node));
  if (node.op == "neg") return "-" + print(*node.args[0], 6);
  if (node.op == "~") return "~" + print(*node.args[0], 6);
  const int level = level_of(node);
  if (level < 6) {
    // Left to right; comparisons do not chain.
    const int left = level == 3 ? 4 : level;
    return fmt::format("{} {} {}", print(*node.args[0], left), node.op,
                       print(*node.args[1], level + 1));
  }
  return node.args.empty() ? node.op : fmt::format("{}({})", node.op, list(node));
}

std::string print(const ExpressionNode& node, int level) {
  const std::string text = bare(node);
  return level_of(node) < level ? "(" + text + ")" : text;
}

// ---- meaning

double floor_div(double a, double b, bool integers) {
  if (integers && b == 0) return 0;
  return std::floor(a / b);
}
double floor_mod(double a, double b, bool integers) {
  if (integers && b == 0) return a;
  return a - b * std::floor(a / b);
}

class Meaning {
 public:
  Meaning(const Site& site, const std::vector<CapturedValues>& captured)
      : site_(site), captured_(captured) {}

  void name_part(double value) { parts_.push_back(value); }

  [[nodiscard]] double of(const ExpressionNode& node) const {
    const std::string& op = node.op;
    if (op == "#") return node.number;
    if (op == "a") return parts_.at(static_cast<std::size_t>(node.number));
    if (node.args.empty()) return name(op);
    std::vector<double> x;
    for (const ExpressionTree& arg : node.args) x.push_back(of(*arg));
    if (op == "[]") {
      for (const CapturedValues& one : captured_)
        if (one.tensor.name == node.name) return one.at(x);
      return NAN;
    }
    if (op == "neg") return -x[0];
    if (op == "~") return x[0] == 0 ? 1 : 0;
    if (op == "|") return x[0] != 0 || x[1] != 0;
    if (op == "&") return x[0] != 0 && x[1] != 0;
    if (op == "<") return x[0] < x[1];
    if (op == "<=") return x[0] <= x[1];
    if (op == ">") return x[0] > x[1];
    if (op == ">=") return x[0] >= x[1];
    if (op == "==") return x[0] == x[1];
    if (op == "!=") return x[0] != x[1];
    if (op == "+") return x[0] + x[1];
    if (op == "-") return x[0] - x[1];
    if (op == "*") return x[0] * x[1];
    if (op == "/") return x[0] / x[1];
    const bool integers = node.kind == Kind::integer;
    if (op == "//") return floor_div(x[0], x[1], integers);
    if (op == "%") return floor_mod(x[0], x[1], integers);
    if (op == "where") return x[0] != 0 ? x[1] : x[2];
    if (op == "min") return *std::min_element(x.begin(), x.end());
    if (op == "max") return *std::max_element(x.begin(), x.end());
    if (op == "abs") return std::abs(x[0]);
    if (op == "float") return x[0];
    if (op == "int") return std::trunc(x[0]);
    if (op == "floor") return std::floor(x[0]);
    if (op == "exp") return std::exp(x[0]);
    if (op == "exp2") return std::exp2(x[0]);
    if (op == "log") return std::log(x[0]);
    if (op == "log2") return std::log2(x[0]);
    if (op == "sqrt") return std::sqrt(x[0]);
    return op == "tanh" ? std::tanh(x[0]) : NAN;
  }

 private:
  [[nodiscard]] double name(const std::string& op) const {
    if (op == "score") return site_.score;
    if (op == "b") return site_.b;
    if (op == "h") return site_.h;
    if (op == "q_idx") return site_.q_idx;
    if (op == "kv_idx") return site_.kv_idx;
    if (op == "q_len") return site_.q_len;
    return op == "kv_len" ? site_.kv_len : NAN;
  }

  const Site& site_;
  const std::vector<CapturedValues>& captured_;
  std::vector<double> parts_;
};

void note_reads(const ExpressionNode& node, std::set<std::string>& names) {
  if (node.op == "[]") names.insert(node.name);
  for (const ExpressionTree& arg : node.args) note_reads(*arg, names);
}

}  // namespace

double CapturedValues::at(const std::vector<double>& indices) const {
  std::int64_t offset = 0;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (indices[dim] < 0 || indices[dim] >= static_cast<double>(shape[dim])) return 0;
    offset = offset * shape[dim] + static_cast<std::int64_t>(indices[dim]);
  }
  const double value = values[static_cast<std::size_t>(offset)];
  return is_float(tensor.dtype) ? value : std::clamp(value, -wide, wide - 1);
}

std::string RandomExpression::text() const {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i)
    text += fmt::format("a{} = {}; ", i, print(*parts[i], 0));
  return text + print(*value, 0);
}

double RandomExpression::at(const Site& site, const std::vector<CapturedValues>& captured) const {
  Meaning meaning(site, captured);
  for (const ExpressionTree& part : parts) meaning.name_part(meaning.of(*part));
  return meaning.of(*value);
}

std::vector<Captured> RandomExpression::reads(const std::vector<CapturedValues>& captured) const {
  std::set<std::string> names;
  for (const ExpressionTree& part : parts) note_reads(*part, names);
  note_reads(*value, names);
  std::vector<Captured> tensors;
  for (const CapturedValues& one : captured)
    if (names.contains(one.tensor.name)) tensors.push_back(one.tensor);
  return tensors;
}

}  // namespace flashcore
