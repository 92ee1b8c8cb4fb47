#include "dsl/ir/declaration_reader.h"

namespace flashcore::ir {

void DeclarationReader::declaration() {
  if (in_.take("axis")) {
    declare_axis();
  } else if (in_.take("parameter")) {
    Parameter parameter{declared("parameter", names_), dtype()};
    parameter.positive = in_.take("positive");
    f_.add_parameter(std::move(parameter));
  } else if (in_.at("input") || in_.at("output")) {
    declare_tensor(in_.next().text == "output");
  } else if (in_.take("buffer")) {
    declare_buffer(false);
  } else if (in_.take("channel")) {
    declare_buffer(true);
  } else if (in_.take("grid")) {
    do f_.grid.push_back(axis());
    while (in_.take(","));
    f_.flat_grid = in_.take("flat");
  } else {
    in_.expected("a declaration or \"{\"",
                 "declare with axis, grid, parameter, input, output, buffer or channel");
  }
  in_.line_end();
}

void DeclarationReader::declare_tensor(bool output) {
  Tensor tensor{declared("tensor", names_), dtype(), {}, output};
  in_.expect("[");
  while (!in_.at("]")) {
    if (!tensor.dims.empty()) in_.expect(",");
    tensor.dims.push_back(extent());
  }
  in_.expect("]");
  tensor.gathered = in_.take("gathered");
  tensor.unit_stride = tensor.gathered && in_.take("unit_stride");
  tensor.aligned_rows = tensor.unit_stride && in_.take("aligned_rows");
  if (output && in_.take("unwritten")) tensor.unwritten = in_.number("a number");
  f_.add_tensor(std::move(tensor));
}

void DeclarationReader::declare_axis() {
  Axis axis;
  axis.name = declared("axis", names_);
  if (in_.take("alias")) {
    const AxisId other = this->axis();
    Axis alias = f_[other];
    alias.name = axis.name;
    alias.alias_of = f_.origin(other);
    f_.add_axis(std::move(alias));
    return;
  }
  if (in_.take("parallel"))
    axis.kind = AxisKind::parallel;
  else if (in_.take("parallel_tiles"))
    axis.kind = AxisKind::parallel_tiles;
  else if (in_.take("tiles"))
    axis.kind = AxisKind::tiles;
  else if (in_.take("whole"))
    axis.kind = AxisKind::whole;
  else
    in_.expected("parallel, parallel_tiles, tiles, whole or alias");
  axis.extent = extent();
  axis.ragged = in_.take("ragged");
  if (in_.take("longest")) axis.longest = in_.word("the name of a parameter").text;
  if (in_.take("tile")) axis.tile = integer("the elements of a tile");
  axis.descending = in_.take("descending");
  axis.end_aligned = in_.take("end_aligned");
  f_.add_axis(std::move(axis));
}

void DeclarationReader::declare_buffer(bool channel) {
  Buffer buffer{declared(channel ? "channel" : "buffer", buffers_), dtype()};
  in_.expect("[");
  buffer.rows = integer("the rows of the buffer");
  in_.expect(",");
  buffer.columns = integer("the columns of the buffer");
  in_.expect("]");
  in_.expect("stages");
  buffer.stages = integer("the number of stages");
  if (channel) {
    in_.expect("by");
    buffer.transport = transport();
    if (in_.take("among")) buffer.blocks = integer("the blocks that fill a slot together");
  }
  if (in_.take("pitch")) buffer.pitch = integer("the elements from row to row");
  if (in_.take("stride")) buffer.stride = integer("the bytes from slot to slot");
  if (in_.take("over")) buffer.over = this->buffer();
  if (in_.take("beside")) buffer.beside = this->buffer();
  if (in_.take("at")) buffer.offset = integer("an offset in bytes");
  if (in_.take("full")) buffer.full = integer("an offset in bytes");
  if (in_.take("empty")) {
    buffer.empty = integer("an offset in bytes");
    in_.expect("by");
    buffer.releases = integer("how many release a slot");
  }
  f_.add_buffer(std::move(buffer));
}

Transport DeclarationReader::transport() {
  for (int i = 1; i <= static_cast<int>(Transport::warps); ++i)
    if (const auto one = static_cast<Transport>(i); in_.take(name_of(one))) return one;
  in_.expected("a transport: vector, cp_async, tma, store or warps");
}

std::string DeclarationReader::declared(std::string_view what, Names& taken) {
  const Token name = in_.word(fmt::format("the name of the {}", what));
  if (!taken.emplace(name.text).second)
    in_.refuse(name, fmt::format("a second declaration of {}", name.text),
               "axes, arguments and buffers are found by name; found this one again");
  in_.expect(":");
  return std::string(name.text);
}

Extent DeclarationReader::extent() {
  if (in_.at(Token::Kind::word)) {
    Extent extent(std::string(in_.next().text));
    if (in_.take("*")) extent.times = integer("a number to multiply by");
    if (in_.take("+")) extent.plus = integer("a number to add");
    return extent;
  }
  return Extent(in_.integer("an extent: a number or a name"));
}

DType DeclarationReader::dtype() {
  // Only the short names: the text of a program has one spelling.
  if (in_.at(Token::Kind::word))
    for (int i = 0; i <= static_cast<int>(DType::i1); ++i)
      if (const auto type = static_cast<DType>(i); in_.take(name_of(type))) return type;
  in_.expected("a dtype: f16, bf16, f32, i32 or i1",
               "a gathered input may also be f64, i64, i16, i8 or u8");
}

TileType DeclarationReader::type() {
  TileType type{dtype(), {}};
  if (!in_.take("[")) return type;
  do type.axes.push_back(axis());
  while (in_.take(","));
  in_.expect("]");
  return type;
}

TypedLayout DeclarationReader::typed() {
  TypedLayout result{.type = type()};
  if (in_.take("@")) result.layout = value_layout(result.type);
  if (in_.take("in")) result.array = integer("the number of an array");
  result.pinned = in_.take("pinned");
  return result;
}

Layout DeclarationReader::value_layout(const TileType& type) {
  Layout read{Space::registers, {}};
  if (!in_.followed_by('(')) {
    if (in_.take("shared")) return {Space::shared, {}};
    if (in_.take("registers")) return read;
    if (in_.take("operand"))
      read.space = Space::operand;
    else if (in_.take("opaque"))
      read.space = Space::opaque;
    else
      in_.expected("a layout: shared, registers, operand, opaque or axis layouts");
    if (!in_.at(Token::Kind::word)) return read;
  }
  for (const AxisId next : type.axes) {
    const Token name = in_.peek();
    if (axis() != next)
      in_.refuse(name, fmt::format("expected the layout of axis {}", f_[next].name),
                 fmt::format("found \"{}\"", name.text), "list the axes in the order of the type");
    read.axes.push_back(layout());
  }
  return read;
}

AxisLayout DeclarationReader::layout() {
  AxisLayout layout;
  in_.expect("(");
  while (!in_.take(")")) {
    const int count = integer("a factor such as 4w, 2f, 2s*8 or 8l/4, or \")\"");
    int ignored = 1, *divisor = &ignored, *stride = &ignored;
    if (in_.take("w"))
      layout.warps = count, divisor = &layout.warp_divisor;
    else if (in_.take("f"))
      layout.fragments = count;
    else if (in_.take("s"))
      layout.slots = count, stride = &layout.slot_stride;
    else if (in_.take("l"))
      layout.lanes = count, divisor = &layout.lane_divisor, stride = &layout.lane_stride;
    else
      in_.expected("w (warps), f (fragments), s (slots) or l (lanes)");
    if (divisor != &ignored && in_.take("/")) *divisor = integer("a divisor");
    if (stride != &ignored && in_.take("*")) *stride = integer("a stride");
  }
  return layout;
}

}  // namespace flashcore::ir
