// Tensors and shared buffers during an evaluation.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dsl/ir/function.h"
#include "runtime/reference/binding.h"
#include "runtime/reference/reference.h"
#include "runtime/reference/tile_value.h"

namespace flashcore {

/// How an axis is cut, and which tile (or position) is current.
struct AxisState {
  std::int64_t tile = 1, count = 1, current = 0;
  std::int64_t first = 0;    ///< ragged: where the block's part of the dimension begins
  std::int64_t length = -1;  ///< ragged: of that part; -1 for the others
  std::int64_t lead = 0;  ///< end_aligned: by how much the first tile reaches in front of the axis
  [[nodiscard]] std::int64_t begin() const { return current * tile - lead; }
};

/// Executes the ops of kind memory. It reads the current tiles and the values that the evaluation
/// keeps.
class Memory {
 public:
  Memory(const ir::Function& f, const Binding& arrays, const std::vector<AxisState>& axes,
         const std::vector<TileValue>& values);

  /// Zero outside the tensor. `tile` replaces the current tile of an axis of kind tiles, unless -1.
  /// `first_row` is the row whose position an issue computes in scalars; right are those from there.
  [[nodiscard]] TileValue load(const ir::Op& op, std::int64_t tile = -1,
                               std::int64_t first_row = 0) const;
  void store(const ir::Op& op);
  /// Lands at once: whether a kernel waits long enough is the emulator's business.
  void copy(const ir::Op& op);
  [[nodiscard]] const TileValue& read_slot(const ir::Op& op);

  [[nodiscard]] std::vector<ReferenceOutput> take_outputs();

 private:
  struct Window;
  using Side = std::vector<std::optional<std::int64_t>>;
  Side& side_along(Window& window, ir::AxisId id, const AxisState& axis) const;
  [[nodiscard]] Window window(const ir::Op& op, const std::vector<std::int64_t>& strides,
                              std::int64_t tile, std::int64_t first_row = 0) const;
  /// The slot whose number is an operand of the op; the first one where there is no such operand.
  TileValue& slot(const ir::Op& op, std::size_t operand);
  [[nodiscard]] std::int64_t integer(ir::ValueId value) const;

  const ir::Function& f_;
  const Binding& arrays_;
  const std::vector<AxisState>& axes_;
  const std::vector<TileValue>& values_;
  std::vector<std::vector<TileValue>> slots_;  // by buffer
  std::vector<ReferenceOutput> outputs_;       // by tensor; empty for inputs
};

}  // namespace flashcore
