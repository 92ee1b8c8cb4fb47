// Masks and scores cross as (text, [(name, dtype, rank, unit_stride, aligned_rows), ...]).
#include <functional>
#include <map>
#include <tuple>

#include <pybind11/stl.h>

#include "dsl/attention_spec.h"
#include "dsl/error.h"
#include "python/src/module.h"

namespace flashcore::python {
namespace {

namespace py = pybind11;

using Tensors = std::vector<std::tuple<std::string, std::string, int, bool, bool>>;
using Crossing = std::pair<std::string, Tensors>;

std::vector<Captured> captured(const Tensors& tensors) {
  std::vector<Captured> all;
  for (const auto& [name, dtype, rank, unit_stride, aligned_rows] : tensors) {
    const std::optional<DType> type = parse_dtype(dtype);
    if (!type)
      throw SpecError(
          {fmt::format("a captured tensor of dtype {}", dtype),
           "expressions read f16, bf16, f32, f64, integers of up to 64 bits, u8 and bool",
           "convert it to one of them",
           {}});
    all.push_back({name, *type, rank, unit_stride, aligned_rows});
  }
  return all;
}

Crossing cross(const Expression& expression) {
  Crossing result{expression.text, {}};
  for (const Captured& tensor : expression.tensors)
    result.second.emplace_back(tensor.name, name_of(tensor.dtype), tensor.rank, tensor.unit_stride,
                               tensor.aligned_rows);
  return result;
}

Mask mask_of(const Crossing& crossing) { return Mask(crossing.first, captured(crossing.second)); }

using Numbers = std::vector<double>;
using Variant = std::function<Expression(const Numbers&, const std::vector<Captured>&)>;

int whole(double number) { return static_cast<int>(number); }
Align align_of(double top_left) { return top_left != 0 ? Align::top_left : Align::bottom_right; }

const std::map<std::string, Variant>& variants() {
  using Args = const Numbers&;
  using Tensors = const std::vector<Captured>&;
  static const std::map<std::string, Variant> all{
      {"full", [](Args, Tensors) { return full(); }},
      {"causal", [](Args n, Tensors) { return causal(align_of(n.at(0))); }},
      {"sliding_window",
       [](Args n, Tensors) {
         return sliding_window(whole(n.at(0)), whole(n.at(1)), align_of(n.at(2)));
       }},
      {"prefix",
       [](Args n, Tensors t) { return t.empty() ? prefix(whole(n.at(0))) : prefix(t.at(0)); }},
      {"documents", [](Args, Tensors t) { return documents(t.at(0), t.back()); }},
      {"chunked", [](Args n, Tensors) { return chunked(whole(n.at(0))); }},
      {"dilated", [](Args n, Tensors) { return dilated(whole(n.at(0))); }},
      {"alibi", [](Args n, Tensors t) { return alibi(t.at(0), align_of(n.at(0))); }},
      {"softcap", [](Args n, Tensors) { return softcap(n.at(0)); }},
      {"relative_bias", [](Args n, Tensors t) { return relative_bias(t.at(0), whole(n.at(0))); }},
      {"bias", [](Args, Tensors t) { return bias(t.at(0)); }},
      {"sinks", [](Args, Tensors t) { return sinks(t.at(0)); }}};
  return all;
}

std::vector<std::string> reasons_against(const std::string& kind, const Crossing& crossing) {
  const std::vector<Captured> tensors = captured(crossing.second);
  if (kind == "mask") return check(Mask(crossing.first, tensors));
  if (kind == "score") return check(Score(crossing.first, tensors));
  return check(Sink(crossing.first, tensors));
}

}  // namespace

void bind_expressions(py::module_& m) {
  m.def(
      "variant",
      [](const std::string& name, const Numbers& numbers, const Tensors& tensors) {
        return cross(variants().at(name)(numbers, captured(tensors)));
      },
      py::arg("name"), py::arg("numbers") = Numbers{}, py::arg("tensors") = Tensors{});
  m.def("mask_and",
        [](const Crossing& a, const Crossing& b) { return cross(mask_of(a) & mask_of(b)); });
  m.def("mask_or",
        [](const Crossing& a, const Crossing& b) { return cross(mask_of(a) | mask_of(b)); });
  m.def("mask_not", [](const Crossing& a) { return cross(~mask_of(a)); });
  m.def("check_expression", &reasons_against, py::arg("kind"), py::arg("expression"));
  m.def("captured_name", [](const std::string& wish) { return captured_name(wish); });
}

}  // namespace flashcore::python
