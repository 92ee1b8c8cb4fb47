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
// is there before they need it, and one more while they compute that tile. Where the tile lies the
// producer hands them in another ring, as the divisions by which a number becomes positions would
// keep the consumers from their first product. Blocks of a cluster that share loads are numbered
// together; the producer of the first of them takes the number, and hands it to all.
//
// What depends on where a tile lies and stands in front of the roles, the segments of ragged axes, each
// role does anew for each of its tiles. Of segments that lie one behind the other, as packed sequences
// do, the tiles of all have numbers together, and `find_segment` says which one's tile it is:
//
//   %0 = index batch                              tile_loop to %block_count dynamic {
//   %1 = load starts[%0]                            %rest, %head = divide %tile, %heads
//   %2 = load starts[%0 + 1]                 ->     %batch, %rows_tile = find_segment starts[], %rest, ...
//   segment %1, %2 along rows                       enter %rows_tile along rows
//   role producer {                                 enter %batch along batch
//     ...                                           %3 = load starts[%batch]
//                                                   ...
//                                                   segment %3, %4 along rows
//
// A number too many stands for a tile behind the end of its segment, of which nothing is stored; such a
// tile has no keys.
#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>
#include <vector>

#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"
#include "codegen/passes/tile_segments.h"

namespace flashcore {
namespace {

using namespace ir;

const TileType scalar{DType::i32, {}};

/// Positions along the parallel axes, such as the heads of all sequences, in groups: as many as have
/// the tiles that their loops read in L2 together. All positions of a group go through their tiles, the
/// same tile of each side by side, before those of the next group do. The last group has up to twice as
/// many positions: its last tiles end late, and no tiles of another group are left to fill that time.
struct Groups {
  ValueId positions;    ///< in all groups together
  ValueId size, tiles;  ///< positions and tiles of a group, but of the last one
  ValueId last;         ///< the number of the last group
};

/// Where a tile lies: a number along each axis of the grid.
using Position = std::vector<ValueId>;

class TileScheduling {
 public:
  TileScheduling(Function& f, const PassContext& context)
      : f_(f),
        schedule_(context.schedule),
        target_(context.target),
        segments_(f, first_axis_of(f, AxisKind::parallel_tiles)) {
    for (std::size_t i = 0; i < f.axes.size(); ++i) {
      if (f.axes[i].kind == AxisKind::parallel_tiles && !f.axes[i].alias_of)
        tiled_.push_back(AxisId(i));
      if (f.axes[i].kind == AxisKind::parallel) positions_.insert(positions_.begin(), AxisId(i));
      if (const int bytes = looped_bytes(f, AxisId(i))) looped_.emplace_back(AxisId(i), bytes);
    }
  }

  void run() {
    number_blocks();
    if (schedule_.positions_per_block > 1) walk_positions(last_axis_of(f_, AxisKind::parallel));
    if (!schedule_.persistent) return;
    std::erase(positions_, segments_.counted_by());
    segments_.take_placing_ops();
    share_out_tiles();
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
    Builder front(f_, f_.body, 0);
    const ValueId begin = front.tile_begin(axis);
    const ValueId behind = front.add(begin, front.integer(f_[axis].tile));
    const ValueId end = named(front.min(behind, front.extent(axis)), f_[axis].name + "_end");
    for (OpId role : roles_of(f_))
      put_loop_around(role, [&](Builder&) -> TileLoop {
        return {TileScheduler::consecutive,
                {begin, end},
                f_[axis].name,
                [&](Builder& b, ValueId position) {
                  go_to(b, axis, position);
                  return Entered{position, OpCopier(f_)};
                }};
      });
  }

