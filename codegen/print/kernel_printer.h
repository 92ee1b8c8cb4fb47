// Prints a lowered program as a CUDA kernel: one function an operation.
//
// Scalars become variables, register tiles arrays [fragment][fragment][slot], tiles in shared
// memory addresses.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/analysis/visit.h"
#include "codegen/instructions/product.h"
#include "codegen/kernel_source.h"
#include "codegen/text/fields.h"
#include "codegen/text/names.h"
#include "codegen/text/writer.h"
#include "codegen/transfers/chunk_walk.h"
#include "dsl/ir/function.h"
#include "dsl/schedule.h"

namespace flashcore {

class KernelPrinter {
 public:
  KernelPrinter(const ir::Function& f, const Schedule& schedule) : f_(f), schedule_(schedule) {}

  /// Fills in everything but the prelude.
  KernelSource print();

  /// The shape of a register tile.
  struct Shape {
    std::vector<ir::AxisId> axes;
    std::vector<ir::AxisLayout> layouts;
  };

 private:
  using Print = void(const ir::Op&);  ///< of an op

  /// The loops around one element of a register tile: text of the fragment and the slot of each
  /// axis, and of the slot of the whole fragment.
  struct Cursor : Shape {
    std::vector<std::string> fragments, slots;
    std::string element;
  };
  /// Such loops, which end with it.
  struct Loops : Cursor {
    Writer::Scopes scopes;
  };

  // kernel_printer.cpp: blocks, scalars
  Print print_op, print_slot, print_in_place, print_scalar, print_convert;
  void print_kernel();
  void print_block(ir::BlockId block);
  [[nodiscard]] std::vector<const ir::Op*> copied_together(ir::BlockId block,
                                                           std::size_t first) const;

  // text/parameters.cpp: the parameter block, and the position of a block in the grid
  void collect_arguments();
  void print_parameters();
  void print_grid();
  void print_block_index(ir::AxisId id, const std::string& index, bool needs_count);
  void print_position(ir::AxisId axis, const std::string& tile);
  std::string blocks_along(ir::AxisId axis) const;
  std::string longest_segment(ir::AxisId axis) const;
  void require_alignment(ir::TensorId tensor, int bytes);

  // text/expressions.cpp: the text of scalars, elements and positions
  /// Prints a constant of the kernel, "const int rows_begin = rows_tile * 64;"; returns its name.
  std::string constant(std::string_view type, std::string_view wanted, std::string_view text);
  std::string scalar(ir::ValueId value);
  std::string element(ir::ValueId value, const Cursor& cursor);
  /// An index, and a constant of the unrolled loops that is added to it: "0" where there is none.
  struct SplitIndex {
    std::string base, rest;
  };
  std::string gathered(const ir::Op& op, const std::vector<SplitIndex>& indices) const;
  std::string expression(const ir::Op& op, const std::vector<std::string>& operands) const;
  std::string describe(const ir::Op& op) const;
  std::string label(ir::ValueId value) const;
  std::string position(ir::AxisId axis, const ir::AxisLayout& layout, const Cursor& cursor);
  std::string position_element(const ir::Op& op, Cursor cursor);
  std::string begin(ir::AxisId axis) const;
  std::string extent(ir::AxisId axis) const;
  std::string lies_on(ir::AxisId axis, const std::string& at) const;
  std::string tile_count(ir::AxisId axis) const;
  static std::string number(double value, DType dtype);
  /// Two partial results of a reduction as one.
  static std::string combined(ir::OpCode reduction, const std::string& a, const std::string& b);
  static std::string_view element_type(DType dtype);
  [[nodiscard]] std::string_view array_type(ir::ValueId value) const;

