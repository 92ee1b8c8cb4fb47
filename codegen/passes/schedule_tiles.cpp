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
// keep the consumers from their first product. Of two producers the first one draws tiles for both. Blocks
// of a cluster that share loads are numbered together; the producer of the first of them takes the number,
// and hands it to all.
//
// In front of the roles a program sets the segments of its ragged axes. Each role sets them anew for each
// of its tiles, and computes again what else there depends on where the tile lies. Packed sequences lie one
// behind the other: the tiles of all of them have numbers together, and `find_segment` says which
// sequence's tile a number stands for, and which of its tiles:
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
// A number too many stands for a tile behind the end of its segment. Its loops along ragged axes visit no
// tile, and nothing of it is stored.
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "codegen/passes/passes.h"
#include "codegen/passes/rewrite.h"
#include "codegen/passes/tile_numbers.h"
#include "codegen/passes/tile_segments.h"

namespace flashcore {
namespace {

using namespace ir;

const TileType scalar{DType::i32, {}};

class TileScheduling {
 public:
  TileScheduling(Function& f, const PassContext& context)
      : f_(f),
        schedule_(context.schedule),
        segments_(f, first_axis_of(f, AxisKind::parallel_tiles)),
        numbers_(f, context, segments_) {}

  void run() {
    numbers_.order_grid();
    if (schedule_.positions_per_block > 1) walk_positions(last_axis_of(f_, AxisKind::parallel));
    if (!schedule_.persistent) return;
    segments_.take_ops();
    share_out_tiles();
  }

