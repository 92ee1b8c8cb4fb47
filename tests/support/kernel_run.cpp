#include "tests/support/kernel_run.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "runtime/cache/digest.h"
#include "runtime/cache/key.h"
#include "runtime/launch.h"
#include "runtime/reference/formats.h"
#include "runtime/reference/reference.h"

namespace flashcore {
namespace {

/// One unit in the last place of a number as large as `largest`.
double last_place(DType dtype, double largest) {
  const int bits = dtype == DType::bf16 ? 8 : dtype == DType::f16 ? 11 : 24;
  return std::ldexp(largest, 1 - bits);
}

/// What an output may differ by beyond twice the error of storage: one last place where it is
/// stored in 16 bits, and otherwise what f32 sums in another order and approximate functions lose.
double slack(DType dtype, double largest) {
  switch (dtype) {
    case DType::f16:
    case DType::bf16:
      return last_place(dtype, largest);
    case DType::f32:
      return 2e-6 + 4 * last_place(dtype, largest);
    default:
      return 0;
  }
}

/// Results of launches or comparisons by a digest of everything that they depend on: targets share most
/// kernels of a schedule, and tests under every schedule launch them once a target.
template <class Value>
class Results {
 public:
  [[nodiscard]] const Value* find(const std::string& key) const {
    const auto found = known_.find(key);
    return found == known_.end() ? nullptr : &found->second;
  }
  void add(const std::string& key, Value value) {
    if (known_.size() == most) known_.clear();
    known_.emplace(key, std::move(value));
  }

 private:
  static constexpr std::size_t most = 256;
  std::map<std::string, Value> known_;
};

struct Ran {
  EmulationReport report;
  std::vector<std::vector<std::uint64_t>> outputs;  ///< nothing for inputs
};

}  // namespace

StridedArray::StridedArray(DType dtype, const std::vector<std::int64_t>& shape, int row_gap,
                           int step) {
  view_.dtype = dtype;
  view_.rank = static_cast<int>(shape.size());
  std::int64_t stride = step;
  for (int dim = view_.rank; dim-- > 0;) {
    view_.shape[dim] = shape[dim];
    view_.strides[dim] = stride;
    stride *= shape[dim];
    if (dim == view_.rank - 1 && view_.rank > 1) stride += row_gap;
  }
  // Room behind, so that an access beyond one array does not meet another.
  bytes_.assign(static_cast<std::size_t>(stride * size_of(dtype) / 8 + 4096), ~std::uint64_t{0});
  // Vectors of 16 bytes need an address that is a multiple of 16. It is no multiple of 32, and has the
  // same place in a line of 128 bytes in every run, so that a launch can be known again by its bytes.
  auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
  while (address % 128 != 16) address += sizeof(bytes_[0]);
  view_.data = reinterpret_cast<void*>(address);
  words_ = bytes_.size() - 128 / sizeof(bytes_[0]);
}

KernelRun::KernelRun(const Program& program, RunInputs inputs)
    : program_(program), inputs_(std::move(inputs)) {
  std::mt19937 random(inputs_.seed);
  std::normal_distribution<double> normal;
  for (const ir::Tensor& tensor : program_.function().tensors) {
    std::vector<std::int64_t> shape;
    for (const Extent& dim : tensor.dims)
      shape.push_back(dim.of(dim.is_static() ? 0 : inputs_.extents.at(dim.name)));
    const StridedArray& array =
        arrays_.emplace_back(tensor.dtype, shape, gap_behind_rows(tensor, shape.back()),
                             tensor.has_last_stride() ? inputs_.gathered_step : 1);
    const bool holds_sums = program_.function().adds_to(ir::TensorId(arrays_.size() - 1)) &&
                            inputs_.values.count(tensor.name);
    if (tensor.output && !holds_sums) continue;
    const auto found = inputs_.spread.find(tensor.name);
    const double spread = found == inputs_.spread.end() ? 1 : found->second;
    const auto given = inputs_.values.find(tensor.name);
    std::size_t next = 0;
    array.for_each_offset([&](std::int64_t offset) {
      if (given != inputs_.values.end()) {
        write_element(tensor.dtype, array.view().data, offset, given->second.at(next++));
        return;
      }
      const double value = tensor.dtype == DType::i32
                               ? static_cast<double>(random() % static_cast<unsigned>(spread))
                               : normal(random) * spread;
      write_element(tensor.dtype, array.view().data, offset, value);
    });
  }
}

std::int64_t KernelRun::gap_behind_rows(const ir::Tensor& tensor, std::int64_t width) const {
  const std::int64_t length = width + inputs_.row_gap;
  const bool aligned = tensor.aligned_rows || inputs_.aligned_rows.contains(tensor.name);
  const std::int64_t step = aligned ? 16 / size_of(tensor.dtype) : 1;
  return (length + step - 1) / step * step - width;
}

std::vector<TensorView> KernelRun::views() const {
  std::vector<TensorView> views;
  for (const StridedArray& array : arrays_) views.push_back(array.view());
  return views;
}

std::vector<double> KernelRun::values(std::size_t tensor) const {
  std::vector<double> values;
  const TensorView& view = arrays_[tensor].view();
  arrays_[tensor].for_each_offset(
      [&](std::int64_t offset) { values.push_back(read_element(view.dtype, view.data, offset)); });
  return values;
}

EmulationReport KernelRun::emulate(const KernelSource& source) {
  const LaunchPlan plan(std::make_shared<const KernelSource>(source));
  ParameterBlock block;
  const std::vector<TensorView> tensors = views();
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (const auto unwritten = source.tensors[i].unwritten)
      arrays_[i].for_each_offset([&](std::int64_t offset) {
        write_element(tensors[i].dtype, tensors[i].data, offset, *unwritten);
      });
  const LaunchPlan::Bound bound = plan.bind(tensors, inputs_.scalars, block);
  static Results<Ran> known;
  const std::string key = digest_of(make_key(source, "", {}, {}).preimage + arguments());
  if (const Ran* ran = known.find(key)) {
    for (std::size_t i = 0; i < arrays_.size(); ++i)
      if (source.tensors[i].output) std::ranges::copy(ran->outputs[i], arrays_[i].bytes().begin());
    return ran->report;
  }
  Ran ran{EmulatedKernel::build(source).run(
              std::span(block.bytes, static_cast<std::size_t>(source.parameter_bytes)), bound.grid,
              tensors, {.workers = 1}),
          {}};
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    auto& bytes = ran.outputs.emplace_back();
    if (source.tensors[i].output)
      bytes.assign(arrays_[i].bytes().begin(), arrays_[i].bytes().end());
  }
  EmulationReport report = ran.report;
  known.add(key, std::move(ran));
  return report;
}

