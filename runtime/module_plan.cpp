#include "runtime/module_plan.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "dsl/error.h"

namespace flashcore {
namespace {

void require_room(const Module& module, const char* what, std::size_t count, std::size_t most) {
  if (count <= most) return;
  throw SpecError({fmt::format("the module {}", module.name()),
                   fmt::format("it has {} {}", count, what),
                   fmt::format("at most {}, or two modules", most),
                   {}});
}

template <class List>
auto find_named(List& list, const std::string& name) {
  return std::find_if(list.begin(), list.end(), [&](const auto& one) { return one.name == name; });
}

template <class List>
int place_of(const List& list, const std::string& name) {
  return static_cast<int>(find_named(list, name) - list.begin());
}

std::int64_t round_up(std::int64_t count, std::int64_t step) {
  return (count + step - 1) / step * step;
}

/// Elements from row to row of a workspace. Rows begin at whole chunks, of which the copy engine takes
/// a box of any row.
std::int64_t row_pitch(std::int64_t length, DType dtype) {
  return round_up(length, TensorMaps::tensor_alignment / size_of(dtype));
}

}  // namespace

ModulePlan::ModulePlan(Module module, std::span<const std::shared_ptr<const KernelSource>> sources)
    : module_(std::move(module)), signature_(std::make_shared<KernelSource>()) {
  add_signature(sources);
  add_numbers();
  add_workspaces();
  connect();
  checks_ = std::make_unique<LaunchPlan>(signature_);
}

// Arguments with the demands of all kernels that take them.
void ModulePlan::add_signature(std::span<const std::shared_ptr<const KernelSource>> sources) {
  signature_->name = signature_->entry = module_.name();
  for (const std::shared_ptr<const KernelSource>& source : sources) {
    require_room(module_, "tensors in a kernel", source->tensors.size(), max_tensors);
    require_room(module_, "scalars in a kernel", source->scalars.size(), max_scalars);
    for (const TensorArgument& tensor : source->tensors) {
      if (module_.is_workspace(tensor.name)) continue;
      const auto known = find_named(signature_->tensors, tensor.name);
      if (known == signature_->tensors.end()) {
        signature_->tensors.push_back(tensor);
        continue;
      }
      known->output |= tensor.output;
      known->alignment = std::max(known->alignment, tensor.alignment);
      known->has_last_stride &= tensor.has_last_stride;
      for (std::size_t dim = 0; dim < tensor.stride_limits.size(); ++dim)
        known->stride_limits[dim] = std::min(known->stride_limits[dim], tensor.stride_limits[dim]);
    }
    for (const ScalarArgument& scalar : source->scalars) {
      if (module_.is_number(scalar.name)) continue;
      const auto known = find_named(signature_->scalars, scalar.name);
      if (known == signature_->scalars.end()) {
        signature_->scalars.push_back(scalar);
        continue;
      }
      known->positive |= scalar.positive;
      known->is_length |= scalar.is_length;
    }
  }
  require_room(module_, "tensors", signature_->tensors.size(), max_tensors);
  require_room(module_, "scalars", signature_->scalars.size(), max_scalars);
}

// What formulas read lies in the parameter block of the signature, one 32-bit field after another.
void ModulePlan::add_numbers() {
  value_names_ = module_.known_numbers(module_.numbers().size());
  require_room(module_, "lengths and numbers", value_names_.size(), max_numbers);
  first_number_ = value_names_.size() - module_.numbers().size();
  for (std::size_t i = 0; i + 1 < first_number_; ++i) {
    const std::string& name = value_names_[i];
    const int scalar = place_of(signature_->scalars, name);
    const bool is_scalar = scalar < static_cast<int>(signature_->scalars.size());
    if (!is_scalar) signature_->extents.push_back(name);
    signature_->parameters.push_back(
        {.kind = is_scalar ? ParameterField::Kind::scalar : ParameterField::Kind::extent,
         .index = is_scalar ? scalar : static_cast<int>(signature_->extents.size()) - 1,
         .offset = signature_->parameter_bytes});
    signature_->parameter_bytes += 4;
  }
  for (std::size_t i = 0; i < module_.numbers().size(); ++i)
    formulas_.emplace_back(module_.numbers()[i], std::span(value_names_).first(first_number_ + i));
}

void ModulePlan::add_workspaces() {
  require_room(module_, "workspaces", module_.workspaces().size(), max_tensors);
  for (const std::string& name : module_.workspaces()) {
    const ir::Tensor* tensor = nullptr;
    for (const Program& kernel : module_.kernels())
      if (const auto at = find_named(kernel.function().tensors, name);
          at != kernel.function().tensors.end())
        tensor = &*at;
    Workspace workspace{.dtype = tensor->dtype};
    for (const Extent& dim : tensor->dims) {
      const auto value = std::find(value_names_.begin(), value_names_.end(), dim.name);
      workspace.shape.push_back(
          dim.is_static() ? Length{.constant = dim.value}
                          : Length{.constant = dim.plus,
                                   .value = static_cast<int>(value - value_names_.begin())});
    }
    workspaces_.push_back(std::move(workspace));
  }
}

void ModulePlan::connect() {
  const auto is_named = [](const std::string& name) {
    return [&name](const auto& one) { return one == name; };
  };
  for (const Program& program : module_.kernels()) {
    Kernel kernel;
    for (const ir::Tensor& tensor : program.function().tensors) {
      const auto workspaces = module_.workspaces();
      const bool computed = module_.is_workspace(tensor.name);
      const auto at = std::find_if(workspaces.begin(), workspaces.end(), is_named(tensor.name));
      kernel.tensors.push_back({.index = computed ? static_cast<int>(at - workspaces.begin())
                                                  : place_of(signature_->tensors, tensor.name),
                                .computed = computed});
    }
    for (const ir::Parameter& scalar : program.function().parameters) {
      const bool computed = module_.is_number(scalar.name);
      kernel.scalars.push_back({.index = computed ? place_of(module_.numbers(), scalar.name)
                                                  : place_of(signature_->scalars, scalar.name),
                                .computed = computed});
    }
    kernels_.push_back(std::move(kernel));
  }
}

std::int64_t ModulePlan::length_of(const Length& length, const Bound& bound) {
  return length.constant +
         (length.value < 0 ? 0 : bound.values[static_cast<std::size_t>(length.value)]);
}

ModulePlan::Bound ModulePlan::bind(std::span<const TensorView> tensors,
                                   std::span<const ScalarValue> scalars,
                                   int multiprocessors) const {
  ParameterBlock block;
  Bound bound;
  bound.device = checks_->bind(tensors, scalars, block).device;
  std::size_t known = 0;
  for (; known + 1 < first_number_; ++known) {
    std::int32_t value = 0;
    std::memcpy(&value, block.bytes + 4 * known, sizeof value);
    bound.values[known] = value;
  }
  bound.values[known++] = multiprocessors;
  for (const NumberFormula& formula : formulas_) {
    bound.values[known] = formula.evaluate(std::span(bound.values).first(known));
    ++known;
  }
  for (std::size_t i = 0; i < workspaces_.size(); ++i) {
    const Workspace& workspace = workspaces_[i];
    std::int64_t elements = 1;
    for (const Length& length : workspace.shape) {
      const std::int64_t size = std::max<std::int64_t>(0, length_of(length, bound));
      elements *= &length == &workspace.shape.back() ? row_pitch(size, workspace.dtype) : size;
    }
    bound.offsets[i] = bound.workspace_bytes;
    bound.workspace_bytes += static_cast<std::size_t>(
        round_up(elements * size_of(workspace.dtype), std::int64_t{workspace_alignment}));
  }
  return bound;
}

TensorView ModulePlan::workspace_view(const Bound& bound, int which, void* memory) const {
  const auto at = static_cast<std::size_t>(which);
  const Workspace& workspace = workspaces_[at];
  TensorView view{
      .data = memory == nullptr ? nullptr : static_cast<std::byte*>(memory) + bound.offsets[at],
      .dtype = workspace.dtype,
      .rank = static_cast<int>(workspace.shape.size()),
      .device = bound.device};
  std::int64_t stride = 1;
  for (int dim = view.rank - 1; dim >= 0; --dim) {
    const std::int64_t length = length_of(workspace.shape[static_cast<std::size_t>(dim)], bound);
    view.shape[static_cast<std::size_t>(dim)] = length;
    view.strides[static_cast<std::size_t>(dim)] = stride;
    stride *= dim == view.rank - 1 ? row_pitch(length, workspace.dtype) : length;
  }
  return view;
}

}  // namespace flashcore
