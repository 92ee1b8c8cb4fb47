// Tiles on their way: between tensors, shared memory and registers.
#pragma once

#include <functional>
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
    std::string slot, phase;  ///< of the role being printed; no slot where there is one only
  };

  // shared_memory.cpp: between registers and shared memory, and from lane to lane
  void print_to_shared(const ir::Op& op);
  void print_constant_tile(const ir::Op& op, double value);
  void print_blocks_to_shared(const ir::Op& op);
  void print_from_shared(const ir::Op& op);
  void print_shuffles(const ir::Op& op);
  std::string shared_offset(const ir::Buffer& buffer, const Shape& shape) const;

  // cluster.cpp: what blocks of a cluster give each other
  std::string given_address(const ir::Op& give) const;
  std::string cluster_address(const ir::Op& cluster_read) const;
  std::string moved_rows(const ir::Buffer& buffer) const;

  // chunks.cpp, global_memory.cpp: between tensors and shared memory or registers
  void print_segment(const ir::Op& op);
  void print_copy(const ir::Op& op);
  void print_staged_store(const ir::Op& op);
  bool stores_by_quads(const ir::Op& op) const;
  void print_quad_store(const ir::Op& op);
  void print_load(const ir::Op& op);
  void print_access(const ir::Op& op, ir::ValueId tile, bool is_store);
  /// The tensor dimension an axis of the tile runs along.
  static std::size_t dimension_along(const ir::Op& op, ir::AxisId axis);
  [[nodiscard]] bool runs_along(const ir::Op& op, ir::AxisId axis) const;
  std::string source_pointer(const ir::Op& op);
  /// The text of one chunk: whether its row is inside the tensor, its first column, its address in
  /// global memory, and its offset in the shared tile.
  struct Chunk {
    std::string row_exists, column, pointer, offset;
  };
  /// A row of a tile as the text of its place: what is added to the address of the tile's columns,
  /// and whether it is inside the tensor; empty where it surely is. They read these variables.
  struct RowPlace {
    std::string offset, inside;
    std::vector<std::string> locals = {};
  };
  /// The rows of a tile in global memory: at `start`, one `stride` further each, or each at the
  /// place that `place` prints for a row's number in the tile. Rows beyond `left` are none; where
  /// each has a place, that is the end of the axis.
  struct Rows {
    std::string type, walker, start, stride, left;
    std::function<RowPlace(const std::string&)> place = {};
  };
  /// The text of a row's address, and of whether it exists, under a loop over i.
  struct RowPlaces {
    std::string pointer, exists;
    std::vector<std::string> arrays = {};
  };
  RowPlaces print_places(const Rows& global, int rows, int rounds);
  template <class Body>
  void for_each_chunk(const ir::Buffer& buffer, const Rows& global, Body body);
  // computed_rows.cpp: rows whose positions the region of an issue computes
  RowPlace place_of_row(const ir::Op& issue, ir::AxisId rows, const std::string& position);
  std::string row_stride(ir::TensorId tensor, std::size_t dim, int rows);
  std::string representative(const Shape& shape) const;
  std::string chunk_base(const ir::Buffer& buffer, const std::string& slot) const;
  [[nodiscard]] bool is_bulk_copy(const ir::Op& op) const;
  void prepare_sources(ir::BlockId block);

  std::map<ir::BufferId, Ring> ring_names_;
};

}  // namespace flashcore