  void share_out_tiles() {
    const bool grouped = schedule_.grid_order == GridOrder::grouped;
    Numbers numbers;
    BufferId positions;
    if (is_dynamic()) {
      numbers.of_block = add_channel("tile_numbers", 1);
      if (in_clusters()) {
        numbers.of_cluster = add_channel("cluster_numbers", 1, 1);
        f_[numbers.of_cluster].blocks = schedule_.multicast_blocks;
      }
      positions = add_channel("tile_positions", f_.grid.size() + segments_.loaded().size());
    }
    for (OpId role : roles_of(f_)) {
      const bool fills = holds(f_, f_[role].body, OpCode::issue);
      put_loop_around(role, [&](Builder& around) -> TileLoop {
        const ValueId count = named(count_of_all(around, numbered_axes()),
                                    in_clusters() ? "cluster_count" : "block_count");
        const bool divides = fills || !is_dynamic();  // a tile's number into its position
        const Groups groups = divides && grouped ? plan_groups(around) : Groups{};
        const auto numbered_position = [=, this](Builder& b, ValueId tile) {
          return in_cluster(b, grouped ? position_in_groups(b, tile, groups)
                                       : position_of(b, tile, numbered_axes()));
        };
        const bool claims = fills && is_dynamic() && !in_clusters();
        const auto enter = [=, this](Builder& b, ValueId tile) -> Entered {
          if (!divides) {
            Position loaded = receive_position(b, positions);
            const Position position(loaded.begin(), loaded.begin() + grid_rank());
            loaded.erase(loaded.begin(), loaded.begin() + grid_rank());
            enter_tile(b, position);
            return {tile, segments_.place(b, loaded)};
          }
          Position position;
          if (segments_.counted_by() && claims)
            std::tie(tile, position) = skip_missing(b, tile, count, numbered_position);
          else
            position = in_segment(b, numbered_position(b, tile)).position;
          enter_tile(b, position);
          const OpCopier placed = segments_.place(b);
          for (ValueId value : segments_.loaded()) position.push_back(placed.renamed(value));
          if (positions) hand_on(b, positions, position);
          return {tile, placed};
        };
        if (!is_dynamic()) return {TileScheduler::serpentine, {count}, "tile", enter};
        // The role that fills rings draws the number and hands it on, the others get it.
        const auto next = [=, this](Builder& b, ValueId tile) {
          const BufferId from = fills ? numbers.of_cluster : numbers.of_block;
          if (fills && from) claim_for_cluster(b, tile, count, from);
          const ValueId number = from ? b.make({.code = OpCode::wait, .buffer = from}, scalar)
                                 : segments_.counted_by() ? claim_if_left(b, tile, count)
                                                          : claim(b, tile, count);
          if (fills) hand_on(b, numbers.of_block, {number});
          return named(number, "next_tile");
        };
        return {TileScheduler::dynamic, {count}, "tile", enter, next};
      });
    }
  }

  [[nodiscard]] bool is_dynamic() const {
    return schedule_.tile_scheduler == PersistentScheduler::dynamic;
  }

  /// The number of the tile that a block is at, and what takes the place of what was computed in front of
  /// the roles.
  struct Entered {
    ValueId tile;
    OpCopier placed;
  };

  struct TileLoop {
    TileScheduler scheduler;
    std::vector<ValueId> bounds;
    std::string name;                                 ///< of a tile's number
    std::function<Entered(Builder&, ValueId)> enter;  ///< has the block be at a tile
    /// The number behind that of a tile, if the region yields it.
    std::function<ValueId(Builder&, ValueId)> next = {};
  };

  /// Puts all that a role does into a loop, in front of which `plan` builds what it needs.
  void put_loop_around(OpId role, const std::function<TileLoop(Builder&)>& plan) {
    Builder around(f_, work_of(f_, f_[role]));
    std::vector<OpId> work = std::exchange(f_[around.block()].ops, {});
    const bool ends_region = around.block() != f_[role].body;
    if (ends_region) work.pop_back();
    const TileLoop loop = plan(around);
    Builder inside(f_, f_.add_block());
    const ValueId tile = f_.add_argument(inside.block(), scalar, loop.name);
    around.append({.code = OpCode::tile_loop,
                   .operands = loop.bounds,
                   .body = inside.block(),
                   .bounds = static_cast<int>(loop.bounds.size()),
                   .scheduler = loop.scheduler});
    const Entered at = loop.enter(inside, tile);
    for (OpId id : work) inside.place(id);
    segments_.rename_in(inside.block(), at.placed);
    Op yield{.code = OpCode::yield};
    if (loop.next) yield.operands = {loop.next(inside, at.tile)};
    inside.append(std::move(yield));
    if (ends_region) around.append({.code = OpCode::yield});
  }

  [[nodiscard]] std::ptrdiff_t grid_rank() const {
    return static_cast<std::ptrdiff_t>(f_.grid.size());
  }

  void enter_tile(Builder& b, const Position& position) {
    for (std::size_t i = 0; i < f_.grid.size(); ++i) go_to(b, f_.grid[i], position[i]);
  }