  // text/arrays.cpp: the arrays of register tiles
  void declare(ir::ValueId value, bool zero = false, const std::string& otherwise = {});
  void become(ir::ValueId value, ir::ValueId from);
  [[nodiscard]] Shape shape_of(ir::ValueId value) const;
  /// Opens the unrolled loops over a register tile; without braces where one statement follows.
  Loops open_loops(const Shape& shape, bool braces = false);
  void declare_lane_offsets();
  using LaneAxis = std::pair<ir::AxisId, ir::AxisLayout>;
  [[nodiscard]] const std::string* lane_offset_of(const LaneAxis& wanted) const;
  std::string lane_offset(ir::AxisId axis, const ir::AxisLayout& layout) const;

  // print_tiles.cpp: the tiles of a block, and the turns of blocks
  [[nodiscard]] std::string in_clusters(const char* of_blocks) const;
  Print print_turn, print_tile_loop, print_draw, print_divide, print_find_segment,
      print_searchsorted;

  // print_control.cpp: loops, and regions behind a condition
  Print print_if, print_enter, print_vote, print_bound, print_loop, print_yield;
  [[nodiscard]] bool does_something(const ir::Op& op, ir::BlockId region) const;
  [[nodiscard]] bool needs_position(ir::BlockId block, ir::AxisId axis) const;
  std::pair<std::string, std::string> loop_bounds(const ir::Op& loop);
  void set_aside(ir::ValueId value);
  void start_carried(const Carried& carried);
  void assign(ir::ValueId to, ir::ValueId from);

  // print_nest.cpp: loops over the elements of register tiles, and the arrays that hold these
  Print print_nest, print_pack;
  void print_loops(const ir::Op& nest, const std::vector<std::string>& partials);
  std::string gathered_element(const ir::Op& op, const std::vector<std::string>& operands,
                               const Cursor& cursor);

  // print_reduction.cpp
  Print print_reduction, print_combination;
  std::string start_reduction(const ir::Op& op);
  void print_element_of_reduction(const ir::Op& op, const std::string& partials,
                                  const Cursor& cursor);
  void finish_reduction(const ir::Op& op, const std::string& partials);
  void print_lane_combination(ir::OpCode reduction, const std::string& target,
                              const ir::AxisLayout& layout);

  // print_scan.cpp: which tiles a loop visits
  Print print_scan, print_next_tile, print_full_tile;
  std::string tile_behind(const ir::Op& loop, const std::string& tile);

  // print_dot.cpp
  Print print_dot, print_operand_load;
  ProductOperand shared_operand(ir::ValueId value, bool in_place = true);
  ProductOperand product_operand(const ir::Op& product, std::size_t i);

  // transfers/shared_memory.cpp: between registers and shared memory, and from lane to lane
  Print print_to_shared, print_blocks, print_from_shared, print_shuffles;
  void print_constant_tile(const ir::Op& op, double value);
  std::string shared_offset(const ir::Buffer& buffer, const Shape& shape,
                            const std::string& first_row = {}) const;
  Writer::Scopes open_rows(const Shape& shape, bool braces);
  void print_row_pairs(const ir::Op& convert, const Shape& shape);
  void print_elements(const ir::Op& op, const std::string& tile);
  void print_matrices(const ir::Op& op, const std::string& tile);
  std::string moved_rows(const ir::Buffer& buffer, const std::string& address) const;

  // transfers/chunks.cpp: between tensors and shared memory, in chunks of 16 bytes
  Print print_staged_store;
  void print_copies(const std::vector<const ir::Op*>& ops);
  std::string first_copied(const ir::Op& copy, ir::AxisId axis);
  void print_chunk_store(const std::string& pointer, const std::string& chunk,
                         const std::string& left);
  std::string row_stride(ir::TensorId tensor, std::size_t dim, int rows);
  void print_copy(const ir::Op& op, const std::string& pointer, std::vector<RowPlace> places);

