// Which tiles a block computes. The grid has a block for every tile, numbered along its parallel
// axes in an order. The roles of a block that computes several of these tiles have a loop around
// their regions:
//
//   tile_loop to %block_count serpentine {           as many blocks as run at once divide all tiles
//     tile %tile                                     among them: wave after wave, every other wave
//     %rest, %head = divide %tile, %heads            backwards, or each takes the next tile that no
//     enter %head along head                         other has taken (`dynamic`)
//     ...
//   }
//   tile_loop from %first to %end consecutive {      a block keeps its tile of rows, and computes
//     tile %head                                     some positions of the last parallel axis,
//     enter %head along head                         attention's heads, one after the other
//     ...
//   }
//
// With the dynamic scheduler the producer takes a tile's number from the counter once it has issued
// all loads of the previous tile, and hands it to the consumers in a ring of two slots: one number
// is there before they need it, and one more while they compute that tile.
#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "codegen/analysis/position_axis.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"
#include "dsl/ir/builder.h"

namespace flashcore {
namespace {

using namespace ir;

const TileType scalar{DType::i32, {}};

/// As many positions as have their looped tiles in L2 together are a group: all of them go through
/// their tiles, the same tile of each side by side, before the positions of the next group do.
struct Group {
  ValueId positions, size, tiles;  ///< of all groups; of one
};

class TileScheduling {
 public:
  TileScheduling(Function& f, const PassContext& context)
      : f_(f), schedule_(context.schedule), target_(context.target) {
    for (std::size_t i = 0; i < f.axes.size(); ++i) {
      if (f.axes[i].kind == AxisKind::parallel_tiles && !f.axes[i].alias_of)
        tiled_.push_back(AxisId(i));
      if (f.axes[i].kind == AxisKind::parallel) positions_.insert(positions_.begin(), AxisId(i));
      if (const int bytes = looped_bytes(f, AxisId(i))) looped_.emplace_back(AxisId(i), bytes);
    }
  }

  void run() {
    number_blocks();
    if (schedule_.positions_per_block > 1) walk_positions(last_position_axis(f_));
    if (schedule_.persistent) share_out_tiles();
  }

 private:
  void number_blocks() {
    const bool tiles_first = schedule_.grid_order == GridOrder::tiles_first;
    f_.grid = tiles_first ? tiled_ : positions_;
    const std::vector<AxisId>& rest = tiles_first ? positions_ : tiled_;
    f_.grid.insert(f_.grid.end(), rest.begin(), rest.end());
    f_.flat_grid = schedule_.flat_grid;
  }

  void walk_positions(AxisId axis) {
    f_[axis].tile = schedule_.positions_per_block;
    std::vector<ValueId> bounds;  // for all roles
    insert_before(f_, f_.body, 0, {}, [&](Builder& b) {
      const ValueId begin = b.tile_begin(axis);
      const ValueId behind = uniform(b.add(begin, number(b, f_[axis].tile)));
      const ValueId end = binary(b, OpCode::min, behind, b.extent(axis));
      bounds = {begin, named(end, f_[axis].name + "_end")};
    });
    for (OpId role : roles_of(f_)) {
      Builder around(f_, work_of(f_, f_[role]));
      const std::vector<OpId> work = take_work(around.block());
      const BlockId region = open_loop(around, TileScheduler::consecutive, bounds, f_[axis].name);
      Builder inside(f_, region);
      go_to(inside, axis, f_[region].arguments[0]);
      f_[region].ops.insert(f_[region].ops.end(), work.begin(), work.end());
      inside.append({.code = OpCode::yield}, {});
      end_region(around, role);
    }
  }

  void share_out_tiles() {
    const bool grouped = schedule_.grid_order == GridOrder::grouped;
    constexpr int scheduler_slots = 2;
    BufferId numbers;
    if (is_dynamic()) {
      Buffer channel{"tile_numbers", DType::i32, 1, 1, scheduler_slots};
      channel.transport = Transport::store;
      numbers = f_.add_buffer(std::move(channel));
    }
    for (OpId role : roles_of(f_)) {
      const bool fills = holds(f_, f_[role].body, OpCode::issue);
      Builder around(f_, work_of(f_, f_[role]));
      const std::vector<OpId> work = take_work(around.block());
      const ValueId count = named(count_of_all(around, f_.grid), "block_count");
      const Group group = grouped ? plan_group(around) : Group{};
      const BlockId region =
          open_loop(around, is_dynamic() ? TileScheduler::dynamic : TileScheduler::serpentine,
                    {count}, "tile");
      Builder inside(f_, region);
      const ValueId tile = f_[region].arguments[0];
      if (grouped)
        go_to_tile_of_group(inside, tile, group);
      else
        go_to_each(inside, tile, f_.grid);
      f_[region].ops.insert(f_[region].ops.end(), work.begin(), work.end());
      std::vector<ValueId> next;
      if (is_dynamic()) next = {next_tile(inside, fills, tile, count, numbers)};
      inside.append({.code = OpCode::yield, .operands = next}, {});
      end_region(around, role);
    }
  }