  // What the producer hands to the consumers.

  /// The rings that hand the number of the next tile to the consumers, and in a cluster from the
  /// producer of its first block to those of all.
  struct Numbers {
    BufferId of_block, of_cluster;
  };

  /// A ring with so many scalars in a slot, and to the consumers a slot for each of the two tiles by
  /// which the producer may be ahead.
  BufferId add_channel(const std::string& name, std::size_t scalars, int slots = 2) {
    Buffer channel{name, DType::i32, 1, static_cast<int>(scalars), slots};
    channel.transport = Transport::store;
    return f_.add_buffer(std::move(channel));
  }

  void hand_on(Builder& b, BufferId channel, std::vector<ValueId> scalars) {
    b.append({.code = OpCode::acquire, .buffer = channel});
    b.append({.code = OpCode::issue, .operands = std::move(scalars), .buffer = channel});
    b.append({.code = OpCode::commit, .buffer = channel});
  }

  ValueId claim(Builder& b, ValueId tile, ValueId end) {
    return b.make({.code = OpCode::claim_tile, .operands = {tile, end}}, scalar);
  }

  /// None is claimed behind the last: all blocks together claim as many as there are.
  ValueId claim_if_left(Builder& b, ValueId tile, ValueId count) {
    return build_if(
        b, b.elementwise(OpCode::lt, {tile, count}),
        [&](Builder& left) -> std::vector<ValueId> { return {claim(left, tile, count)}; },
        [&](Builder&) -> std::vector<ValueId> { return {tile}; })[0];
  }

  /// The first number from that of a tile on, as the block claims them, that stands for a tile that exists,
  /// and where that lies. Behind so many claims consumers begin and end a tile that does not.
  std::pair<ValueId, Position> skip_missing(
      Builder& b, ValueId tile, ValueId count,
      const std::function<Position(Builder&, ValueId)>& numbered_position) {
    constexpr int most_claims = 8;
    const TileType condition{DType::i1, {}};
    const BlockId body = f_.add_block();
    const ValueId claims = f_.add_argument(body, scalar, "claims");
    Op loop{.code = OpCode::loop,
            .operands = {b.integer(0), b.integer(most_claims), tile, b.constant(1, DType::i1)},
            .body = body,
            .bounds = 2};
    std::vector<TileType> types{scalar, condition};
    std::vector<ValueId> carried{f_.add_argument(body, scalar, "claimed"),
                                 f_.add_argument(body, condition, "missing")};
    for (const AxisId axis : f_.grid) {
      loop.operands.push_back(b.integer(0));
      types.push_back(scalar);
      carried.push_back(f_.add_argument(body, scalar, f_[axis].name + "_found"));
    }
    Builder in(f_, body);
    const auto look = [&](Builder& again) {
      const ValueId first = again.elementwise(OpCode::eq, {claims, again.integer(0)});
      const ValueId number = build_if(
          again, first, [&](Builder&) -> std::vector<ValueId> { return {carried[0]}; },
          [&](Builder& other) -> std::vector<ValueId> {
            return {claim(other, carried[0], count)};
          })[0];
      const ValueId left = again.elementwise(OpCode::lt, {number, count});
      Position numbered = numbered_position(again, number);
      // A number behind all others would be that of a tile of a head that does not exist.
      ValueId& rows = numbered[place_of_rows()];
      rows = again.where(left, rows, segments_.count(again));
      const Found found = in_segment(again, numbered);
      const ValueId missing = again.elementwise(OpCode::logical_not, {found.exists});
      std::vector<ValueId> next{number, again.elementwise(OpCode::logical_and, {left, missing})};
      next.insert(next.end(), found.position.begin(), found.position.end());
      return next;
    };
    in.append({.code = OpCode::yield,
               .operands = build_if(in, carried[1], look, [&](Builder&) { return carried; })});
    const std::vector<ValueId> results = f_[b.append(std::move(loop), types)].results;
    return {results[0], Position(results.begin() + 2, results.end())};
  }

  /// The producer of the cluster's first block claims the next tile, and hands its number to the
  /// producers of both blocks.
  void claim_for_cluster(Builder& b, ValueId tile, ValueId end, BufferId numbers) {
    const ValueId is_first = b.elementwise(OpCode::eq, {rank(b), b.integer(0)});
    build_if(b, is_first, [&](Builder& in) -> std::vector<ValueId> {
      hand_on(in, numbers, {claim(in, tile, end)});
      return {};
    });
  }

