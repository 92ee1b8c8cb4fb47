#include "codegen/prelude/warpgroup_products.h"

#include <charconv>
#include <set>

#include <fmt/format.h>

namespace flashcore {
namespace {

/// One instruction: the left operand in shared memory (one descriptor) or in registers (four of them).
std::string product(int n, std::string_view type, bool turned, bool left_in_registers) {
  const int sums = n / 2, left = left_in_registers ? 4 : 1;
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
  const std::string majors = left_in_registers ? fmt::format("{}", int{turned}) : fmt::format("0, {}", int{turned});
  return fmt::format(
      "template <>\n"
      "FC_DEVICE void multiply_warpgroup<{n}, {type}, {turned}>(float (*d)[4], {left}, u64 b, bool adds) {{\n"
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
      fmt::arg("n", n), fmt::arg("type", type), fmt::arg("turned", turned),
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
  for (std::string_view shape : shapes) {  // "128, fc::bf16, true"
    int n = 0;
    std::from_chars(shape.data(), shape.data() + shape.size(), n);
    const std::string_view type = shape.find("bf16") != std::string_view::npos ? "bf16" : "f16";
    for (const bool left_in_registers : {false, true})
      text += product(n, type, shape.ends_with("true"), left_in_registers);
  }
  return text + "}  // namespace fc\n\n";
}

}  // namespace flashcore
