// The meaning of a program, operation by operation, on whole tiles of doubles: one walk over the blocks
// of the grid and their loops, whose state all operations share. What an operation computes of its
// operands alone is in arithmetic.h, what it does to tensors and slots in memory.h.
#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dsl/error.h"
#include "runtime/reference/arithmetic.h"
#include "runtime/reference/binding.h"
#include "runtime/reference/formats.h"
#include "runtime/reference/found_tiles.h"
#include "runtime/reference/gather.h"
#include "runtime/reference/memory.h"
#include "runtime/reference/reference.h"
#include "runtime/reference/segments.h"
#include "runtime/reference/sources.h"

namespace flashcore {
namespace {

using namespace ir;

class Evaluation {
 public:
  Evaluation(const Function& f, const Binding& arrays, ReferenceOptions options)
      : f_(f),
        arrays_(arrays),
        options_(options),
        axes_(f.axes.size()),
        values_(f.values.size()),
        memory_(f, arrays, axes_, values_),
        found_(f),
        queues_(f.buffers.size()) {
    for (std::size_t i = 0; i < f.axes.size(); ++i) axes_[i] = cut(f.axes[i]);
    for_each_op(f, f.body, [&](const Op& op, BlockId) {
      if (op.code == OpCode::cluster_rank) parts_ = op.blocks;
      numbered_ = numbered_ || (op.code == OpCode::tile_loop && !f.grid.empty() &&
                                op.scheduler != TileScheduler::consecutive);
    });
  }

  std::vector<ReferenceOutput> run() {
    if (numbered_)
      numbered_blocks();
    else
      blocks(0);
    return memory_.take_outputs();
  }

 private:
  // Axes and blocks. An alias is always where the axis is that it is another name of.

  AxisState& axis_state(AxisId axis) { return axes_[f_.origin(axis).index]; }

  AxisState cut(const Axis& axis) const {
    const std::int64_t length = longest(axis);
    if (axis.kind == AxisKind::parallel) {
      const std::int64_t positions = std::max(1, axis.tile);
      return {positions, (length + positions - 1) / positions};
    }
    if (options_.tiling == Tiling::whole || (axis.kind == AxisKind::whole && axis.tile == 0))
      return {length, length > 0 ? 1 : 0};
    if (axis.tile == 0)
      throw SpecError({fmt::format("axis {} has no tile size", axis.name),
                       "Tiling::scheduled evaluates tile by tile",
                       "apply a schedule first, or evaluate with Tiling::whole",
                       {}});
    AxisState state{axis.tile, (length + axis.tile - 1) / axis.tile};
    if (axis.end_aligned) state.lead = state.count * state.tile - length;
    return state;
  }

  /// What the blocks along the axis are counted by.
  [[nodiscard]] std::int64_t longest(const Axis& axis) const {
    for (std::size_t i = 0; i < f_.parameters.size(); ++i)
      if (f_.parameters[i].name == axis.longest)
        return static_cast<std::int64_t>(arrays_[ParameterId(i)]);
    return arrays_.length(axis.extent);
  }

  /// Cuts the block's part of a ragged axis to its dimension. Returns whether the block goes on: it has
  /// a tile in it, or may have others.
  bool place(const Op& op) {
    const Axis& axis = f_[op.axis];
    AxisState& state = axis_state(op.axis);
    const std::int64_t dimension = arrays_.length(axis.extent);
    const auto bound = [&](std::size_t i, std::int64_t low) {
      const auto value = static_cast<std::int64_t>(operand(op, i).scalar());
      return std::max(low, std::min(value, dimension));
    };
    state.first = bound(0, 0);
    state.length = bound(1, state.first) - state.first;
    if (axis.kind == AxisKind::parallel) return numbered_ || state.begin() < state.length;
    if (options_.tiling == Tiling::whole) state.tile = std::min(state.length, longest(axis));
    if (axis.kind == AxisKind::parallel_tiles) return numbered_ || state.begin() < state.length;
    state.count = state.tile > 0 ? (state.length + state.tile - 1) / state.tile : 0;
    return true;
  }

