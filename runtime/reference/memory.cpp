#include "runtime/reference/memory.h"

#include <limits>
#include <utility>

#include "runtime/reference/formats.h"

namespace flashcore {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

ReferenceOutput unwritten(const ir::Tensor& tensor, const TensorView& view) {
  ReferenceOutput output{tensor.name, {view.shape.begin(), view.shape.begin() + view.rank}, {}};
  std::int64_t elements = 1;
  for (const std::int64_t length : output.shape) elements *= length;
  output.values.assign(static_cast<std::size_t>(elements), tensor.unwritten.value_or(nan));
  return output;
}

}  // namespace

using namespace ir;

/// A tile of a tensor: up to two strided sides, of which the part inside the tensor is touched.
struct Memory::Window {
  struct Side {
    std::int64_t begin = 0, tile = 1, length = 1, stride = 0;
  };
  Side outer, inner;
  std::int64_t offset = 0;
  bool outside = false;  ///< a scalar index misses the tensor

  /// visit(element of the tile, element of the tensor)
  template <class Visit>
  void for_each(Visit&& visit) const {
    if (outside) return;
    for (std::int64_t i = 0; i < outer.tile && outer.begin + i < outer.length; ++i)
      for (std::int64_t j = 0; j < inner.tile && inner.begin + j < inner.length; ++j)
        visit(i * inner.tile + j,
              offset + (outer.begin + i) * outer.stride + (inner.begin + j) * inner.stride);
  }
};

Memory::Memory(const Function& f, const Binding& arrays, const std::vector<AxisState>& axes,
               const std::vector<TileValue>& values)
    : f_(f), arrays_(arrays), axes_(axes), values_(values) {
  for (const Buffer& buffer : f.buffers) slots_.emplace_back(buffer.stages);
  for (std::size_t i = 0; i < f.tensors.size(); ++i)
    outputs_.push_back(f.tensors[i].output ? unwritten(f.tensors[i], arrays[TensorId(i)])
                                           : ReferenceOutput{});
}

std::int64_t Memory::integer(ValueId value) const {
  return static_cast<std::int64_t>(values_[value.index].scalar());
}

Memory::Window Memory::window(const Op& op, const std::vector<std::int64_t>& strides,
                              std::int64_t tile) const {
  Window w;
  int sides = 0;
  for (std::size_t i = 0; i < op.coordinates.size(); ++i) {
    const Coordinate& c = op.coordinates[i];
    const std::int64_t length = arrays_[op.tensor].shape[i];
    if (c.axis) {
      AxisState axis = axes_[f_.origin(c.axis).index];
      if (tile >= 0 && f_[c.axis].kind == AxisKind::tiles) axis.current = tile;
      const std::int64_t end = axis.length < 0 ? length : axis.length;
      w.offset += axis.first * strides[i];
      (sides++ == 0 ? w.outer : w.inner) = {axis.begin(), axis.tile, end, strides[i]};
    } else {
      const std::int64_t at = integer(c.value);
      w.outside = w.outside || at < 0 || at >= length;
      w.offset += at * strides[i];
    }
  }
  return w;
}

TileValue Memory::load(const Op& op, std::int64_t tile) const {
  const TensorView& view = arrays_[op.tensor];
  const Window w = window(op, {view.strides.begin(), view.strides.end()}, tile);
  TileValue value(w.outer.tile, w.inner.tile);
  w.for_each([&](std::int64_t element, std::int64_t at) {
    value.data[element] = read_element(view.dtype, view.data, at);
  });
  return value;
}

void Memory::store(const Op& op) {
  ReferenceOutput& output = outputs_[op.tensor.index];
  std::vector<std::int64_t> strides(output.shape.size(), 1);
  for (std::size_t i = strides.size(); i-- > 1;) strides[i - 1] = strides[i] * output.shape[i];
  const TileValue& value = values_[op.operands[0].index];
  window(op, strides, -1).for_each([&](std::int64_t element, std::int64_t at) {
    output.values[at] = value.data[element];
  });
}

void Memory::copy(const Op& op) {
  TileValue& to = slot(op, 1);
  to = load(op, op.operands.empty() ? -1 : integer(op.operands[0]));
  // Nobody may read a tile that does not exist.
  if (op.operands.size() == 3 && integer(op.operands[2]) == 0) to.data.assign(to.data.size(), nan);
}

const TileValue& Memory::read_slot(const Op& op) {
  TileValue& tile = slot(op, 0);
  const Buffer& buffer = f_[op.buffer];
  if (tile.data.empty())
    tile = TileValue(buffer.rows, buffer.columns, nan);  // nothing was written yet
  return tile;
}

TileValue& Memory::slot(const Op& op, std::size_t operand) {
  const std::int64_t number = operand < op.operands.size() ? integer(op.operands[operand]) : 0;
  std::vector<TileValue>& slots = slots_[op.buffer.index];
  if (number < 0 || number >= static_cast<std::int64_t>(slots.size()))
    throw InternalError(f_[op.buffer].name + " has no slot " + std::to_string(number));
  return slots[static_cast<std::size_t>(number)];
}

std::vector<ReferenceOutput> Memory::take_outputs() {
  std::erase_if(outputs_, [](const ReferenceOutput& output) { return output.name.empty(); });
  return std::move(outputs_);
}

}  // namespace flashcore
