// Which tile of the grid a number stands for.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "codegen/pass.h"
#include "codegen/passes/tile_segments.h"

namespace flashcore {

/// Positions along the parallel axes, such as the heads of all sequences, in groups: as many as have
/// the tiles that their loops read in L2 together. All positions of a group go through their tiles, the
/// same tile of each side by side, before those of the next group do. The last group has up to twice as
/// many positions: its last tiles end late, and no tiles of another group are left to fill that time.
struct TileGroups {
  ir::ValueId positions;    ///< in all groups together
  ir::ValueId size, tiles;  ///< positions and tiles of a group, but of the last one
  ir::ValueId last;         ///< the number of the last group
};

/// Where a tile lies: a number along each axis of the grid.
using TilePosition = std::vector<ir::ValueId>;

/// Numbers of output tiles, along the axes of the grid in the order of the schedule, and the arithmetic by
/// which a block computes from a number where its tile lies.
class TileNumbers {
 public:
  TileNumbers(ir::Function& f, const PassContext& context, const TileSegments& segments);

  /// Orders the axes of the grid.
  void order_grid();
  /// How many numbers there are.
  ir::ValueId count(ir::Builder& b) const;
  /// Computes in front of a loop over tiles what their positions are computed from.
  TileGroups plan(ir::Builder& b) const;
  /// The position of a tile along the numbered axes: those of the grid, but the one that counts segments
  /// whose tiles have numbers together.
  TilePosition numbered(ir::Builder& b, ir::ValueId tile, const TileGroups& groups) const;
  /// Of such a position that along the rows.
  ir::ValueId& rows_of(TilePosition& numbered) const;

  struct Found {
    TilePosition position;  ///< along the axes of the grid
    ir::ValueId exists;     ///< of successive segments: whether there is such a tile
  };
  /// Where the tile at a position along the numbered axes lies.
  Found find(ir::Builder& b, TilePosition numbered) const;

  /// Whether blocks of a cluster, which share loads, are numbered together.
  [[nodiscard]] bool in_clusters() const { return schedule_.multicast_blocks > 1; }
  /// Which block of its cluster this is.
  ir::ValueId rank(ir::Builder& b) const;

 private:
  [[nodiscard]] std::vector<ir::AxisId> numbered_axes() const;
  [[nodiscard]] bool is_dynamic() const;
  TilePosition position_of(ir::Builder& b, ir::ValueId rest,
                           const std::vector<ir::AxisId>& axes) const;
  TilePosition in_cluster(ir::Builder& b, TilePosition position) const;
  TilePosition position_in_groups(ir::Builder& b, ir::ValueId tile, const TileGroups& groups) const;
  ir::ValueId count_along(ir::Builder& b, ir::AxisId axis) const;
  ir::ValueId count_along_all(ir::Builder& b, const std::vector<ir::AxisId>& axes) const;

  ir::Function& f_;
  const Schedule& schedule_;
  const Target& target_;
  const TileSegments& segments_;
  std::vector<ir::AxisId> tiled_, positions_;
  std::vector<std::pair<ir::AxisId, int>> looped_;  ///< axes of loops, and bytes read an element
};

/// Names a value that has no name, unless it is a source, whose name is that of its axis.
ir::ValueId named_unless_source(ir::Function& f, ir::ValueId value, const std::string& name);

}  // namespace flashcore
