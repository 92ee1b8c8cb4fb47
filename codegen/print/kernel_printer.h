// Prints a lowered program as a CUDA kernel: one function an operation.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "codegen/instructions/product.h"
#include "codegen/transfers/tile_mover.h"

namespace flashcore {

class KernelPrinter : TileMover {
 public:
  KernelPrinter(const ir::Function& f, const Schedule& schedule) : TileMover(f, schedule) {}

  /// Fills in everything but the prelude.
  KernelSource print();

 private:
  // print_tiles.cpp: the tiles of a block, and the turns of blocks
  void print_turn(const ir::Op& op);
  std::string end_of_blocks(ir::AxisId axis) const;
  void print_tile_loop(const ir::Op& loop);
  void print_draw(const ir::Op& op);
  void print_divide(const ir::Op& op);

  // kernel_printer.cpp: blocks, scalars, loops
  void print_kernel();
  void print_block(ir::BlockId block);
  void print_op(const ir::Op& op);
  [[nodiscard]] std::vector<const ir::Op*> copied_together(ir::BlockId block,
                                                           std::size_t first) const;
  void print_slot(const ir::Op& op);
  void print_in_place(const ir::Op& op);
  void print_scalar(const ir::Op& op);
  void print_store(const ir::Op& op);
  void print_convert(const ir::Op& op);

  // print_control.cpp: loops, and regions behind a condition
  void print_if(const ir::Op& op);
  void start_results(const ir::Op& op);
  void print_results(const ir::Op& op, ir::BlockId region);
  [[nodiscard]] bool does_something(const ir::Op& op, ir::BlockId region) const;
  void print_enter(const ir::Op& op);
  [[nodiscard]] bool needs_position(ir::BlockId block, ir::AxisId axis) const;
  void print_vote(const ir::Op& op);
  void print_bound(const ir::Op& op);
  std::pair<std::string, std::string> loop_bounds(const ir::Op& loop);
  void print_loop(const ir::Op& loop);
  void print_yield(const ir::Op& loop, const ir::Op& yield);
  void set_aside(ir::ValueId value);
  void start_carried(const ir::Op& loop, std::size_t i);
  [[nodiscard]] bool is_variable(ir::ValueId value) const;
  void assign(ir::ValueId to, ir::ValueId from);

  // print_nest.cpp: loops over the elements of register tiles, and the arrays that hold these
  void print_nest(const ir::Op& nest);
  void print_loops(const ir::Op& nest, const std::vector<std::string>& partials);
  void print_elements(const ir::Op& nest, const std::vector<std::string>& partials,
                      const Cursor& cursor);
  std::string gathered_element(const ir::Op& op, const std::vector<std::string>& operands,
                               const Cursor& cursor);
  [[nodiscard]] bool is_split_sum(const ir::Op& op) const;
  void print_pack(const ir::Op& op);

  // print_reduction.cpp
  void print_reduction(const ir::Op& op);
  std::string start_reduction(const ir::Op& op);
  void print_element_of_reduction(const ir::Op& op, const std::string& partials,
                                  const Cursor& cursor);
  void finish_reduction(const ir::Op& op, const std::string& partials);
  [[nodiscard]] bool in_chains(const ir::Op& op) const;
  std::string reduction_text(const ir::Op& op);
  void print_lane_combination(ir::OpCode reduction, const std::string& target,
                              const ir::AxisLayout& layout);

  void print_combination(const ir::Op& op);

  // print_scan.cpp: which tiles a loop visits
  void print_scan(const ir::Op& op);
  void print_next_tile(const ir::Op& op);
  void print_full_tile(const ir::Op& op);
  std::string tile_behind(const ir::Op& loop, const std::string& tile);
  std::string tile_set_call(std::string_view function, const ir::Op& op,
                            const std::string& arguments) const;

  // print_dot.cpp
  void print_dot(const ir::Op& op);
  void print_operand_load(const ir::Op& op);
  ProductOperand shared_operand(ir::ValueId value, bool in_place = true);
  ProductOperand product_operand(const ir::Op& product, std::size_t i);

  static constexpr int group_warps = 4, group_threads = 128;  ///< of a warpgroup

  // print_roles.cpp: producer and consumers, how they meet, bulk copies
  void collect_tensor_maps();
  std::string map_of(const ir::Op& op, int rows, int width) const;
  std::string box_coordinates(const ir::Op& op, const std::string& row, const std::string& column);
  void print_role(const ir::Op& op);
  void print_wait_products(const ir::Op& op);
  void print_ping_pong(const ir::Op& op);
  void print_meeting(const ir::Op& op);
  void print_bulk_store(const ir::Op& op);
  void print_drain(const ir::Op& op);

  // print_rings.cpp: the slots between producer and consumers
  void print_ring_barriers(const ir::Op& op);
  void declare_ring_places();
  static std::string in_slot(const std::string& barrier, const std::string& slot);
  void print_next_slot(int stages, const Ring& ring);
  [[nodiscard]] bool goes_round(const ir::Op& convert) const;
  void print_acquire(const ir::Op& op);
  void print_issue(const ir::Op& op);
  void print_boxes(const ir::Op& issue);
  void print_commit(const ir::Op& op);
  void print_wait(const ir::Op& op);
  void print_clearing(const ir::Op& op);
  void print_release(const ir::Op& op);
};

}  // namespace flashcore
