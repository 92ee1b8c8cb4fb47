// A program: axes, tensors, scalar parameters, and SSA operations in structured blocks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dsl/dtype.h"
#include "dsl/extent.h"
#include "dsl/ir/ids.h"
#include "dsl/ir/layout.h"
#include "dsl/ir/op.h"

namespace flashcore::ir {

enum class AxisKind : std::uint8_t {
  parallel,        ///< one position a thread block
  parallel_tiles,  ///< one tile a thread block
  tiles,           ///< one tile in each iteration of a loop
  whole,           ///< a constant length, always in one tile
};

std::string_view name_of(AxisKind kind);

struct Axis {
  std::string name;
  AxisKind kind = AxisKind::whole;
  Extent extent;
  int tile = 0;  ///< elements of a tile, padding included; 0 until apply_schedule. parallel: how
                 ///< many positions a block goes through
  bool descending = false;  ///< parallel_tiles: block 0 gets the last tile
  /// parallel_tiles: the last tile ends where the axis ends, and the first may reach in front of it.
  /// Otherwise the first begins where the axis begins, and the last may reach beyond it.
  bool end_aligned = false;
  /// In each block the axis covers a segment of the dimension it indexes; an op `segment` says
  /// which.
  bool ragged = false;
  /// Of a ragged axis of parallel_tiles: the i32 parameter with the length of the longest segment,
  /// which determines the grid. Empty: as long as the dimension.
  std::string longest;
  /// The axis of tiles that this one is another name of: the same positions, and the same current
  /// tile in a loop over it. All its fields but the name are those of that axis.
  AxisId alias_of = {};

  /// The length of the axis, if it is the same in every block and launch.
  [[nodiscard]] std::optional<std::int64_t> fixed_length() const {
    return ragged || !extent.is_static() ? std::nullopt : std::optional(extent.value);
  }
  /// Whether a tile at the end of the axis, or at the beginning of an end_aligned one, may reach beyond it.
  [[nodiscard]] bool may_overrun() const { return !fixed_length() || *fixed_length() % tile != 0; }
};

struct Tensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<Extent> dims;  ///< the last one has unit stride, unless gathered without it
  bool output = false;
  /// A probe: an output that shows a value. This is the value of its elements that no store writes,
  /// because loops skip their tiles; place_probes derives it.
  std::optional<double> unwritten = {};
  bool gathered = false;     ///< read by `gather`: any strides, any dtype
  bool unit_stride = false;  ///< of a gathered one: 1 along the last dimension
  /// Beside it: rows begin at multiples of 16 bytes, so that tiles may be loaded.
  bool aligned_rows = false;
  [[nodiscard]] bool has_last_stride() const { return gathered && !unit_stride; }
};

/// A scalar that the caller passes; `positive` is a promise that a launch checks.
struct Parameter {
  std::string name;
  DType dtype = DType::f32;
  bool positive = false;
};

/// A tile of `dtype` over zero, one or two axes. Without axes it is a scalar, equal for the whole
/// block.
struct TileType {
  DType dtype = DType::f32;
  std::vector<AxisId> axes;

  [[nodiscard]] bool is_scalar() const { return axes.empty(); }
  [[nodiscard]] bool has(AxisId axis) const {
    for (AxisId a : axes)
      if (a == axis) return true;
    return false;
  }
  bool operator==(const TileType&) const = default;
};

struct Value {
  TileType type;
  std::string name;  ///< the author's, or empty
  Layout layout;
  int array = 0;        ///< in registers: which array it lies in; set by assign_registers
  bool pinned = false;  ///< the compiler computes it where it stands; set by pin_sums
  OpId definition;      ///< none for an argument of a block
};

struct Block {
  std::vector<ValueId> arguments;
  std::vector<OpId> ops;
};

/// Bytes after which the swizzle of 128-byte lines repeats. The copy engine and wgmma take tiles
/// that begin at a multiple of them.
constexpr int swizzle_period = 1024;
inline int whole_periods(int bytes) {
  return (bytes + swizzle_period - 1) / swizzle_period * swizzle_period;
}

/// Bytes of which the copy engine takes multiples as the place of a box without a swizzle.
inline int box_places(int bytes) { return (bytes + 127) / 128 * 128; }

/// `stages` tiles of [rows, columns] in shared memory. With a pitch, rows of that many elements
/// follow each other; without one, the tile lies in swizzled panels, as
/// codegen/prelude/shared_tile.cuh says. With a transport it is a channel.
struct Buffer {
  std::string name;
  DType dtype = DType::bf16;
  int rows = 0, columns = 0, stages = 1;
  int pitch = 0;   ///< elements from row to row; 0: swizzled
  int stride = 0;  ///< bytes from slot to slot; 0: slots follow each other
  /// Bytes; set by plan_shared_memory. Until then the offset of a vector counts from its tile.
  int offset = 0;
  /// Of a channel whose slots are filled and released: where the mbarriers lie that say of each
  /// slot that it is full, and that it is empty (0: the producer knows), and how many arrive there
  /// before it is. Set by plan_shared_memory.
  int full = 0, empty = 0, releases = 0;
  BufferId over;  ///< has the address of this buffer, whose tiles are not needed any more
  /// Of a channel of vectors: each comes with a tile of this channel, behind it in its slot. What says
  /// that the tile's slot is full, or empty, says so of both.
  BufferId beside;
  /// Of a channel, whose slots are filled by `issue` and read behind `wait`.
  Transport transport = Transport::none;
  /// Of a channel: in how many blocks of a cluster a slot is filled with the same. Of a tile each of
  /// them writes its part of the rows, in all; scalars are from the first.
  int blocks = 1;

