#include "runtime/cache/launch_data.h"

#include <bit>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>

#include <nlohmann/json.hpp>

#include "dsl/json.h"
#include "runtime/cache/strict_fields.h"

namespace flashcore {
namespace {

using Json = nlohmann::json;
using Fields = StrictFields;

constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();
constexpr int largest_int = std::numeric_limits<int>::max();

Json to_json(const Extent& extent) {
  if (extent.is_static()) return extent.value;
  if (extent.times == 1) return Json::array({extent.name, extent.plus});
  return Json::array({extent.name, extent.plus, extent.times});
}

Extent read_extent(const Json& json) {
  if (!json.is_array()) return {Fields::within(json, 0, any)};
  if (json.size() != 2 && json.size() != 3) throw std::invalid_argument("no extent");
  Extent extent(json[0].get<std::string>());
  extent.plus = static_cast<int>(Fields::within(json[1], 0, largest_int));
  if (json.size() == 3) extent.times = static_cast<int>(Fields::within(json[2], 2, largest_int));
  return extent;
}

Json to_json(const TensorArgument& t) {
  Json dims = Json::array();
  for (const Extent& extent : t.dims) dims.push_back(to_json(extent));
  Json json{{"name", t.name},           {"dtype", name_of(t.dtype)},
            {"output", t.output},       {"dims", std::move(dims)},
            {"alignment", t.alignment}, {"stride_limits", t.stride_limits},
            {"gathered", t.gathered},   {"has_last_stride", t.has_last_stride}};
  // JSON has no NaN, which probes may be filled with.
  if (t.unwritten) json["unwritten_bits"] = std::bit_cast<std::uint64_t>(*t.unwritten);
  return json;
}

TensorArgument read_tensor(const Json& json) {
  TensorArgument t;
  Fields fields(json);
  fields.text("name", t.name);
  fields.dtype("dtype", t.dtype);
  fields.flag("output", t.output);
  fields.list("dims", t.dims, read_extent);
  fields.whole("alignment", t.alignment, 1, 4096);
  fields.list("stride_limits", t.stride_limits,
              [](const Json& limit) { return Fields::within(limit, 0, any); });
  fields.flag("gathered", t.gathered);
  fields.flag("has_last_stride", t.has_last_stride);
  if (json.contains("unwritten_bits"))
    t.unwritten = std::bit_cast<double>(fields.at("unwritten_bits").get<std::uint64_t>());
  fields.finish();
  return t;
}

Json to_json(const ScalarArgument& s) {
  return {{"name", s.name},
          {"dtype", name_of(s.dtype)},
          {"positive", s.positive},
          {"is_length", s.is_length}};
}

ScalarArgument read_scalar(const Json& json) {
  ScalarArgument s;
  Fields fields(json);
  fields.text("name", s.name);
  fields.dtype("dtype", s.dtype);
  fields.flag("positive", s.positive);
  fields.flag("is_length", s.is_length);
  fields.finish();
  // What a launch packs has 32 bits.
  if (s.dtype != DType::f32 && s.dtype != DType::i32) throw std::invalid_argument("no scalar");
  return s;
}

Json to_json(const TensorMapArgument& map) {
  return {
      {"tensor", map.tensor}, {"row_dim", map.row_dim}, {"rows", map.rows}, {"width", map.width}};
}

TensorMapArgument read_map(const Json& json) {
  TensorMapArgument map;
  Fields fields(json);
  fields.whole("tensor", map.tensor, 0, largest_int);
  fields.whole("row_dim", map.row_dim, 0, largest_int);
  fields.whole("rows", map.rows, 0, largest_int);
  fields.whole("width", map.width, 0, largest_int);
  fields.finish();
  return map;
}

constexpr std::pair<ParameterField::Kind, const char*> kinds[] = {
    {ParameterField::Kind::pointer, "pointer"},
    {ParameterField::Kind::stride, "stride"},
    {ParameterField::Kind::extent, "extent"},
    {ParameterField::Kind::scalar, "scalar"},
    {ParameterField::Kind::tensor_map, "tensor_map"},
    {ParameterField::Kind::tile_counter, "tile_counter"}};

Json to_json(const ParameterField& field) {
  const char* kind = "";
  for (const auto& [known, name] : kinds)
    if (known == field.kind) kind = name;
  return {{"kind", kind}, {"index", field.index}, {"dim", field.dim}, {"offset", field.offset}};
}

ParameterField read_field(const Json& json) {
  ParameterField field;
  Fields fields(json);
  const auto kind = fields.at("kind").get<std::string>();
  bool known = false;
  for (const auto& [value, name] : kinds) {
    if (kind != name) continue;
    field.kind = value;
    known = true;
  }
  if (!known) throw std::invalid_argument("no kind of parameter");
  fields.whole("index", field.index, 0, 127);
  fields.whole("dim", field.dim, 0, 127);
  fields.whole("offset", field.offset, 0, 4096);
  fields.finish();
  return field;
}

Json to_json(const GridAxis& axis) {
  return {{"name", axis.name},
          {"extent", to_json(axis.extent)},
          {"tile", axis.tile},
          {"scalar", axis.scalar}};
}

GridAxis read_axis(const Json& json) {
  GridAxis axis;
  Fields fields(json);
  fields.text("name", axis.name);
  axis.extent = read_extent(fields.at("extent"));
  fields.whole("tile", axis.tile, 1, largest_int);
  fields.whole("scalar", axis.scalar, -1, 127);
  fields.finish();
  return axis;
}

template <class Element>
Json list_of(const std::vector<Element>& elements) {
  Json list = Json::array();
  for (const Element& element : elements) list.push_back(to_json(element));
  return list;
}

KernelSource read_source(const Json& json) {
  KernelSource source;
  Fields fields(json);
  fields.list("tensors", source.tensors, read_tensor);
  fields.list("scalars", source.scalars, read_scalar);
  fields.list("extents", source.extents, [](const Json& name) { return name.get<std::string>(); });
  fields.list("tensor_maps", source.tensor_maps, read_map);
  fields.list("parameters", source.parameters, read_field);
  fields.whole("parameter_bytes", source.parameter_bytes, 0, 4096);
  fields.list("grid", source.grid, read_axis);
  fields.whole("cluster", source.cluster, 1, 16);
  fields.flag("flat_grid", source.flat_grid);
  fields.flag("persistent", source.persistent);
  fields.flag("waits_for_kernels", source.waits_for_kernels);
  fields.flag("keeps_operands", source.keeps_operands);
  fields.whole("threads", source.threads, 1, 1024);
  fields.whole("shared_bytes", source.shared_bytes, 0, 1 << 20);
  fields.whole("min_blocks", source.min_blocks, 1, 64);
  fields.whole("split_registers", source.split_registers, 0, 1 << 16);
  fields.finish();
  for (const GridAxis& axis : source.grid) {
    if (axis.scalar >= static_cast<int>(source.scalars.size()) ||
        (axis.scalar >= 0 && source.scalars[axis.scalar].dtype != DType::i32))
      throw std::invalid_argument("a grid sized by no length");
  }
  return source;
}

}  // namespace

std::string write_launch_data(const KernelSource& source) {
  return Json{{"tensors", list_of(source.tensors)},
              {"scalars", list_of(source.scalars)},
              {"extents", source.extents},
              {"tensor_maps", list_of(source.tensor_maps)},
              {"parameters", list_of(source.parameters)},
              {"parameter_bytes", source.parameter_bytes},
              {"grid", list_of(source.grid)},
              {"cluster", source.cluster},
              {"flat_grid", source.flat_grid},
              {"persistent", source.persistent},
              {"waits_for_kernels", source.waits_for_kernels},
              {"keeps_operands", source.keeps_operands},
              {"threads", source.threads},
              {"shared_bytes", source.shared_bytes},
              {"min_blocks", source.min_blocks},
              {"split_registers", source.split_registers}}
      .dump();
}

std::optional<KernelSource> read_launch_data(std::string_view text) {
  if (too_deep_for_json(text)) return std::nullopt;
  try {
    return read_source(Json::parse(text));
  } catch (const Json::exception&) {
    return std::nullopt;
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
}

}  // namespace flashcore