  [[nodiscard]] bool is_dynamic() const {
    return schedule_.tile_scheduler == PersistentScheduler::dynamic;
  }

  /// The ops of a role's work, which goes into a loop, without the yield of a region around them.
  std::vector<OpId> take_work(BlockId block) {
    std::vector<OpId> work = std::exchange(f_[block].ops, {});
    if (!work.empty() && f_[work.back()].code == OpCode::yield) work.pop_back();
    return work;
  }
  void end_region(Builder& around, OpId role) const {
    if (around.block() != f_[role].body) around.append({.code = OpCode::yield}, {});
  }

  /// Returns the region, which takes the number of a tile and is empty.
  BlockId open_loop(Builder& b, TileScheduler scheduler, const std::vector<ValueId>& bounds,
                    const std::string& name) {
    const BlockId region = f_.add_block();
    f_[f_.add_argument(region, scalar, name)].layout.space = Space::uniform;
    b.append({.code = OpCode::tile_loop,
              .operands = bounds,
              .body = region,
              .bounds = static_cast<int>(bounds.size()),
              .scheduler = scheduler},
             {});
    return region;
  }

  /// The role that fills rings draws the number and hands it on, the others get it.
  ValueId next_tile(Builder& b, bool draws, ValueId tile, ValueId end, BufferId numbers) {
    Op get{.code = OpCode::wait, .buffer = numbers};
    Op claim{.code = OpCode::claim_tile, .operands = {tile, end}};
    const ValueId next = named(uniform(make(b, draws ? claim : get, scalar)), "next_tile");
    if (draws) {
      b.append({.code = OpCode::acquire, .buffer = numbers}, {});
      b.append({.code = OpCode::issue, .operands = {next}, .buffer = numbers}, {});
      b.append({.code = OpCode::commit, .buffer = numbers}, {});
    }
    return next;
  }

  // Which tile a number stands for.

  void go_to(Builder& b, AxisId axis, ValueId at) {
    const bool tiled = f_[axis].kind == AxisKind::parallel_tiles;
    named(at, f_[axis].name + (tiled ? "_tile" : ""));
    b.append({.code = OpCode::enter, .operands = {at}, .axis = axis}, {});
  }

  /// To where the block lies, along some axes, that has this number among all along them.
  void go_to_each(Builder& b, ValueId rest, const std::vector<AxisId>& axes) {
    for (std::size_t i = 0; i < axes.size(); ++i) {
      ValueId at = rest;
      if (i + 1 < axes.size()) {
        const Division division = divide(b, rest, count(b, axes[i]));
        at = division.rest;
        rest = division.quotient;
      }
      if (f_[axes[i]].descending) at = from_last(b, at, axes[i]);
      go_to(b, axes[i], at);
    }
  }

  ValueId from_last(Builder& b, ValueId at, AxisId axis) {
    return binary(b, OpCode::sub, binary(b, OpCode::sub, count(b, axis), number(b, 1)), at);
  }

  Group plan_group(Builder& b) {
    // What of L2 is a power of two: the rest is for outputs, which pass through it as well. Where a
    // block's next query waits for the only slot, blocks drift apart, by twice as many tiles.
    const auto budget = static_cast<int>(std::bit_floor(static_cast<unsigned>(target_.l2_bytes)));
    const int apart = schedule_.outer_stages == 1 ? 2 : 1;
    ValueId bytes;
    for (const auto& [axis, each] : looped_) {
      const ValueId length = binary(b, OpCode::max, number(b, 1), b.extent(axis));
      const ValueId all = binary(b, OpCode::mul, length, number(b, each * apart));
      bytes = bytes ? binary(b, OpCode::add, bytes, all) : all;
    }
    Group group;
    group.positions = named(count_of_all(b, positions_), "positions");
    const ValueId fit =
        bytes ? binary(b, OpCode::quotient, number(b, budget), bytes) : group.positions;
    group.size =
        named(binary(b, OpCode::max, number(b, 1), binary(b, OpCode::min, group.positions, fit)),
              "group");
    group.tiles = named(binary(b, OpCode::mul, group.size, count_of_all(b, tiled_)), "group_tiles");
    return group;
  }

