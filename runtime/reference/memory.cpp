#include "runtime/reference/memory.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/reference/formats.h"

namespace flashcore {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// What the array holds, to which stores add.
void take_contents(ReferenceOutput& output, const TensorView& view) {
  if (!view.data) return;
  for (std::size_t i = 0; i < output.values.size(); ++i) {
    auto rest = static_cast<std::int64_t>(i), at = std::int64_t{0};
    for (std::size_t dim = output.shape.size(); dim-- > 0;) {
      at += rest % output.shape[dim] * view.strides[dim];
      rest /= output.shape[dim];
    }
    output.values[i] = read_element(view.dtype, view.data, at);
  }
}

ReferenceOutput unwritten(const ir::Tensor& tensor, const TensorView& view) {
  ReferenceOutput output{tensor.name, {view.shape.begin(), view.shape.begin() + view.rank}, {}, {}};
  std::int64_t elements = 1;
  for (const std::int64_t length : output.shape) elements *= length;
  output.values.assign(static_cast<std::size_t>(elements), tensor.unwritten.value_or(nan));
  output.written.assign(output.values.size(), false);
  return output;
}

}  // namespace

using namespace ir;

/// A tile of a tensor: up to two sides, of which the part inside the tensor is touched.
struct Memory::Window {
  std::vector<AxisId> axes;
  /// Where each element along an axis lies; none for what is outside the tensor or the axis.
  std::vector<Side> sides;
  std::int64_t offset = 0;
  bool outside = false;  ///< a scalar index misses the tensor

  [[nodiscard]] std::int64_t tile(std::size_t side) const {
    return side < sides.size() ? static_cast<std::int64_t>(sides[side].size()) : 1;
  }

  /// visit(element of the tile, element of the tensor)
  template <class Visit>
  void for_each(Visit&& visit) const {
    if (outside) return;
    const Side one{0};
    const Side &outer = sides.empty() ? one : sides[0], &inner = sides.size() < 2 ? one : sides[1];
    for (std::size_t i = 0; i < outer.size(); ++i)
      for (std::size_t j = 0; j < inner.size(); ++j)
        if (outer[i] && inner[j])
          visit(static_cast<std::int64_t>(i * inner.size() + j), offset + *outer[i] + *inner[j]);
  }
};

Memory::Memory(const Function& f, const Binding& arrays, const std::vector<AxisState>& axes,
               const std::vector<TileValue>& values)
    : f_(f), arrays_(arrays), axes_(axes), values_(values) {
  for (const Buffer& buffer : f.buffers) slots_.emplace_back(buffer.stages);
  for (std::size_t i = 0; i < f.tensors.size(); ++i) {
    outputs_.push_back(f.tensors[i].output ? unwritten(f.tensors[i], arrays[TensorId(i)])
                                           : ReferenceOutput{});
    if (f.tensors[i].output && f.adds_to(TensorId(i)))
      take_contents(outputs_.back(), arrays[TensorId(i)]);
  }
}

std::int64_t Memory::integer(ValueId value) const {
  return static_cast<std::int64_t>(values_[value.index].scalar());
}

/// The side along an axis, of which the elements on the axis are touched.
Memory::Side& Memory::side_along(Window& window, AxisId id, const AxisState& axis) const {
  const auto found = std::ranges::find(window.axes, id);
  if (found != window.axes.end())
    return window.sides[static_cast<std::size_t>(found - window.axes.begin())];
  window.axes.push_back(id);
  Side& side = window.sides.emplace_back(static_cast<std::size_t>(axis.tile));
  const std::int64_t end = axis.length < 0 ? arrays_.length(f_[id].extent) : axis.length;
  for (std::int64_t i = std::max<std::int64_t>(0, -axis.begin());
       i < axis.tile && axis.begin() + i < end; ++i)
    side[static_cast<std::size_t>(i)] = 0;
  return side;
}

Memory::Window Memory::window(const Op& op, const std::vector<std::int64_t>& strides,
                              std::int64_t tile, std::int64_t first_row) const {
  Window w;
  std::size_t yielded = 0;
  for (std::size_t i = 0; i < op.coordinates.size(); ++i) {
    const Coordinate& c = op.coordinates[i];
    const std::int64_t length = arrays_[op.tensor].shape[i];
    const AxisId along = axis_of(f_, c);
    const ValueId positions = c.computed ? f_[f_[op.body].ops.back()].operands[yielded++] : c.value;
    if (!along) {
      const std::int64_t at = integer(positions);
      w.outside = w.outside || at < 0 || at >= length;
      w.offset += at * strides[i];
      continue;
    }
    AxisState axis = axes_[f_.origin(along).index];
    if (tile >= 0 && f_[along].kind == AxisKind::tiles) axis.current = tile;
    Side& side = side_along(w, along, axis);
    if (!positions) w.offset += axis.first * strides[i];
    const bool follow = !positions || f_[positions].type.is_scalar();  // what the first row's is
    const std::int64_t skipped = along == w.axes.front() ? first_row : 0;
    const std::int64_t first = positions && follow ? integer(positions) - skipped : axis.begin();
    for (std::size_t k = 0; k < side.size(); ++k) {
      const std::int64_t at = follow ? first + static_cast<std::int64_t>(k)
                                     : static_cast<std::int64_t>(values_[positions.index].data[k]);
      const bool inside = !positions || (at >= 0 && at < length);
      side[k] = side[k] && inside ? std::optional(*side[k] + at * strides[i]) : std::nullopt;
    }
  }
  return w;
}

TileValue Memory::load(const Op& op, std::int64_t tile, std::int64_t first_row) const {
  const TensorView& view = arrays_[op.tensor];
  const Window w = window(op, {view.strides.begin(), view.strides.end()}, tile, first_row);
  TileValue value(w.tile(0), w.tile(1));
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
    double& there = output.values[at];
    there = value.data[element] + (op.accumulation == Accumulation::none ? 0 : there);
    output.written[static_cast<std::size_t>(at)] = true;
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
