#include "codegen/prelude/warpgroup_products.h"

#include <regex>
#include <set>
#include <string>

#include <fmt/format.h>

#include "dsl/error.h"

namespace flashcore {
namespace {

/// Steps whose matrices all fit into registers.
constexpr int most_matrices = 8;

/// What a call says: "128, fc::bf16, 8, fc::along<64, 16384>, fc::across<64>", how the left operand
/// goes on and how the right one does. A left operand in registers has no word there.
struct Shape {
  std::string text, type, left, right;
  int n = 0, steps = 0;

  explicit Shape(std::string_view call) : text(call) {
    static const std::regex form(
        R"((\d+), fc::(\w+), (\d+), (?:(fc::\w+<[^>]*>), )?(fc::\w+<[^>]*>))");
    std::smatch words;
    if (!std::regex_match(text, words, form))
      throw InternalError(fmt::format("a product of <{}>", call));
    n = std::stoi(words[1]);
    type = words[2];
    steps = std::stoi(words[3]);
    left = words[4];
    right = words[5];
  }

  [[nodiscard]] bool left_in_registers() const { return left.empty(); }
};

/// "1" where the rows of the matrix run across the sum.
int major(std::string_view walk) { return walk.starts_with("fc::across"); }

/// The operands of one asm statement, numbered as they come.
class Operands {
 public:
  explicit Operands(int first) : next_(first) {}
  /// Its number in the statement, "%64".
  std::string add(std::string_view constraint, std::string_view value) {
    text_ += fmt::format("{}\"{}\"({})", text_.empty() ? "" : ", ", constraint, value);
    return fmt::format("%{}", next_++);
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
  int next_;
};

/// All instructions of a product.
std::string product(const Shape& shape) {
  const int sums = shape.n / 2;
  std::string registers;
  Operands outputs(0), inputs(sums);
  for (int i = 0; i < sums; ++i)
    registers += (i ? ", " : "") + outputs.add("+f", fmt::format("d[{}][{}]", i / 4, i % 4));
  const std::string adds = inputs.add("r", "int(adds)");
  std::string majors = fmt::format("{}", major(shape.right));
  if (!shape.left_in_registers()) majors = fmt::format("{}, {}", major(shape.left), majors);
  std::string instructions;
  // Matrices are operands, which the compiler computes once for a whole loop. Those of many steps
  // take more uniform registers than there are; they are computed right in front of the
  // instruction.
  const auto matrix_at = [&](const std::string& matrix, std::string_view walk, int step) {
    if (shape.steps <= most_matrices)
      return inputs.add("l", fmt::format("advance({}, {}::bytes({}))", matrix, walk, step));
    const std::string start = inputs.add("l", matrix);
    const std::string further = inputs.add("n", fmt::format("{}::bytes({}) >> 4", walk, step));
    instructions += fmt::format("      \"add.s64 {}, {}, {};\\n\"\n", matrix, start, further);
    return matrix;
  };
  for (int k = 0; k < shape.steps; ++k) {
    std::string left;
    if (shape.left_in_registers()) {
      for (int i = 0; i < 4; ++i)
        left += (i ? ", " : "{") + inputs.add("r", fmt::format("a[{}][{}]", k, i));
      left += "}";
    } else {
      left = matrix_at("a", shape.left, k);
    }
    const std::string right = matrix_at("b", shape.right, k);
    instructions += fmt::format(
        "      \"wgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} {{{}}}, \"\n"
        "      \"{}, {}, {}, 1, 1, {};\\n\"\n",
        shape.n, shape.type, shape.type, registers, left, right, k ? "always" : "adds", majors);
  }
  return fmt::format(
      "template <>\n"
      "FC_DEVICE void multiply_warpgroup<{}>(float (*d)[4], {}, u64 b, bool adds) {{\n"
      "  asm volatile(\n"
      "      \"{{\\n\"\n"
      "      \".reg .pred adds, always;\\n\"\n"
      "      \".reg .b64 a, b;\\n\"\n"
      "      \"setp.ne.b32 adds, {}, 0;\\n\"\n"
      "      \"setp.eq.b32 always, 0, 0;\\n\"\n"
      "{}"
      "      \"}}\"\n"
      "      : {}\n"
      "      : {});\n"
      "}}\n\n",
      shape.text, shape.left_in_registers() ? "const u32 (*a)[4]" : "u64 a", adds, instructions,
      outputs.text(), inputs.text());
}

}  // namespace

std::string warpgroup_products(std::string_view body) {
  constexpr std::string_view call = "fc::multiply_warpgroup<";
  std::set<std::string_view> shapes;
  for (std::size_t at = body.find(call); at != std::string_view::npos;
       at = body.find(call, at + 1)) {
    const std::size_t begin = at + call.size();
    shapes.insert(body.substr(begin, body.find(">(", begin) - begin));
  }
  if (shapes.empty()) return {};
  std::string text = "namespace fc {\n\n";
  for (const std::string_view shape : shapes) text += product(Shape(shape));
  return text + "}  // namespace fc\n\n";
}

}  // namespace flashcore