  // transfers/computed_rows.cpp: rows whose positions the region of an issue computes
  /// By the text of a position under a loop over i: the array with the position in each iteration.
  using PositionArrays = std::map<std::string, std::string>;
  std::vector<RowPlace> locate_rows(const ir::Op& issue, PositionArrays& known);
  RowPlace place_of_row(const ir::Op& issue, const std::string& at,
                        const std::vector<std::string>& positions);
  std::vector<std::string> position_texts(const ir::Op& issue, const std::string& row);

  // transfers/global_memory.cpp: between tensors and registers
  Print print_segment, print_quad_store, print_load, print_store, print_access;
  std::string source_pointer(const ir::Op& op);
  void prepare_sources(ir::BlockId block);
  std::string representative(const Shape& shape) const;
  [[nodiscard]] bool is_bulk_copy(const ir::Op& op) const;

  static constexpr int group_threads = 128;  ///< of a warpgroup

  // print_roles.cpp: producer and consumers, how they meet
  Print print_role, print_wait_products;

  // print_boxes.cpp: what the copy engine moves
  Print print_boxes, print_bulk_store;
  void collect_tensor_maps();
  std::string map_of(const ir::Op& op, int rows, int width) const;
  std::string box_coordinates(const ir::Op& op, const std::vector<std::string>& computed,
                              const std::string& row, const std::string& column);
  /// A box among those that are looked up together, and among all of a tile.
  struct BoxNames {
    std::string index, number;
  };
  [[nodiscard]] int boxes_together(const ir::Op& issue) const;
  void print_copies_of_boxes(const ir::Op& op, const std::string& target, const std::string& full,
                             const BoxNames& box, const std::vector<std::string>& places);
  /// Of each box of a tile, and how many of them a block loads.
  [[nodiscard]] int rows_of_box(const ir::Op& issue) const;
  [[nodiscard]] int boxes_of_block(const ir::Op& issue) const;
  [[nodiscard]] std::string first_row_of(const ir::Op& issue, const std::string& box) const;
  std::vector<std::string> print_places_of_boxes(const ir::Op& op, const BoxNames& box);
  void print_panels(const ir::Op& op, const std::string& target, const std::string& full,
                    const std::string& box, const std::vector<std::string>& places);

  // print_rings.cpp: the slots between producer and consumers
  Print print_ring_barriers, print_acquire, print_issue, print_commit, print_wait, print_beside,
      print_clearing, print_release;
  struct Ring {
    std::string full,
        empty;  ///< the first of their barriers; no empty ones where a role fills what it reads
    /// Of the role being printed; no slot where there is one only, and no phase where the role
    /// itself writes the slots.
    std::string slot, phase;
    std::string next_phase;    ///< the statement that ends a phase
    bool is_released = false;  ///< by the role, which goes on to the next slot there
  };
  void declare_ring_places();
  static std::string in_slot(const std::string& barrier, const std::string& slot);
  /// The argument that functions take which do the same in the other block of the cluster.
  [[nodiscard]] std::string to_other_block(const ir::Buffer& channel) const;
  std::pair<std::string, std::string> place_ahead(const ir::Op& op);
  void print_next_slot(int stages, const Ring& ring);
  [[nodiscard]] bool goes_round(const ir::Op& convert) const;

  const ir::Function& f_;
  const Schedule& schedule_;
  KernelSource source_;
  Writer out_;
  Names names_ = names_of_body();
  Fields fields_;

  const ir::Op* role_ = nullptr;  ///< the one being printed
  int role_registers_ = 0;        ///< of its threads, or of those of the role around
  bool is_behind_role_ = false;   ///< whether one of the same region has been printed
  ir::BlockId work_;              ///< where it works
  std::string cluster_rank_;      ///< which block of its cluster this is

  std::vector<std::string> storage_;  ///< by value: variable, array or address
  std::vector<int> uses_;             ///< by value: how many ops read it
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
  std::map<ir::BufferId, Ring> ring_names_;
  std::string other_block_;  ///< added to an address: the same in the cluster's other block
};

}  // namespace flashcore