  /// One iteration a thread block: every position of the parallel axes.
  void blocks(std::size_t axis) {
    if (axis == f_.axes.size()) {
      cluster();
      return;
    }
    AxisState& state = axes_[axis];
    const AxisKind kind = f_.axes[axis].kind;
    if (kind == AxisKind::tiles || kind == AxisKind::whole) return blocks(axis + 1);
    const std::int64_t count = state.count;  // place() changes that of a ragged axis
    for (state.current = 0; state.current < count; ++state.current) blocks(axis + 1);
  }

  /// One iteration a tile of all blocks: the program computes its position from its number.
  void numbered_blocks() {
    tile_count_ = 1;
    for (const AxisId axis : f_.grid) tile_count_ *= axes_[axis.index].count;
    for (tile_ = 0; tile_ < tile_count_; ++tile_) cluster();
  }

  /// All blocks of a cluster. None has what the others give before these have come to their end, so
  /// that they run twice; what they give takes nothing from others.
  void cluster() {
    if (parts_ == 1) {
      block(f_.body);
      return;
    }
    given_.clear();
    for (const bool known : {false, true})
      for (part_ = 0; part_ < parts_; ++part_) {
        gives_ = !known;
        block(f_.body);
      }
  }

  /// A value as another block has it: its own, until that one's is known.
  TileValue cluster_read(const Op& op) {
    const std::pair key(op.operands[0], op.rank);
    if (gives_) given_[{op.operands[0], part_}] = operand(op, 0);
    const auto found = given_.find(key);
    return found == given_.end() ? operand(op, 0) : found->second;
  }

  // Operations.

  /// Returns what the region yields.
  std::vector<TileValue> block(BlockId id) {
    for (const OpId op : f_[id].ops) {
      if (f_[op].code == OpCode::yield) return take(f_[op].operands, 0);
      if (f_[op].code == OpCode::segment) {
        if (!place(f_[op])) return {};
        continue;
      }
      one(f_[op]);
    }
    return {};
  }

  void one(const Op& op) {
    if (is_view(op)) return;
    for (const ValueId v : op.operands) look(v);
    switch (kind_of(op.code)) {
      case OpKind::source:
        set(op, source(op));
        break;
      case OpKind::elementwise:
        set(op, elementwise_op(op));
        break;
      case OpKind::reduction: {
        const int along = type(op.operands[0]).axes[0] == op.axis ? 0 : 1;
        set(op, reduce(op.code, operand(op, 0), along, options_.precision));
        break;
      }
      case OpKind::tile:
        if (op.code == OpCode::divide)
          divide(op);
        else
          set(op, tile_op(op));
        break;
      case OpKind::memory:
        memory_op(op);
        break;
      case OpKind::sync:
        for (std::size_t i = 0; i < op.results.size(); ++i)  // waits for products
          values_[op.results[i].index] = operand(op, i);
        break;
      case OpKind::control:
        if (op.code == OpCode::scan_tiles)
          scan(op);
        else if (op.code == OpCode::role)
          block(op.body);
        else if (op.code == OpCode::if_)
          conditional(op);
        else if (op.code == OpCode::nest)
          give(op, block(op.body));
        else if (op.code == OpCode::tile_loop)
          tile_loop(op);
        else
          loop(op);
        break;
    }
  }

  /// A view of a slot is what the slot holds when it is used: passes may copy into it in between.
  bool is_view(const Op& op) const {
    if (op.code == OpCode::read_slot) return true;
    const Op* made_by = op.code == OpCode::transpose ? f_.definition(op.operands[0]) : nullptr;
    return made_by != nullptr && is_view(*made_by);
  }

  /// Brings a value up to date if it is a view.
  void look(ValueId value) {
    const Op* made_by = f_.definition(value);
    if (made_by == nullptr || !is_view(*made_by)) return;
    if (made_by->code == OpCode::read_slot) {
      set(*made_by, memory_.read_slot(*made_by));
    } else {
      look(made_by->operands[0]);
      set(*made_by, transpose(operand(*made_by, 0)));
    }
  }

