// Prints a lowered program as a CUDA kernel.
//
// Scalars become variables, register tiles arrays [fragment][fragment][slot], tiles in shared
// memory addresses. An elementwise result takes over the array of an operand that dies there, a
// product that of its accumulator, a loop's carried value that of its start: so the steady loop
// copies nothing.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codegen/instructions/product.h"
#include "codegen/kernel_source.h"
#include "codegen/layout/chunk_loops.h"
#include "codegen/layout/register_split.h"
#include "codegen/print/fields.h"
#include "codegen/print/names.h"
#include "codegen/print/writer.h"
#include "dsl/ir/function.h"
#include "dsl/schedule.h"

namespace flashcore {

class KernelPrinter {
 public:
  KernelPrinter(const ir::Function& f, const Schedule& schedule) : f_(f), schedule_(schedule) {}

  /// Fills in everything but the prelude.
  KernelSource print();

 private:
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

  // parameters.cpp: the parameter block and the launch
  void collect_arguments();
  void print_parameters();
  void print_grid();
  void collect_grid();
  void print_block_index(ir::AxisId id, const std::string& index, bool needs_count);
  std::string blocks_along(ir::AxisId axis) const;
  [[nodiscard]] int scalar_named(const std::string& name) const;
  std::string stride(ir::TensorId tensor, std::size_t dim) const;

  // print_tiles.cpp: the tiles of a block
  [[nodiscard]] bool has_tile_loop(ir::TileScheduler scheduler) const;
  void print_tile_loop(const ir::Op& loop);
  void print_enter_parallel(const ir::Op& op);
  void print_draw(const ir::Op& op);
  void print_divide(const ir::Op& op);

  // kernel_printer.cpp: blocks, scalars, loops
  void print_block(ir::BlockId block);
  void print_op(const ir::Op& op);
  void print_scalar(const ir::Op& op);

  // print_control.cpp: loops, and regions behind a condition
  void print_if(const ir::Op& op);
  void start_results(const ir::Op& op);
  void print_results(const ir::Op& op, ir::BlockId region);
  [[nodiscard]] bool does_something(const ir::Op& op, ir::BlockId region) const;
  void print_enter(const ir::Op& op);
  void print_position(ir::AxisId axis, const std::string& tile);
  [[nodiscard]] bool needs_position(ir::BlockId block, ir::AxisId axis) const;
  void print_vote(const ir::Op& op);
  void print_bound(const ir::Op& op);
  std::pair<std::string, std::string> loop_bounds(const ir::Op& loop);
  void print_loop(const ir::Op& loop);
  void open_scanned_loop(const ir::Op& loop, Writer::Scopes& scopes);
  std::string first_tile(const ir::Op& loop);
  std::string is_tile(const ir::Op& loop, const std::string& tile);
  std::string to_next_tile(const ir::Op& loop, const std::string& tile);
  void print_yield(const ir::Op& loop, const ir::Op& yield);
  void set_aside(ir::ValueId value);
  void start_carried(const ir::Op& loop, std::size_t i);
  void prepare_sources(ir::BlockId block);
  void declare_lane_offsets();
  static std::string_view element_type(DType dtype);

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
  std::string describe(ir::ValueId value, const std::set<ir::ValueId>& inlined) const;
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

  // print_nest.cpp: loops over the elements of register tiles, and the arrays that hold these
  void print_nest(const ir::Op& nest);
  void print_loops(const ir::Op& nest, const std::set<ir::ValueId>& locals,
                   const std::vector<std::string>& partials);
  void print_elements(const ir::Op& nest, const std::set<ir::ValueId>& locals,
                      const std::vector<std::string>& partials, const Cursor& cursor);
  std::string gathered_element(const ir::Op& op, const std::vector<std::string>& operands,
                               const Cursor& cursor);
  [[nodiscard]] bool is_split_sum(const ir::Op& op) const;
  void print_pack(const ir::Op& op);
  void declare(ir::ValueId value, bool zero = false, const std::string& otherwise = {});
  void fill(ir::ValueId value, const std::string& text);
  void become(ir::ValueId value, ir::ValueId from);
  std::string array_type(ir::ValueId value) const;
  [[nodiscard]] Shape shape_of(ir::ValueId value) const;
  /// Opens the unrolled loops over a register tile; without braces where one statement follows.
  Cursor open_loops(const Shape& shape, Writer::Scopes& scopes, bool braces = false);

  // print_reduction.cpp
  void print_reduction(const ir::Op& op);
  std::string start_reduction(const ir::Op& op);
  void print_element_of_reduction(const ir::Op& op, const std::string& partials,
                                  const Cursor& cursor);
  void finish_reduction(const ir::Op& op, const std::string& partials);
  [[nodiscard]] bool in_chains(const ir::Op& op) const;
  void print_whole_reduction(const ir::Op& op, const char* start);
  static std::string combined(ir::OpCode reduction, const std::string& a, const std::string& b);
  std::string reduction_text(const ir::Op& op);
  void print_lane_combinations(const ir::Op& op);
  void print_lane_combination(ir::OpCode reduction, const std::string& target,
                              const ir::AxisLayout& layout);