  void go_to(Builder& b, AxisId axis, ValueId at) {
    const bool tiled = f_[axis].kind == AxisKind::parallel_tiles;
    named(at, f_[axis].name + (tiled ? "_tile" : ""));
    b.append({.code = OpCode::enter, .operands = {at}, .axis = axis});
  }

  /// The position of a tile and what was loaded of it, as the producer has handed it on.
  Position receive_position(Builder& b, BufferId channel) {
    const OpId wait =
        b.append({.code = OpCode::wait, .buffer = channel},
                 std::vector<TileType>(f_.grid.size() + segments_.loaded().size(), scalar));
    return f_[wait].results;
  }

  // Which tile a number stands for.

  /// The axes along which tiles have numbers: those of the grid, but the one that counts segments whose
  /// tiles have numbers together.
  [[nodiscard]] std::vector<AxisId> numbered_axes() const {
    std::vector<AxisId> axes = f_.grid;
    std::erase(axes, segments_.counted_by());
    return axes;
  }

  /// Which of the numbered axes is that of the rows.
  [[nodiscard]] std::size_t place_of_rows() const {
    const std::vector<AxisId> axes = numbered_axes();
    return static_cast<std::size_t>(std::ranges::find(axes, tiled_.front()) - axes.begin());
  }

  struct Found {
    Position position;  ///< along the axes of the grid
    ValueId exists;     ///< of successive segments: whether there is such a tile
  };

  /// Where the tile at a position along the numbered axes lies.
  Found in_segment(Builder& b, const Position& numbered) {
    if (!segments_.counted_by()) return {numbered, {}};
    const std::vector<ValueId> found = segments_.find(b, numbered[place_of_rows()]);
    Position position;
    auto next = numbered.begin();
    for (const AxisId axis : f_.grid) {
      const bool segment = axis == segments_.counted_by();
      const ValueId own = segment ? found[0] : *next++;
      position.push_back(axis == tiled_.front() ? found[1] : own);
    }
    return {position, found[2]};
  }

  /// The position along each of some axes of the tile that has this number among all along them.
  Position position_of(Builder& b, ValueId rest, const std::vector<AxisId>& axes) {
    Position position;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      ValueId at = rest;
      if (i + 1 < axes.size()) std::tie(rest, at) = divide(b, rest, count(b, axes[i]));
      if (f_[axes[i]].descending && !segments_.counts_tiles_of(axes[i]))
        at = b.sub(b.sub(count(b, axes[i]), b.integer(1)), at);
      position.push_back(at);
    }
    return position;
  }

  // Blocks of a cluster that share loads are numbered together.

  [[nodiscard]] bool in_clusters() const { return schedule_.multicast_blocks > 1; }

  ValueId rank(Builder& b) const {
    return b.make({.code = OpCode::cluster_rank, .blocks = schedule_.multicast_blocks}, scalar);
  }

  /// The block's own tile of a cluster's, which lie side by side along the first axis of tiles; the last
  /// of them may lie behind all tiles of the axis.
  Position in_cluster(Builder& b, Position position) {
    if (!in_clusters()) return position;
    ValueId& at = position[static_cast<std::size_t>(std::ranges::find(f_.grid, tiled_.front()) -
                                                    f_.grid.begin())];
    at = b.add(b.mul(at, b.integer(schedule_.multicast_blocks)), rank(b));
    return position;
  }

  Groups plan_groups(Builder& b) {
    // Half of the largest power of two in L2's size: with the whole of it keys and values were read
    // from memory one and a half times, since outputs pass through L2 as well and blocks drift apart.
    const auto budget =
        static_cast<int>(std::bit_floor(static_cast<unsigned>(target_.l2_bytes)) / 2);
    ValueId bytes;
    for (const auto& [axis, each] : looped_) {
      const ValueId length = b.max(b.integer(1), length_of_dimension(b, axis));
      const ValueId all = b.mul(length, b.integer(each));
      bytes = bytes ? b.add(bytes, all) : all;
    }
    Groups groups;
    groups.positions = named(count_of_all(b, positions_), "positions");
    const ValueId one = b.integer(1);
    const ValueId room =
        bytes ? b.elementwise(OpCode::quotient, {b.integer(budget), bytes}) : groups.positions;
    const ValueId most = named(b.max(one, b.min(groups.positions, room)), "most_of_group");
    const ValueId filled = b.max(one, b.elementwise(OpCode::quotient, {groups.positions, most}));
    groups.size = named(b.max(one, parts(b, groups.positions, filled)), "group");
    groups.last =
        named(b.max(b.integer(0), b.sub(parts(b, groups.positions, groups.size), b.integer(2))),
              "last_group");
    groups.tiles = named(b.mul(groups.size, count_of_all(b, tiled_)), "group_tiles");
    return groups;
  }

