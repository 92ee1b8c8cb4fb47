// The text of a kernel's parts: the names of parameters, variables and arrays, and what scalars,
// elements of tiles and positions are called where they are read.
//
// Scalars become variables, register tiles arrays [fragment][fragment][slot], tiles in shared
// memory addresses.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/kernel_source.h"
#include "codegen/text/fields.h"
#include "codegen/text/names.h"
#include "codegen/text/writer.h"
#include "dsl/ir/function.h"
#include "dsl/schedule.h"

namespace flashcore {

class KernelText {
 protected:
  KernelText(const ir::Function& f, const Schedule& schedule) : f_(f), schedule_(schedule) {}

  /// The loops around one element of a register tile: text of the fragment and the slot of each
  /// axis.
  struct Cursor {
    std::vector<ir::AxisId> axes;
    std::vector<std::string> fragments;
    std::vector<std::string> slots;
    std::string element;  ///< slot of the whole fragment
    std::vector<ir::AxisLayout> layouts;
  };
  /// The shape of a register tile.
  struct Shape {
    std::vector<ir::AxisId> axes;
    std::vector<ir::AxisLayout> layouts;
    bool operator==(const Shape&) const = default;
  };

  /// Prints a constant of the kernel, "const int rows_begin = rows_tile * 64;"; returns its name.
  std::string constant(std::string_view type, std::string_view wanted, std::string_view text);

  // parameters.cpp: the parameter block, and the position of a block in the grid
  void collect_arguments();
  void print_parameters();
  void print_grid();
  void print_block_index(ir::AxisId id, const std::string& index, bool needs_count);
  void print_position(ir::AxisId axis, const std::string& tile);
  std::string blocks_along(ir::AxisId axis) const;
  [[nodiscard]] int scalar_named(const std::string& name) const;
  std::string stride(ir::TensorId tensor, std::size_t dim) const;

  // expressions.cpp: the text of scalars, elements and positions
  std::string scalar(ir::ValueId value);
  std::string element(ir::ValueId value, const Cursor& cursor);
  /// An index, and a constant of the unrolled loops that is added to it: "0" where there is none.
  struct SplitIndex {
    std::string base, rest;
  };
  std::string gathered(const ir::Op& op, const std::vector<SplitIndex>& indices) const;
  [[nodiscard]] int power_of_two(ir::ValueId value) const;
  std::string expression(const ir::Op& op, const std::vector<std::string>& operands) const;
  std::string describe(ir::ValueId value) const;
  std::string describe(const ir::Op& op) const;
  [[nodiscard]] bool is_local(ir::ValueId value) const;
  std::string label(ir::ValueId value) const;
  std::string position(ir::AxisId axis, const ir::AxisLayout& layout, const Cursor& cursor);
  std::string position_element(const ir::Op& op, Cursor cursor);
  static std::string offset_text(const ir::AxisLayout& layout, const std::string& fragment,
                                 const std::string& slot);
  std::string begin(ir::AxisId axis) const;
  std::string extent(ir::AxisId axis) const;
  std::string tile_count(ir::AxisId axis) const;
  std::string extent_text(const Extent& extent) const;
  static std::string number(double value, DType dtype);

  /// Two partial results of a reduction as one.
  static std::string combined(ir::OpCode reduction, const std::string& a, const std::string& b);
  static std::string_view element_type(DType dtype);
  [[nodiscard]] std::string_view array_type(ir::ValueId value) const;

  // arrays.cpp: the arrays of register tiles
  void declare(ir::ValueId value, bool zero = false, const std::string& otherwise = {});
  void fill(ir::ValueId value, const std::string& text);
  void become(ir::ValueId value, ir::ValueId from);
  [[nodiscard]] Shape shape_of(ir::ValueId value) const;
  /// Opens the unrolled loops over a register tile; without braces where one statement follows.
  Cursor open_loops(const Shape& shape, Writer::Scopes& scopes, bool braces = false);

  void declare_lane_offsets();
  using LaneAxis = std::pair<ir::AxisId, ir::AxisLayout>;
  [[nodiscard]] const std::string* lane_offset_of(const LaneAxis& wanted) const;
  std::string lane_offset(ir::AxisId axis, const ir::AxisLayout& layout) const;
  [[nodiscard]] bool has_tile_loop(ir::TileScheduler scheduler) const;
  void print_cluster_rank();
  void require_alignment(ir::TensorId tensor, int bytes);

  const ir::Function& f_;
  const Schedule& schedule_;
  KernelSource source_;
  Writer out_;
  Names names_ = names_of_body();
  Fields fields_;

  const ir::Op* role_ = nullptr;  ///< the one being printed
  ir::BlockId work_;              ///< where it works
  std::string cluster_rank_;      ///< which block of its cluster this is

  std::vector<std::string> storage_;         ///< by value: variable, array or address
  std::vector<int> uses_;                    ///< by value: how many ops read it
  std::vector<ir::BlockId> defining_block_;  ///< by value: the block that makes it
  ir::BlockId block_;
  /// A ragged axis in this block: where it begins in the dimension (empty: at 0), and its length.
  struct Segment {
    std::string first, length;
  };
  std::vector<Segment> segments_;                ///< by axis
  std::map<std::uint32_t, std::string> begins_;  ///< by axis: first position of the current tile
  std::vector<std::pair<LaneAxis, std::string>> lane_offsets_;
  std::map<std::string, std::string> pointers_;    ///< access -> pointer variable
  std::pair<ir::ValueId, std::string> next_tile_;  ///< a scanned loop's tile, and the one after it
  std::map<int, std::string> arrays_;              ///< by number: the name
};

}  // namespace flashcore