  static TileValue as_tf32(TileValue tile) {
    for (double& element : tile.data) element = round_to_tf32(element);
    return tile;
  }

  void divide(const Op& op) {
    const std::int64_t a = integer(op, 0), b = integer(op, 1);
    values_[op.results[0].index] = whole(a / b);
    values_[op.results[1].index] = whole(a % b);
  }

  TileValue tile_op(const Op& op) {
    if (op.code == OpCode::transpose) return transpose(operand(op, 0));
    if (op.code == OpCode::cluster_read) return cluster_read(op);
    if (op.code == OpCode::all_lanes || op.code == OpCode::all_within) {
      const auto holds = [&](double x) {
        return op.code == OpCode::all_lanes ? x != 0 : x * x <= operand(op, 1).scalar();
      };
      return TileValue(1, 1, std::ranges::all_of(operand(op, 0).data, holds) ? 1.0 : 0.0);
    }
    if (op.code != OpCode::dot) return operand(op, 0);  // only the layout changes
    const TileValue* accumulator = op.operands.size() == 3 ? &operand(op, 2) : nullptr;
    if (op.rounding == OperandRounding::tf32 && options_.precision == Precision::storage) {
      const TileValue a = as_tf32(operand(op, 0)), b = as_tf32(operand(op, 1));
      return dot(a, b, accumulator, options_.precision);
    }
    return dot(operand(op, 0), operand(op, 1), accumulator, options_.precision);
  }

  void memory_op(const Op& op) {
    if (op.code == OpCode::load)
      set(op, memory_.load(op));
    else if (op.code == OpCode::store)
      memory_.store(op);
    else if (op.code == OpCode::issue)
      issue(op);
    else if (op.code == OpCode::wait || op.code == OpCode::beside)
      wait(op);
    else if (op.code == OpCode::enter)
      go_to(op);
    else if (op.code == OpCode::claim_tile)
      set(op, operand(op, 1));
    else if (op.code == OpCode::find_segment)
      find_tile(op);
    else if (op.code == OpCode::searchsorted)
      set(op, whole(searchsorted(arrays_[op.tensor], integer(op, 1), integer(op, 0))));
    else if (op.code == OpCode::tile_is_full)
      set(op, TileValue(1, 1, found_.at(op, integer(op, 0)).everywhere ? 1.0 : 0.0));
    else if (op.code == OpCode::next_tile)
      set(op, whole(found_.next(op, integer(op, 0), integer(op, 1))));
  }

  /// The slots of a channel of copies by threads have numbers, and those of the others an order.
  void issue(const Op& op) {
    switch (f_[op.buffer].transport) {
      case Transport::store:
        for (int reader = 0; reader < f_[op.buffer].blocks; ++reader)
          for (std::size_t i = 0; i < op.operands.size(); ++i)
            queues_[op.buffer.index].push_back(operand(op, i));
        break;
      case Transport::warps:
        queues_[op.buffer.index].push_back(operand(op, 0));
        break;
      case Transport::tma:
        queues_[op.buffer.index].push_back(loaded(op));
        break;
      default:
        compute_positions(op);
        memory_.copy(op);
    }
  }

  /// What the copy engine brings: a box, or several below each other.
  TileValue loaded(const Op& op) {
    if (op.body && !op.box_rows) block(op.body);
    if (!op.box_rows) return memory_.load(op);
    TileValue tile;
    for (int row = 0; row < f_[op.buffer].rows; row += op.box_rows) {
      values_[f_[op.body].arguments[0].index] = whole(row);
      block(op.body);
      const TileValue behind = memory_.load(op, -1, row);
      const auto place = static_cast<std::ptrdiff_t>(row * behind.inner);
      tile.data.resize(behind.data.size());
      std::copy(behind.data.begin() + place, behind.data.end(), tile.data.begin() + place);
      tile.outer = behind.outer, tile.inner = behind.inner;
    }
    return tile;
  }

