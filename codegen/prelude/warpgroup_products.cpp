#include "codegen/prelude/warpgroup_products.h"

#include <charconv>
#include <set>

#include <fmt/format.h>

namespace flashcore {
namespace {

/// What a call says: "128, fc::bf16, true", and another ", true" where the left operand is turned as well.
struct Shape {
  std::string_view text, type;
  int n = 0;
  bool turned, left_turned;

  explicit Shape(std::string_view call) : text(call), type(call.find("bf16") != call.npos ? "bf16" : "f16") {
    std::from_chars(call.data(), call.data() + call.size(), n);
    const std::string_view majors = call.substr(call.find("f16, ") + 5);
    turned = majors.starts_with("true");
    left_turned = majors.ends_with(", true");
  }
};

/// One instruction: the left operand in shared memory (one descriptor) or in registers (four of them).
std::string product(const Shape& shape, bool left_in_registers) {
  const int sums = shape.n / 2, left = left_in_registers ? 4 : 1;
  std::string registers, outputs;
  for (int i = 0; i < sums; ++i) {
    registers += fmt::format("{}%{}", i ? ", " : "", i);
    outputs += fmt::format("{}\"+f\"(d[{}][{}])", i ? ", " : "", i / 4, i % 4);
  }
  const std::string a = left_in_registers ? fmt::format("{{%{}, %{}, %{}, %{}}}", sums, sums + 1, sums + 2, sums + 3)
                                          : fmt::format("%{}", sums);
  const std::string inputs = left_in_registers
                                 ? R"("r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(adds)))"
                                 : R"("l"(a), "l"(b), "r"(int(adds)))";
  std::string majors = fmt::format("{}", int{shape.turned});
  if (!left_in_registers) majors = fmt::format("{}, {}", int{shape.left_turned}, majors);
  return fmt::format(
      "template <>\n"
      "FC_DEVICE void multiply_warpgroup<{shape}>(float (*d)[4], {left}, u64 b, bool adds) {{\n"
      "  asm volatile(\n"
      "      \"{{\\n\"\n"
      "      \".reg .pred adds;\\n\"\n"
      "      \"setp.ne.b32 adds, %{flag}, 0;\\n\"\n"
      "      \"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{type}.{type} {{{registers}}}, \"\n"
      "      \"{a}, %{b}, adds, 1, 1, {majors};\\n\"\n"
      "      \"}}\"\n"
      "      : {outputs}\n"
      "      : {inputs});\n"
      "}}\n\n",
      fmt::arg("n", shape.n), fmt::arg("type", shape.type), fmt::arg("shape", shape.text),
      fmt::arg("left", left_in_registers ? "const u32 (&a)[4]" : "u64 a"), fmt::arg("flag", sums + left + 1),
      fmt::arg("registers", registers), fmt::arg("a", a), fmt::arg("b", sums + left),
      fmt::arg("majors", majors), fmt::arg("outputs", outputs), fmt::arg("inputs", inputs));
}

}  // namespace

std::string warpgroup_products(std::string_view body) {
  constexpr std::string_view call = "fc::multiply_warpgroup<";
  std::set<std::string_view> shapes;
  for (std::size_t at = body.find(call); at != std::string_view::npos; at = body.find(call, at + 1)) {
    const std::size_t begin = at + call.size();
    shapes.insert(body.substr(begin, body.find('>', begin) - begin));
  }
  if (shapes.empty()) return {};
  std::string text = "namespace fc {\n\n";
  for (const std::string_view call_shape : shapes) {
    const Shape shape(call_shape);
    text += product(shape, /*left_in_registers=*/false);
    if (!shape.left_turned) text += product(shape, /*left_in_registers=*/true);
  }
  return text + "}  // namespace fc\n\n";
}

}  // namespace flashcore