 private:
  void walk_positions(AxisId axis) {
    f_[axis].tile = schedule_.positions_per_block;
    Builder front(f_, f_.body, 0);
    const ValueId begin = front.tile_begin(axis);
    const ValueId behind = front.add(begin, front.integer(f_[axis].tile));
    const ValueId end =
        named_unless_source(f_, front.min(behind, front.extent(axis)), f_[axis].name + "_end");
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
    const std::vector<OpId> roles = roles_of(f_);
    const OpId drawing = *std::ranges::find_if(
        roles, [&](OpId role) { return holds(f_, f_[role].body, OpCode::issue); });
    std::map<OpId, Handed> handed;
    BufferId of_cluster;
    if (is_dynamic()) {
      for (OpId role : roles)
        if (role != drawing) handed[role].number = add_channel(name_for(role) + "_numbers", 1);
      if (numbers_.in_clusters()) {
        of_cluster = add_channel("cluster_numbers", 1, 1);
        f_[of_cluster].blocks = schedule_.multicast_blocks;
      }
      for (auto& [role, channels] : handed)
        channels.position =
            add_channel(name_for(role) + "_positions", f_.grid.size() + segments_.loaded().size());
    }
    for (OpId role : roles) {
      const bool draws = role == drawing;
      put_loop_around(role, [&](Builder& around) -> TileLoop {
        const ValueId count = numbers_.count(around);
        const bool divides = draws || !is_dynamic();  // a tile's number into its position
        const TileGroups groups = divides ? numbers_.plan(around) : TileGroups{};
        const bool claims = draws && is_dynamic() && !numbers_.in_clusters();
        const auto enter = [=, this](Builder& b, ValueId tile) -> Entered {
          if (!divides) {
            TilePosition loaded = receive_position(b, handed.at(role).position);
            const TilePosition position(loaded.begin(), loaded.begin() + grid_rank());
            loaded.erase(loaded.begin(), loaded.begin() + grid_rank());
            enter_tile(b, position);
            return {tile, segments_.set(b, loaded)};
          }
          TilePosition position;
          if (segments_.counted_by() && claims)
            std::tie(tile, position) = skip_missing(b, tile, count, groups);
          else
            position = numbers_.find(b, numbers_.numbered(b, tile, groups)).position;
          enter_tile(b, position);
          const OpCopier placed = segments_.set(b);
          for (ValueId value : segments_.loaded()) position.push_back(placed.renamed(value));
          for (const auto& [receiver, channels] : handed) hand_on(b, channels.position, position);
          return {tile, placed};
        };
        if (!is_dynamic()) return {TileScheduler::serpentine, {count}, "tile", enter};
        // The role that draws the number hands it on, the others get it.
        const auto next = [=, this](Builder& b, ValueId tile) {
          const BufferId from = draws ? of_cluster : handed.at(role).number;
          if (draws && from) claim_for_cluster(b, tile, count, from);
          const ValueId number = from ? b.make({.code = OpCode::wait, .buffer = from}, scalar)
                                 : segments_.counted_by() ? claim_if_left(b, tile, count)
                                                          : claim(b, tile, count);
          if (draws)
            for (const auto& [receiver, channels] : handed) hand_on(b, channels.number, {number});
          return named_unless_source(f_, number, "next_tile");
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

  void enter_tile(Builder& b, const TilePosition& position) {
    for (std::size_t i = 0; i < f_.grid.size(); ++i) go_to(b, f_.grid[i], position[i]);
  }

  // What the producer hands to other roles.

  /// The rings in which the role that draws tiles hands another role the number of the next tile, and where that
  /// tile lies. In a cluster the producer of the first block hands the number to those of both in one more ring.
  struct Handed {
    BufferId number, position;
  };

  [[nodiscard]] std::string name_for(OpId role) const {
    return role == roles_of(f_).back() ? "tile" : f_[role].name;
  }

  /// A ring with so many scalars in a slot, and to other roles a slot for each of the two tiles by
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
  std::pair<ValueId, TilePosition> skip_missing(Builder& b, ValueId tile, ValueId count,
                                                const TileGroups& groups) {
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
      TilePosition numbered = numbers_.numbered(again, number, groups);
      // A number behind all others would be that of a tile of a head that does not exist.
      ValueId& rows = numbers_.rows_of(numbered);
      rows = again.where(left, rows, segments_.count(again));
      const TileNumbers::Found found = numbers_.find(again, numbered);
      const ValueId missing = again.elementwise(OpCode::logical_not, {found.exists});
      std::vector<ValueId> next{number, again.elementwise(OpCode::logical_and, {left, missing})};
      next.insert(next.end(), found.position.begin(), found.position.end());
      return next;
    };
    in.append({.code = OpCode::yield,
               .operands = build_if(in, carried[1], look, [&](Builder&) { return carried; })});
    const std::vector<ValueId> results = f_[b.append(std::move(loop), types)].results;
    return {results[0], TilePosition(results.begin() + 2, results.end())};
  }

  /// The producer of the cluster's first block claims the next tile, and hands its number to the
  /// producers of both blocks.
  void claim_for_cluster(Builder& b, ValueId tile, ValueId end, BufferId numbers) {
    const ValueId is_first = b.elementwise(OpCode::eq, {numbers_.rank(b), b.integer(0)});
    build_if(b, is_first, [&](Builder& in) -> std::vector<ValueId> {
      hand_on(in, numbers, {claim(in, tile, end)});
      return {};
    });
  }

  void go_to(Builder& b, AxisId axis, ValueId at) {
    const bool tiled = f_[axis].kind == AxisKind::parallel_tiles;
    named_unless_source(f_, at, f_[axis].name + (tiled ? "_tile" : ""));
    b.append({.code = OpCode::enter, .operands = {at}, .axis = axis});
  }

  /// The position of a tile and what was loaded of it, as the producer has handed it on.
  TilePosition receive_position(Builder& b, BufferId channel) {
    const OpId wait =
        b.append({.code = OpCode::wait, .buffer = channel},
                 std::vector<TileType>(f_.grid.size() + segments_.loaded().size(), scalar));
    return f_[wait].results;
  }

  Function& f_;
  const Schedule& schedule_;
  TileSegments segments_;
  TileNumbers numbers_;
};

}  // namespace

void schedule_tiles(Function& f, const PassContext& context) { TileScheduling(f, context).run(); }

}  // namespace flashcore
