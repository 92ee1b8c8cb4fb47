#include "codegen/text/fields.h"

#include <algorithm>

#include <fmt/format.h>

#include "codegen/text/names.h"

namespace flashcore {
namespace {

/// "q_tiles", and with the width of a panel that is not the first.
std::string wish_of(const std::vector<TensorMapArgument>& maps, std::size_t map,
                    const ir::Function& f) {
  std::string name = f.tensors[static_cast<std::size_t>(maps[map].tensor)].name + "_tiles";
  const bool first =
      std::none_of(maps.begin(), maps.begin() + static_cast<std::ptrdiff_t>(map),
                   [&](const TensorMapArgument& m) { return m.tensor == maps[map].tensor; });
  return first ? name : fmt::format("{}_{}x{}", name, maps[map].rows, maps[map].width);
}

}  // namespace

Fields::Fields(const ir::Function& f, const KernelSource& source) : extent_names_(source.extents) {
  Names names;
  tile_counter_ = names.unique("tile_counter");
  // The author's own names come first: those made of them give way.
  for (const ir::Tensor& tensor : f.tensors) tensors_.push_back(names.unique(tensor.name));
  for (const ir::Parameter& parameter : f.parameters)
    scalars_.push_back(names.unique(parameter.name));
  for (const std::string& extent : source.extents) extents_.push_back(names.unique(extent));
  for (const ir::Tensor& tensor : f.tensors) {
    std::vector<std::string>& strides = strides_.emplace_back();
    for (std::size_t d = 0; d < tensor.dims.size(); ++d)
      strides.push_back(names.unique(fmt::format("{}_stride_{}", tensor.name, d)));
  }
  for (std::size_t m = 0; m < source.tensor_maps.size(); ++m)
    maps_.push_back(names.unique(wish_of(source.tensor_maps, m, f)));
}

std::string Fields::read(const std::string& name) const {
  read_.insert(name);
  return "p." + name;
}

std::string Fields::extent(const std::string& name) const {
  const auto at = std::find(extent_names_.begin(), extent_names_.end(), name);
  return read(extents_[static_cast<std::size_t>(at - extent_names_.begin())]);
}

const std::string& Fields::name_of(const ParameterField& field) const {
  const auto at = static_cast<std::size_t>(field.index);
  switch (field.kind) {
    case ParameterField::Kind::pointer:
      return tensors_[at];
    case ParameterField::Kind::stride:
      return strides_[at][static_cast<std::size_t>(field.dim)];
    case ParameterField::Kind::extent:
      return extents_[at];
    case ParameterField::Kind::scalar:
      return scalars_[at];
    case ParameterField::Kind::tensor_map:
      return maps_[at];
    case ParameterField::Kind::tile_counter:
      break;
  }
  return tile_counter_;
}

}  // namespace flashcore
