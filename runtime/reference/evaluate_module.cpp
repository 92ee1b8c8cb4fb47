#include "runtime/reference/evaluate_module.h"

#include <algorithm>
#include <deque>
#include <map>
#include <string>

#include "dsl/launch_number.h"
#include "runtime/reference/formats.h"

namespace flashcore {
namespace {

template <class List>
auto find_named(List& list, const std::string& name) {
  return std::ranges::find_if(list, [&](const auto& one) { return one.name == name; });
}

/// Everything that kernels find by name.
class Names {
 public:
  Names(const Module& module, std::span<const TensorView> tensors,
        std::span<const ScalarValue> scalars, int multiprocessors)
      : module_(module) {
    const std::vector<ir::Tensor> arguments = module.tensors();
    for (std::size_t i = 0; i < arguments.size() && i < tensors.size(); ++i) {
      tensors_.emplace(arguments[i].name, tensors[i]);
      for (std::size_t dim = 0; dim < arguments[i].dims.size(); ++dim)
        lengths_.emplace(arguments[i].dims[dim].name,
                         tensors[i].shape[dim] - arguments[i].dims[dim].plus);
    }
    const std::vector<ir::Parameter> parameters = module.parameters();
    for (std::size_t i = 0; i < parameters.size() && i < scalars.size(); ++i) {
      scalars_.emplace(parameters[i].name, scalars[i]);
      if (parameters[i].dtype == DType::i32) lengths_.emplace(parameters[i].name, scalars[i].i32());
    }
    lengths_.emplace("multiprocessors", multiprocessors);
    for (std::size_t i = 0; i < module.numbers().size(); ++i) compute(i);
  }

  std::vector<TensorView> tensors_of(const ir::Function& kernel) {
    std::vector<TensorView> views;
    for (const ir::Tensor& tensor : kernel.tensors) {
      if (module_.is_workspace(tensor.name) && !tensors_.contains(tensor.name))
        tensors_.emplace(tensor.name, unwritten(tensor, shape_of(tensor)));
      if (const auto found = tensors_.find(tensor.name); found != tensors_.end())
        views.push_back(found->second);
    }
    return views;
  }

  std::vector<ScalarValue> scalars_of(const ir::Function& kernel) const {
    std::vector<ScalarValue> values;
    for (const ir::Parameter& parameter : kernel.parameters)
      if (const auto found = scalars_.find(parameter.name); found != scalars_.end())
        values.push_back(found->second);
    return values;
  }

  /// What a kernel has computed, where another may read it or add to it: never in the caller's
  /// memory.
  void keep(const ir::Tensor& tensor, const ReferenceOutput& output) {
    const TensorView view = unwritten(tensor, output.shape);
    for (std::size_t i = 0; i < output.values.size(); ++i)
      write_element(view.dtype, view.data, static_cast<std::int64_t>(i), output.values[i]);
    tensors_.insert_or_assign(tensor.name, view);
  }

 private:
  void compute(std::size_t which) {
    const LaunchNumber& number = module_.numbers()[which];
    const std::vector<std::string> known = module_.known_numbers(which);
    std::vector<std::int64_t> values;
    for (const std::string& name : known) values.push_back(lengths_.at(name));
    const std::int64_t value = NumberFormula(number, known).evaluate(values);
    lengths_.emplace(number.name, value);
    scalars_.emplace(number.name, static_cast<std::int32_t>(value));
  }

  std::vector<std::int64_t> shape_of(const ir::Tensor& tensor) const {
    std::vector<std::int64_t> shape;
    for (const Extent& extent : tensor.dims)
      shape.push_back(extent.is_static() ? extent.value : lengths_.at(extent.name) + extent.plus);
    return shape;
  }

  /// Memory of its own for a tensor.
  TensorView unwritten(const ir::Tensor& tensor, const std::vector<std::int64_t>& shape) {
    TensorView view{.dtype = tensor.dtype, .rank = static_cast<int>(shape.size())};
    std::int64_t stride = 1;
    for (std::size_t dim = shape.size(); dim-- > 0; stride *= shape[dim]) {
      view.shape[dim] = shape[dim];
      view.strides[dim] = stride;
    }
    std::vector<std::uint64_t>& memory = memory_.emplace_back(
        static_cast<std::size_t>(stride * size_of(tensor.dtype) / 8 + 1), ~std::uint64_t{0});
    view.data = memory.data();
    return view;
  }

  const Module& module_;
  std::map<std::string, TensorView> tensors_;
  std::map<std::string, ScalarValue> scalars_;
  std::map<std::string, std::int64_t> lengths_;
  std::deque<std::vector<std::uint64_t>> memory_;
};

/// What a kernel in front has stored, and the later one has not.
void keep_elements(const ReferenceOutput& before, ReferenceOutput& output) {
  for (std::size_t i = 0; i < output.values.size(); ++i) {
    if (output.written[i] || !before.written[i]) continue;
    output.values[i] = before.values[i];
    output.written[i] = true;
  }
}

}  // namespace

std::vector<ReferenceOutput> evaluate(const Module& module, std::span<const TensorView> tensors,
                                      std::span<const ScalarValue> scalars, int multiprocessors,
                                      ReferenceOptions options) {
  Names names(module, tensors, scalars, multiprocessors);
  std::vector<ReferenceOutput> outputs;  // of workspaces, too
  for (const Program& kernel : module.kernels()) {
    const ir::Function& f = kernel.function();
    const std::vector<TensorView> its_tensors = names.tensors_of(f);
    const std::vector<ScalarValue> its_scalars = names.scalars_of(f);
    for (ReferenceOutput& output : evaluate(f, its_tensors, its_scalars, options)) {
      const auto before = find_named(outputs, output.name);
      if (before != outputs.end() && module.has_several_writers(output.name))
        keep_elements(*before, output);
      names.keep(*find_named(f.tensors, output.name), output);
      if (before != outputs.end())
        *before = std::move(output);
      else
        outputs.push_back(std::move(output));
    }
  }
  std::erase_if(outputs,
                [&](const ReferenceOutput& output) { return module.is_workspace(output.name); });
  return outputs;
}

}  // namespace flashcore