  void go_to_tile_of_group(Builder& b, ValueId tile, const Group& group) {
    const ValueId group_of_tile = divide(b, tile, group.tiles).quotient;
    const ValueId first =
        named(binary(b, OpCode::mul, group_of_tile, group.size), "first_position");
    const ValueId left = binary(b, OpCode::sub, group.positions, first);
    const ValueId here = named(binary(b, OpCode::min, group.size, left), "positions_here");
    const ValueId which = named(binary(b, OpCode::quotient, first, group.size), "which_group");
    const ValueId before = binary(b, OpCode::mul, which, group.tiles);
    const ValueId in_group = named(binary(b, OpCode::sub, tile, before), "tile_of_group");
    const Division division = divide(b, in_group, here);
    const ValueId row = division.quotient;
    const ValueId position = binary(b, OpCode::add, first, division.rest);
    // In waves odd groups run backwards: where one ends with short tiles the next begins with such.
    const ValueId odd = binary(b, OpCode::mod, which, number(b, 2));
    ValueId backwards = binary(b, OpCode::ne, odd, number(b, 0));
    if (is_dynamic()) {
      const ValueId counter = make(b, {.code = OpCode::has_counter}, {DType::i1, {}});
      const ValueId in_waves = uniform(b.elementwise(OpCode::logical_not, {counter}));
      backwards = binary(b, OpCode::logical_and, in_waves, backwards);
    }
    const ValueId last = binary(b, OpCode::sub, count_of_all(b, tiled_), number(b, 1));
    const ValueId from_end = binary(b, OpCode::sub, last, row);
    const ValueId place = uniform(b.elementwise(OpCode::where, {backwards, from_end, row}));
    go_to_each(b, named(position, "position"), positions_);
    go_to_each(b, named(place, "row_of_group"), tiled_);
  }

  /// Bytes that the loops of a block read along `axis`, for each of its elements.
  [[nodiscard]] static int looped_bytes(const Function& f, AxisId axis) {
    int bytes = 0;
    for_each_op(f, f.body, [&](const Op& op, BlockId) {
      if (op.code != OpCode::issue || f[axis].kind != AxisKind::tiles) return;
      for (const Coordinate& c : op.coordinates)
        if (c.axis == axis) bytes += f[op.buffer].columns * size_of(f[op.buffer].dtype);
    });
    return bytes;
  }

  // Values, which are the same in all threads.

  static ValueId number(Builder& b, int value) { return b.constant(value, DType::i32); }

  ValueId binary(Builder& b, OpCode code, ValueId left, ValueId right) {
    return uniform(b.elementwise(code, {left, right}));
  }

  ValueId uniform(ValueId value) {
    f_[value].layout.space = Space::uniform;
    return value;
  }

  ValueId named(ValueId value, const std::string& name) {
    const Op* made_by = f_.definition(value);
    const bool source = made_by && kind_of(made_by->code) == OpKind::source;
    if (f_[value].name.empty() && !source) f_[value].name = name;
    return value;
  }

  struct Division {
    ValueId quotient, rest;
  };

  Division divide(Builder& b, ValueId left, ValueId right) {
    const OpId made =
        b.append({.code = OpCode::divide, .operands = {left, right}}, {scalar, scalar});
    return {uniform(f_[made].results[0]), uniform(f_[made].results[1])};
  }

  /// How many blocks lie along an axis.
  ValueId count(Builder& b, AxisId axis) const {
    return f_[axis].kind == AxisKind::parallel_tiles ? b.tile_count(axis) : b.extent(axis);
  }

  ValueId count_of_all(Builder& b, const std::vector<AxisId>& axes) {
    ValueId all;
    for (AxisId axis : axes)
      all = all ? binary(b, OpCode::mul, all, count(b, axis)) : count(b, axis);
    return all ? all : number(b, 1);
  }

  Function& f_;
  const Schedule& schedule_;
  const Target& target_;
  std::vector<AxisId> tiled_, positions_;
  std::vector<std::pair<AxisId, int>> looped_;  ///< axes of loops, and bytes read an element
};

}  // namespace

void schedule_tiles(Function& f, const PassContext& context) { TileScheduling(f, context).run(); }

}  // namespace flashcore
