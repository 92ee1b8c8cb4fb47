// Tiles on their way: between tensors, shared memory and registers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "codegen/layout/chunk_loops.h"
#include "codegen/text/kernel_text.h"

namespace flashcore {

class TileMover : protected KernelText {
 protected:
  using KernelText::KernelText;

  struct Ring {
    std::string full,
        empty;  ///< the first of their barriers; no empty ones where a role fills what it reads
    /// Of the role being printed; no slot where there is one only, and no phase where the role
    /// itself writes the slots.
    std::string slot, phase;
    std::string next_phase;  ///< the statement that ends a phase
  };

  // shared_memory.cpp: between registers and shared memory, and from lane to lane
  void print_to_shared(const ir::Op& op);
  void print_constant_tile(const ir::Op& op, double value);
  void print_blocks(const ir::Op& op);
  void print_from_shared(const ir::Op& op);
  void print_shuffles(const ir::Op& op);
  std::string shared_offset(const ir::Buffer& buffer, const Shape& shape,
                            const std::string& first_row = {}) const;
  void open_rows(const Shape& shape, Writer::Scopes& scopes, bool braces);
  [[nodiscard]] bool is_operand_in_flight(const ir::Op& convert) const;
  [[nodiscard]] bool is_stored_by_engine(const ir::Op& convert) const;
  [[nodiscard]] bool writes_rows_by_turns(const ir::Op& convert, const Shape& shape) const;
  void print_row_pairs(const ir::Op& convert, const Shape& shape);
  std::string given_address(const ir::Op& give) const;
  std::string cluster_address(const ir::Op& cluster_read) const;
  std::string moved_rows(const ir::Buffer& buffer) const;

  // chunks.cpp, global_memory.cpp: between tensors and shared memory or registers
  void print_segment(const ir::Op& op);
  void print_copies(const std::vector<const ir::Op*>& ops);
  std::string first_copied(const ir::Op& copy, ir::AxisId axis);
  void print_staged_store(const ir::Op& op);
  void print_chunk_store(const std::string& pointer, const std::string& chunk,
                         const std::string& left);
  bool stores_by_quads(const ir::Op& op) const;
  void print_quad_store(const ir::Op& op);
  void print_load(const ir::Op& op);
  void print_access(const ir::Op& op, ir::ValueId tile, bool is_store);
  /// The tensor dimension an axis of the tile runs along.
  static std::size_t dimension_along(const ir::Op& op, ir::AxisId axis);
  [[nodiscard]] bool runs_along(const ir::Op& op, ir::AxisId axis) const;
  /// Refuses copies of whole chunks whose rows are no neighbouring elements, or begin anywhere.
  void require_rows_of_chunks(const ir::Op& op, bool dense, std::string_view copies,
                              int multiple) const;
  std::string source_pointer(const ir::Op& op);
  /// The text of one chunk: whether its row is inside the tensor, its first column, its address in
  /// global memory, and its offset in the shared tile.
  struct Chunk {
    std::string row_exists, column, pointer, offset;
  };
  /// The rows of a tile of which a thread copies a chunk each: thread / chunks + i * rows.
  struct ThreadRows {
    int chunks, rows, rounds;
  };
  [[nodiscard]] ThreadRows thread_rows(const ir::Buffer& buffer, const ChunkLoop& loop) const;
  /// A row of a tile, under a loop over i, as the text of its place: what is added to the address
  /// of the tile's columns, and whether it is inside the axis and the tensor.
  struct RowPlace {
    std::string offset, exists;
  };
  /// The rows of a tile in global memory: at `start`, one `stride` further each, of which `left` are
  /// inside; or each at a place of its own.
  struct Rows {
    std::string type, walker, start, stride, left;
    std::vector<RowPlace> places = {};  ///< for each of the loops over chunks
  };
  void print_copy(const ir::Op& op, const std::string& pointer, std::vector<RowPlace> places);
  template <class Body>
  void for_each_chunk(const ir::Buffer& buffer, const Rows& global, Body body);
  // computed_rows.cpp: rows whose positions the region of an issue computes
  /// By the text of a position under a loop over i: the array with the position in each iteration.
  using PositionArrays = std::map<std::string, std::string>;
  std::vector<RowPlace> locate_rows(const ir::Op& issue, PositionArrays& known);
  RowPlace place_of_row(const ir::Op& issue, const std::string& at,
                        const std::vector<std::string>& positions);
  std::vector<std::string> position_texts(const ir::Op& issue, const std::string& row);
  std::string row_position(const ir::Op& issue, const ThreadRows& of_thread);
  std::string row_stride(ir::TensorId tensor, std::size_t dim, int rows);
  std::string representative(const Shape& shape) const;
  std::string chunk_base(const ir::Buffer& buffer, const std::string& slot) const;
  [[nodiscard]] bool is_bulk_copy(const ir::Op& op) const;
  void prepare_sources(ir::BlockId block);

  std::map<ir::BufferId, Ring> ring_names_;
};

}  // namespace flashcore