  /// Of the tile that is copied, which need not be the current one.
  void compute_positions(const Op& op) {
    if (!op.body) return;
    const std::vector<AxisState> current = axes_;
    for (const Coordinate& c : op.coordinates)
      if (c.computed && f_[c.axis].kind == AxisKind::tiles && !op.operands.empty())
        axis_state(c.axis).current = integer(op, 0);
    block(op.body);
    axes_ = current;
  }

  /// The producer runs to its end before the consumers begin: a channel is a queue, however long.
  void wait(const Op& op) {
    if (!op.buffer) return;  // copies land at once
    std::deque<TileValue>& ring = queues_[op.buffer.index];
    for (ValueId result : op.results) {
      if (ring.empty())
        throw InternalError(
            fmt::format("channel {} is read more often than filled", f_[op.buffer].name));
      values_[result.index] = std::move(ring.front());
      ring.pop_front();
    }
  }

  void scan(const Op& op) {
    refuse_whole(op);
    AxisState& axis = axis_state(op.axis);
    std::vector<FoundTile> tiles(static_cast<std::size_t>(axis.count), {false, false});
    for (std::int64_t tile = integer(op, 0); tile < integer(op, 1); ++tile) {
      axis.current = tile;
      values_[f_[op.body].arguments[0].index] = whole(tile);
      const std::vector<TileValue> conditions = block(op.body);
      const auto holds = [](double x) { return x != 0; };
      tiles[static_cast<std::size_t>(tile)] = {std::ranges::any_of(conditions[0].data, holds),
                                               std::ranges::all_of(conditions[1].data, holds)};
    }
    found_.note(op.buffer, std::move(tiles));
  }

  [[nodiscard]] std::int64_t integer(const Op& op, std::size_t i) const {
    return static_cast<std::int64_t>(operand(op, i).scalar());
  }

  void refuse_whole(const Op& op) const {
    if (options_.tiling == Tiling::whole)
      throw SpecError({fmt::format("a {} over {} with bounds", name_of(op.code), f_[op.axis].name),
                       "bounds count scheduled tiles", "evaluate with Tiling::scheduled",
                       op.where});
  }

  TileValue source(const Op& op) {
    TileValue value = of_type(type(op.results[0]));
    fill_source(f_, op, arrays_, {op.axis ? axis_state(op.axis) : AxisState{}, part_},
                options_.precision, value);
    return value;
  }

  TileValue elementwise_op(const Op& op) {
    std::vector<TypedTile> operands;
    for (const ValueId v : op.operands) operands.push_back({&values_[v.index], &type(v)});
    TileValue value = of_type(type(op.results[0]));
    if (op.code == OpCode::gather) {
      gather(arrays_[op.tensor], operands, op.wraps, type(op.results[0]), options_.precision,
             value);
      return value;
    }
    elementwise(op.code, operands, type(op.results[0]), options_.precision, value);
    return value;
  }

  void conditional(const Op& op) {
    const BlockId region = operand(op, 0).scalar() != 0 ? op.body : op.otherwise;
    if (!region) return;
    const std::vector<AxisState> outside = axes_;
    std::vector<TileValue> yielded = block(region);
    axes_ = outside;
    give(op, std::move(yielded));
  }

  void give(const Op& op, std::vector<TileValue> yielded) {
    for (std::size_t i = 0; i < yielded.size(); ++i)
      values_[op.results[i].index] = std::move(yielded[i]);
  }

  /// The current tile, of those that all blocks divide; or all tiles of a block's own.
  void tile_loop(const Op& op) {
    const std::vector<AxisState> outside = axes_;
    const auto run = [&](std::int64_t tile) {
      values_[f_[op.body].arguments[0].index] = whole(tile);
      block(op.body);
    };
    if (op.scheduler != TileScheduler::consecutive) {
      tile_count_ = std::max(tile_count_, integer(op, 0));
      if (tile_ < integer(op, 0)) run(tile_);  // a number may stand for several blocks
    } else {
      for (std::int64_t tile = integer(op, 0); tile < integer(op, 1); ++tile) run(tile);
    }
    axes_ = outside;
  }