  // print_scan.cpp: which tiles a loop visits
  void print_scan(const ir::Op& op);
  void print_next_tile(const ir::Op& op);
  std::string tile_behind(const ir::Op& loop, const std::string& tile);
  std::string tile_set_call(std::string_view function, const ir::Op& op,
                            const std::string& arguments) const;

  // print_dot.cpp
  void print_dot(const ir::Op& op);
  void start_sum(const ir::Op& op);
  ProductOperand shared_operand(ir::ValueId value, bool in_place = true);
  ProductOperand product_operand(const ir::Op& product, std::size_t i);

  // print_roles.cpp: producer and consumers, rings, bulk copies
  struct Ring {
    std::string full,
        empty;  ///< the first of their barriers; no empty ones where a role fills what it reads
    std::string slot, phase;  ///< of the role being printed; no slot where there is one only
  };
  void collect_tensor_maps();
  std::string map_of(const ir::Op& op, int rows, int width) const;
  std::string box_coordinates(const ir::Op& op, const std::string& row, const std::string& column);
  [[nodiscard]] bool has_roles() const;
  void print_ring_barriers();
  void declare_ring_places();
  void print_role(const ir::Op& op);
  static std::string in_slot(const std::string& barrier, const std::string& slot);
  void print_next_slot(int stages, const Ring& ring);
  void print_give(const ir::Op& op);
  void print_producer_load(const ir::Op& op);
  void print_boxes(const ir::Op& fill, const std::string& slot);
  void print_consumer_wait(const ir::Op& op);
  void print_clearing(const ir::Op& op, const std::string& tile);
  void print_consumer_release(const ir::Op& op);
  void print_wait_products(const ir::Op& op);
  void print_ping_pong(const ir::Op& op);
  void print_wait_stores(const ir::Op& op);
  void print_drain();
  void print_bulk_store(const ir::Op& op);

  // print_cluster.cpp: what blocks of a cluster give each other
  void print_cluster_rank();
  std::string given_address(const ir::Op& give) const;
  std::string cluster_address(const ir::Op& cluster_read) const;
  std::string moved_rows(const ir::Buffer& buffer) const;
  void print_cluster_sync();

  // print_convert.cpp: between registers and shared memory
  void print_convert(const ir::Op& op);
  void print_to_shared(const ir::Op& op);
  void print_constant_tile(const ir::Op& op, double value);
  void print_blocks_to_shared(const ir::Op& op);
  void print_from_shared(const ir::Op& op);
  void print_operand_load(const ir::Op& op);
  void print_combination(const ir::Op& op);
  std::string lane_offset(ir::AxisId axis, const ir::AxisLayout& layout) const;
  std::string shared_offset(const ir::Buffer& buffer, const Shape& shape) const;

  // print_memory.cpp
  void print_segment(const ir::Op& op);
  void print_copy(const ir::Op& op);
  void print_store(const ir::Op& op);
  void print_staged_store(const ir::Op& op);
  bool stores_by_quads(const ir::Op& op) const;
  void print_quad_store(const ir::Op& op);
  void print_load(const ir::Op& op);
  void print_access(const ir::Op& op, ir::ValueId tile, bool is_store);
  std::string source_pointer(const ir::Op& op);
  /// The text of one chunk: whether its row is inside the tensor, its first column, its address in
  /// global memory, and its offset in the shared tile.
  struct Chunk {
    std::string row_exists, column, pointer, offset;
  };
  template <class Body>
  void for_each_chunk(const ir::Buffer& buffer, const std::string& pointer_type,
                      const std::string& walker, const std::string& start,
                      const std::string& row_stride, const std::string& rows_left, Body body);
  std::string row_stride(ir::TensorId tensor, std::size_t dim, int rows);
  void require_alignment(ir::TensorId tensor, int bytes);
  std::string representative(const Shape& shape) const;
  std::string chunk_base(const ir::Buffer& buffer, const std::string& slot) const;

  const ir::Function& f_;
  const Schedule& schedule_;
  KernelSource source_;
  Writer out_;
  Names names_ = names_of_body();
  Fields fields_;

  std::map<ir::BufferId, Ring> ring_names_;
  bool claims_tiles_ = false;     ///< from a counter
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
  std::vector<std::pair<std::pair<ir::AxisId, ir::AxisLayout>, std::string>> lane_offsets_;
  std::map<std::string, std::string> pointers_;    ///< access -> pointer variable
  std::pair<ir::ValueId, std::string> next_tile_;  ///< a scanned loop's tile, and the one after it
  std::map<int, std::string> arrays_;              ///< by number: the name
  std::set<ir::ValueId> inlined_;  ///< values that are locals of the loops being printed
};

}  // namespace flashcore