std::string KernelRun::compare() const {
  static Results<std::string> known;
  const std::string key = digest_of(program_.text() + '\0' + arguments());
  if (const std::string* found = known.find(key)) return *found;
  std::string report = difference_from_reference();
  known.add(key, report);
  return report;
}

std::string KernelRun::arguments() const {
  std::string all;
  for (const ScalarValue& scalar : inputs_.scalars)
    all += scalar.dtype() == DType::f32
               ? fmt::format("f{:08x} ", std::bit_cast<std::uint32_t>(scalar.f32()))
               : fmt::format("i{} ", scalar.i32());
  for (const StridedArray& array : arrays_) {
    const TensorView& view = array.view();
    all += fmt::format("{} {}", static_cast<int>(view.dtype), view.rank);
    for (int d = 0; d < view.rank; ++d)
      all += fmt::format(" {}:{}", view.shape[d], view.strides[d]);
    all += fmt::format(" {}\n", array.bytes().size());
    all.append(reinterpret_cast<const char*>(array.bytes().data()), array.bytes().size_bytes());
  }
  return all;
}

std::string KernelRun::difference_from_reference() const {
  const std::vector<TensorView> tensors = views();
  const ir::Function& f = program_.function();
  const auto exact = evaluate(f, tensors, inputs_.scalars, {Precision::exact});
  const auto storage = evaluate(f, tensors, inputs_.scalars, {Precision::storage});
  std::string report;
  std::size_t output = 0;
  for (std::size_t t = 0; t < arrays_.size(); ++t) {
    if (!f.tensors[t].output) continue;
    const std::vector<double> got = values(t);
    const std::vector<double>&want = exact[output].values, &rounded = storage[output].values;
    const std::vector<bool>& written = exact[output++].written;
    double allowed = 0, largest = 0, worst = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      // Infinities have to agree, whatever the precision, and NaN: what nobody writes stays one, or the number
      // that has its bits.
      const bool stays = !written[i] && f.tensors[t].dtype == DType::i32 && got[i] == -1;
      const bool same = stays || got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]));
      const double difference = same ? 0 : std::abs(got[i] - want[i]);
      if (!(difference <= worst)) worst = difference, at = i;
      if (std::isnan(difference)) break;
      if (!std::isfinite(want[i])) continue;
      allowed = std::max(allowed, 2 * std::abs(rounded[i] - want[i]));
      largest = std::max(largest, std::abs(want[i]));
    }
    allowed += slack(f.tensors[t].dtype, largest);
    if (!(worst <= allowed))
      report += fmt::format("{}[{}] is {} and should be {}: off by {:.3g}, allowed {:.3g}\n",
                            f.tensors[t].name, at, got[at], want[at], worst, allowed);
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