  /// One row without a swizzle, which the copy engine brings.
  [[nodiscard]] bool is_vector() const { return rows == 1 && transport == Transport::tma; }
  /// A slot hands a scalar from one role to another, rather than a tile.
  [[nodiscard]] bool holds_scalars() const { return transport == Transport::store; }
  [[nodiscard]] int slot_bytes() const { return rows * (pitch ? pitch : columns) * size_of(dtype); }
  [[nodiscard]] int slot_stride() const { return stride ? stride : slot_bytes(); }
  [[nodiscard]] int bytes() const { return stages * slot_stride(); }
};

class Function {
 public:
  std::string name;
  std::vector<Axis> axes;
  std::vector<Tensor> tensors;
  std::vector<Parameter> parameters;
  std::vector<Buffer> buffers;
  std::vector<Value> values;
  std::vector<Op> ops;
  std::vector<Block> blocks;
  BlockId body;
  /// The parallel axes in the order in which blocks are numbered, that along which neighbours lie
  /// first; set by schedule_tiles.
  std::vector<AxisId> grid;
  bool flat_grid = false;  ///< blocks have one number for all axes

  Axis& operator[](AxisId id) { return axes[id.index]; }
  const Axis& operator[](AxisId id) const { return axes[id.index]; }
  Tensor& operator[](TensorId id) { return tensors[id.index]; }
  const Tensor& operator[](TensorId id) const { return tensors[id.index]; }
  Parameter& operator[](ParameterId id) { return parameters[id.index]; }
  const Parameter& operator[](ParameterId id) const { return parameters[id.index]; }
  Buffer& operator[](BufferId id) { return buffers[id.index]; }
  const Buffer& operator[](BufferId id) const { return buffers[id.index]; }
  Value& operator[](ValueId id) { return values[id.index]; }
  const Value& operator[](ValueId id) const { return values[id.index]; }
  Op& operator[](OpId id) { return ops[id.index]; }
  const Op& operator[](OpId id) const { return ops[id.index]; }
  Block& operator[](BlockId id) { return blocks[id.index]; }
  const Block& operator[](BlockId id) const { return blocks[id.index]; }

  AxisId add_axis(Axis axis);
  TensorId add_tensor(Tensor tensor);
  ParameterId add_parameter(Parameter parameter);
  BufferId add_buffer(Buffer buffer);
  BlockId add_block();
  ValueId add_value(TileType type, std::string name = {});
  ValueId add_argument(BlockId block, TileType type, std::string name = {});

  /// Adds an op to the arena (not to a block) with one new result a type.
  OpId add_op(Op op, const std::vector<TileType>& result_types);

  /// The op that makes a value, or null for an argument.
  [[nodiscard]] const Op* definition(ValueId value) const;
  [[nodiscard]] Op* definition(ValueId value);

  /// Whether a store adds to what an output holds already, or notes there whose turn it is to.
  [[nodiscard]] bool adds_to(TensorId tensor) const;

  [[nodiscard]] AxisId find_axis(std::string_view name) const;
  /// The axis whose positions these are: what an alias is another name of, else the axis itself.
  [[nodiscard]] AxisId origin(AxisId axis) const {
    return axis && (*this)[axis].alias_of ? (*this)[axis].alias_of : axis;
  }
};

/// The axis of the tile that a coordinate runs along; none for a scalar.
inline AxisId axis_of(const Function& f, const Coordinate& c) {
  if (c.axis || !c.value || f[c.value].type.axes.empty()) return c.axis;
  return f[c.value].type.axes[0];
}

/// Whether the coordinate has a position of its own for each element along its axis.
inline bool is_computed(const Function& f, const Coordinate& c) {
  return c.computed || (c.value && !f[c.value].type.is_scalar());
}

/// Whether some coordinate of a load, a store or an issue is computed.
inline bool has_computed_positions(const Function& f, const Op& op) {
  for (const Coordinate& c : op.coordinates)
    if (is_computed(f, c)) return true;
  return false;
}

/// Calls `visit(ValueId&)` for everything the op reads: operands and coordinates.
template <class OpType, class Visit>
void for_each_use(OpType& op, Visit&& visit) {
  for (auto& operand : op.operands) visit(operand);
  for (auto& coordinate : op.coordinates)
    if (coordinate.value) visit(coordinate.value);
}

/// Calls `visit(Op&, BlockId)` for every op of a block and, after each op, those of its regions.
template <class FunctionType, class Visit>
void for_each_op(FunctionType& f, BlockId block, Visit&& visit) {
  for (std::size_t i = 0; i < f[block].ops.size(); ++i) {
    const OpId id = f[block].ops[i];
    visit(f[id], block);
    if (f[id].body) for_each_op(f, f[id].body, visit);
    if (f[id].otherwise) for_each_op(f, f[id].otherwise, visit);
  }
}

}  // namespace flashcore::ir
