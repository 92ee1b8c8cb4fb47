#include "codegen/text/fields.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "codegen/text/names.h"

namespace flashcore {
namespace {

/// Dimensions whose stride is a parameter: all but the last, where unit stride is not promised all.
std::size_t stride_count(const ir::Tensor& tensor) {
  return tensor.dims.size() - (tensor.has_last_stride() || tensor.dims.empty() ? 0 : 1);
}

/// "q_tiles", and with the width of a panel that is not the first.
std::string wish_of(const std::vector<TensorMapArgument>& maps, std::size_t map,
                    const ir::Function& f) {
  std::string name = f.tensors[static_cast<std::size_t>(maps[map].tensor)].name + "_tiles";
  const auto first = std::ranges::find(maps, maps[map].tensor, &TensorMapArgument::tensor);
  return *first == maps[map] ? name
                             : fmt::format("{}_{}x{}", name, maps[map].rows, maps[map].width);
}

}  // namespace

Fields::Fields(const ir::Function& f, const KernelSource& source) : extent_names_(source.extents) {
  Names names;
  const auto add = [&](Kind kind, std::size_t index, const std::string& wanted,
                       std::size_t dim = 0) {
    fields_.push_back(
        {{kind, static_cast<int>(index), static_cast<int>(dim)}, names.unique(wanted)});
  };
  add(Kind::tile_counter, 0, "tile_counter");
  // The author's own names come first: those made of them give way.
  for (std::size_t t = 0; t < f.tensors.size(); ++t) add(Kind::pointer, t, f.tensors[t].name);
  for (std::size_t i = 0; i < f.parameters.size(); ++i) add(Kind::scalar, i, f.parameters[i].name);
  for (std::size_t i = 0; i < source.extents.size(); ++i) add(Kind::extent, i, source.extents[i]);
  for (std::size_t t = 0; t < f.tensors.size(); ++t)
    for (std::size_t d = 0; d < stride_count(f.tensors[t]); ++d)
      add(Kind::stride, t, fmt::format("{}_stride_{}", f.tensors[t].name, d), d);
  for (std::size_t m = 0; m < source.tensor_maps.size(); ++m)
    add(Kind::tensor_map, m, wish_of(source.tensor_maps, m, f));
}

const Fields::Named* Fields::find(const ParameterField& field) const {
  const auto key = [](const ParameterField& one) {
    return std::tuple(one.kind, one.index, one.dim);
  };
  const auto found =
      std::ranges::find(fields_, key(field), [&](const Named& one) { return key(one.field); });
  return found == fields_.end() ? nullptr : &*found;
}

std::string Fields::read(Kind kind, std::size_t index, std::size_t dim) const {
  const Named* field = find({kind, static_cast<int>(index), static_cast<int>(dim)});
  if (!field) return {};
  field->is_read = true;
  return "p." + field->name;
}

std::string Fields::stride(ir::TensorId tensor, std::size_t dim) const {
  const std::string text = read(Kind::stride, tensor.index, dim);
  return text.empty() ? "1" : text;
}

std::string Fields::extent(const Extent& extent) const {
  if (extent.is_static()) return std::to_string(extent.value);
  const auto at = std::ranges::find(extent_names_, extent.name);
  std::string text = read(Kind::extent, static_cast<std::size_t>(at - extent_names_.begin()));
  if (extent.times != 1) text += fmt::format(" * {}", extent.times);
  if (extent.plus) text += fmt::format(" + {}", extent.plus);
  return extent.times != 1 || extent.plus ? "(" + text + ")" : text;
}

void Fields::lay_out(KernelSource& source) const {
  constexpr std::pair<Kind, int> bytes_of[] = {{Kind::tensor_map, 128}, {Kind::pointer, 8},
                                               {Kind::stride, 8},       {Kind::extent, 4},
                                               {Kind::scalar, 4},       {Kind::tile_counter, 4}};
  int end = 0;
  const auto up_to = [&](int multiple) { return (end + multiple - 1) / multiple * multiple; };
  for (const auto& [kind, bytes] : bytes_of)
    for (const Named& one : fields_) {
      if (one.field.kind != kind || !one.is_read) continue;
      source.parameters.push_back(one.field);
      source.parameters.back().offset = up_to(bytes);
      end = up_to(bytes) + bytes;
    }
  source.parameter_bytes = up_to(source.tensor_maps.empty() ? 8 : 64);
}

}  // namespace flashcore
