#include "tests/templates/support/attention_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <sstream>

#include <fmt/format.h>

#include "runtime/launch.h"
#include "runtime/reference/formats.h"
#include "runtime/reference/reference.h"

namespace flashcore {
namespace {

std::vector<std::int64_t> shape_of(const AttentionSpec& spec, int batch, int heads, int length,
                                   int dim) {
  if (spec.layout == TensorLayout::bshd) return {batch, length, heads, dim};
  return {batch, heads, length, dim};
}

/// One unit in the last place of a number as large as `largest`.
double last_place(DType dtype, double largest) {
  const int bits = dtype == DType::bf16 ? 8 : dtype == DType::f16 ? 11 : 24;
  return std::ldexp(largest, 1 - bits);
}

}  // namespace

StridedArray::StridedArray(DType dtype, const std::vector<std::int64_t>& shape, int row_gap) {
  view_.dtype = dtype;
  view_.rank = static_cast<int>(shape.size());
  std::int64_t stride = 1;
  for (int dim = view_.rank; dim-- > 0;) {
    view_.shape[dim] = shape[dim];
    view_.strides[dim] = stride;
    stride *= shape[dim];
    if (dim == view_.rank - 1) stride += row_gap;
  }
  // Room behind, so that an access beyond one array does not meet another.
  bytes_.assign(static_cast<std::size_t>(stride * size_of(dtype) / 8 + 4096), ~std::uint64_t{0});
  // Vectors of 16 bytes need an address that is a multiple of that.
  const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
  view_.data = bytes_.data() + (address % 16 != 0 ? 1 : 0);
}

AttentionRun::AttentionRun(const AttentionSpec& spec, const AttentionInputs& in)
    : scale_(1 / std::sqrt(static_cast<double>(spec.head_dim))) {
  const auto add = [&](int heads, int length, int dim) {
    arrays_.emplace_back(spec.dtype, shape_of(spec, in.batch, heads, length, dim), in.row_gap);
  };
  add(in.heads, in.q_len, spec.head_dim);
  add(in.kv_heads, in.kv_len, spec.head_dim);
  add(in.kv_heads, in.kv_len, spec.value_dim());
  add(in.heads, in.q_len, spec.value_dim());
  if (spec.lse)
    arrays_.emplace_back(DType::f32, std::vector<std::int64_t>{in.batch, in.heads, in.q_len}, 0);
  std::mt19937 random(in.seed);
  std::normal_distribution<double> normal;
  for (std::size_t t = 0; t < 3; ++t)
    arrays_[t].for_each_offset([&](std::int64_t offset) {
      write_element(spec.dtype, arrays_[t].view().data, offset,
                    normal(random) * (t == 0 ? in.spread : 1));
    });
}

std::vector<TensorView> AttentionRun::views() const {
  std::vector<TensorView> views;
  for (const StridedArray& array : arrays_) views.push_back(array.view());
  return views;
}

std::vector<double> AttentionRun::values(int tensor) const {
  const StridedArray& array = arrays_[static_cast<std::size_t>(tensor)];
  std::vector<double> values;
  array.for_each_offset([&](std::int64_t offset) {
    values.push_back(read_element(array.view().dtype, array.view().data, offset));
  });
  return values;
}

EmulationReport AttentionRun::emulate(const KernelSource& source) {
  const LaunchPlan plan(std::make_shared<const KernelSource>(source));
  ParameterBlock block;
  const std::vector<TensorView> tensors = views();
  const ScalarValue scalars[] = {scale_};
  const LaunchPlan::Bound bound = plan.bind(tensors, scalars, block);
  return EmulatedKernel::build(source).run(
      std::span(block.bytes, static_cast<std::size_t>(source.parameter_bytes)),
      bound.grid, tensors, {.workers = 1});
}

std::string AttentionRun::compare(const Program& program) const {
  const std::vector<TensorView> tensors = views();
  const ScalarValue scalars[] = {scale_};
  const auto exact = evaluate(program.function(), tensors, scalars, {Precision::exact});
  const auto storage = evaluate(program.function(), tensors, scalars, {Precision::storage});
  std::string report;
  for (std::size_t k = 0; k < exact.size(); ++k) {
    const std::vector<double> got = values(static_cast<int>(3 + k));
    const std::vector<double>&want = exact[k].values, &rounded = storage[k].values;
    double allowed = 0, largest = 0, worst = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      // A row without a key: exactly zero or -inf, whatever the precision.
      const double difference = got[i] == want[i] ? 0 : std::abs(got[i] - want[i]);
      if (!(difference <= worst)) worst = difference, at = i;
      if (std::isnan(difference)) break;
      if (!std::isfinite(want[i])) continue;
      allowed = std::max(allowed, 2 * std::abs(rounded[i] - want[i]));
      largest = std::max(largest, std::abs(want[i]));
    }
    const DType dtype = arrays_[3 + k].view().dtype;
    allowed += dtype == DType::f32 ? 2e-6 + 4 * last_place(dtype, largest)
                                   : last_place(dtype, largest);
    if (!(worst <= allowed))
      report += fmt::format("{}[{}] is {} and should be {}: off by {:.3g}, allowed {:.3g}\n",
                            exact[k].name, at, got[at], want[at], worst, allowed);
  }
  return report;
}

std::string line_of(const KernelSource& source, int line) {
  std::istringstream lines(source.body);
  std::string text;
  for (int i = 0; i < line; ++i) std::getline(lines, text);
  const std::size_t begin = text.find_first_not_of(' ');
  return fmt::format("line {}: {}", line, begin == std::string::npos ? "" : text.substr(begin));
}

}  // namespace flashcore