  Position position_in_groups(Builder& b, ValueId tile, const Groups& groups) {
    const ValueId whole = named(divide(b, tile, groups.tiles).first, "whole_groups");
    const ValueId which = named(b.min(whole, groups.last), "which_group");
    const ValueId first = named(b.mul(which, groups.size), "first_position");
    const ValueId left = b.sub(groups.positions, first);
    const ValueId is_last = b.elementwise(OpCode::eq, {which, groups.last});
    const ValueId here = named(b.where(is_last, left, groups.size), "positions_here");
    const ValueId before = b.mul(which, groups.tiles);
    const ValueId in_group = named(b.sub(tile, before), "tile_of_group");
    const auto [row, rest] = divide(b, in_group, here);
    const ValueId position = b.add(first, rest);
    // In waves odd groups run backwards: where one ends with short tiles the next begins with such.
    const ValueId odd = b.elementwise(OpCode::mod, {which, b.integer(2)});
    ValueId backwards = b.elementwise(OpCode::ne, {odd, b.integer(0)});
    if (is_dynamic()) {
      const ValueId counter = b.make({.code = OpCode::has_counter}, {DType::i1, {}});
      const ValueId in_waves = b.elementwise(OpCode::logical_not, {counter});
      backwards = b.elementwise(OpCode::logical_and, {in_waves, backwards});
    }
    const ValueId last = b.sub(count_of_all(b, tiled_), b.integer(1));
    const ValueId from_end = b.sub(last, row);
    const ValueId place = b.where(backwards, from_end, row);
    Position all = position_of(b, named(position, "position"), positions_);
    const Position of_tile = position_of(b, named(place, "row_of_group"), tiled_);
    all.insert(all.end(), of_tile.begin(), of_tile.end());
    return all;
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

  ValueId named(ValueId value, const std::string& name) {
    const Op* made_by = f_.definition(value);
    const bool source = made_by && kind_of(made_by->code) == OpKind::source;
    if (f_[value].name.empty() && !source) f_[value].name = name;
    return value;
  }

  /// Into how many parts of one size a number is divided, rounded up.
  ValueId parts(Builder& b, ValueId all, ValueId size) {
    const ValueId rounded = b.sub(b.add(all, size), b.integer(1));
    return b.elementwise(OpCode::quotient, {rounded, size});
  }

  /// The quotient, and what it leaves.
  std::pair<ValueId, ValueId> divide(Builder& b, ValueId left, ValueId right) {
    const OpId made =
        b.append({.code = OpCode::divide, .operands = {left, right}}, {scalar, scalar});
    return {f_[made].results[0], f_[made].results[1]};
  }

  /// How many blocks lie along an axis, or clusters of blocks that share loads.
  ValueId count(Builder& b, AxisId axis) {
    if (f_[axis].kind != AxisKind::parallel_tiles) return b.extent(axis);
    if (segments_.counts_tiles_of(axis)) return segments_.count(b);
    const ValueId tiles = b.tile_count(axis);
    const int blocks = axis == tiled_.front() ? schedule_.multicast_blocks : 1;
    return blocks == 1 ? tiles : parts(b, tiles, b.integer(blocks));
  }

  ValueId count_of_all(Builder& b, const std::vector<AxisId>& axes) {
    ValueId all;
    for (AxisId axis : axes) all = all ? b.mul(all, count(b, axis)) : count(b, axis);
    return all ? all : b.integer(1);
  }

  Function& f_;
  const Schedule& schedule_;
  const Target& target_;
  std::vector<AxisId> tiled_, positions_;
  std::vector<std::pair<AxisId, int>> looped_;  ///< axes of loops, and bytes read an element
  TileSegments segments_;
};

}  // namespace

void schedule_tiles(Function& f, const PassContext& context) { TileScheduling(f, context).run(); }

}  // namespace flashcore