  void find_tile(const Op& op) {
    const auto [segment, tile, exists] =
        find_segment(arrays_[op.tensor], integer(op, 1), integer(op, 0), f_[op.axis].tile,
                     f_[op.axis].descending);
    values_[op.results[0].index] = whole(segment);
    values_[op.results[1].index] = whole(tile);
    values_[op.results[2].index] = TileValue(1, 1, exists ? 1.0 : 0.0);
  }

  void go_to(const Op& op) {
    AxisState& axis = axis_state(op.axis);
    if (f_[op.axis].kind == AxisKind::parallel) axis.tile = 1;
    axis.current = integer(op, 0);
  }

  void loop(const Op& op) {
    AxisState counted;
    AxisState& axis = op.axis ? axis_state(op.axis) : counted;
    const auto bounds = static_cast<std::size_t>(op.bounds);
    if (bounds && op.axis) refuse_whole(op);
    const std::int64_t begin = bounds ? integer(op, 0) : 0;
    const std::int64_t end = bounds ? integer(op, bounds - 1) : axis.count;
    const std::vector<ValueId>& arguments = f_[op.body].arguments;
    std::vector<TileValue> carried = take(op.operands, bounds);
    for (std::int64_t iteration = begin; iteration < end; ++iteration) {
      axis.current = op.descending ? end - 1 - (iteration - begin) : iteration;
      if (op.buffer && !found_.at(op, axis.current).visible) continue;
      values_[arguments[0].index] = whole(axis.current);
      for (std::size_t i = 0; i < carried.size(); ++i)
        values_[arguments[i + 1].index] = std::move(carried[i]);
      const std::int64_t tile = axis.current;
      carried = block(op.body);
      axis.current = tile;
    }
    give(op, std::move(carried));
  }

  // Values.

  [[nodiscard]] const TileType& type(ValueId value) const { return f_[value].type; }
  static TileValue whole(std::int64_t number) { return {1, 1, static_cast<double>(number)}; }
  void set(const Op& op, TileValue value) { values_[op.results[0].index] = std::move(value); }
  [[nodiscard]] const TileValue& operand(const Op& op, std::size_t i) const {
    return values_[op.operands[i].index];
  }

  TileValue of_type(const TileType& type) const {
    auto length = [&](std::size_t i) {
      return i < type.axes.size() ? axes_[f_.origin(type.axes[i]).index].tile : 1;
    };
    return {length(0), length(1)};
  }

  std::vector<TileValue> take(const std::vector<ValueId>& ids, std::size_t from) const {
    std::vector<TileValue> taken;
    for (std::size_t i = from; i < ids.size(); ++i) taken.push_back(values_[ids[i].index]);
    return taken;
  }

  const Function& f_;
  const Binding& arrays_;
  ReferenceOptions options_;
  std::vector<AxisState> axes_;
  std::vector<TileValue> values_;
  Memory memory_;
  FoundTiles found_;                           // by the block's scans
  std::vector<std::deque<TileValue>> queues_;  // by buffer: what the producer filled, not read yet
  bool numbered_ = false;                      // blocks find out from a number where they are
  std::int64_t tile_ = 0, tile_count_ = 0;     // the number, and how many there are
  int parts_ = 1, part_ = 0;                   // blocks of a cluster, and the one that runs
  bool gives_ = false;                         // it runs for what it gives the others
  std::map<std::pair<ValueId, int>, TileValue> given_;  // by part
};

}  // namespace

std::vector<ReferenceOutput> evaluate(const Function& f, std::span<const TensorView> tensors,
                                      std::span<const ScalarValue> scalars,
                                      ReferenceOptions options) {
  const Binding arrays(f, tensors, scalars);
  return Evaluation(f, arrays, options).run();
}

}  // namespace flashcore
