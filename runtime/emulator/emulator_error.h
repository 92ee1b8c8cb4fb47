// What a strict run refuses, as one exception with a kind that tests can name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "dsl/error.h"

namespace flashcore {

enum class FaultKind : std::uint8_t {
  race,              ///< two threads, one byte of shared memory, no barrier between
  in_flight,         ///< a byte that an asynchronous copy may still write
  uninitialized,     ///< a read of shared memory that this block has not written
  unwritten_output,  ///< a read of an output element that this block has not written
  early_access,      ///< of a tensor, while the kernels launched before may still run
  out_of_turn,       ///< an addition to what another block adds to as well, in no order
  out_of_bounds,
  misaligned,
  read_only,         ///< a write to an input
  divergence,        ///< lanes of a warp part at a collective operation
  group_divergence,  ///< the same in a warpgroup
  barrier_mismatch,  ///< threads of a block part at a barrier
  deadlock,
  bad_operand,       ///< a value the instruction does not take
  unfenced,          ///< an asynchronous access to what a thread accessed without a fence_async()
  misused_mbarrier,  ///< touched, initialised or arrived at where it must not be
  misused_product,   ///< registers touched while a product is pending, or a product never awaited
};

/// "data race", "divergence", ...
std::string_view name_of(FaultKind kind);

/// A mistake of the emitted kernel. The message quotes its line; Complaint::where names it as
/// "<kernel>.cu" and the line of KernelSource::body.
class EmulatorError : public Error {
 public:
  EmulatorError(FaultKind kind, int block, int thread, Complaint complaint)
      : Error(std::move(complaint)), kind_(kind), block_(block), thread_(thread) {}
  [[nodiscard]] FaultKind kind() const { return kind_; }
  [[nodiscard]] int line() const { return complaint().where.line; }
  [[nodiscard]] int block() const { return block_; }
  [[nodiscard]] int thread() const { return thread_; }

 private:
  FaultKind kind_;
  int block_;
  int thread_;
};

/// The same, as the parts of the emulator find it: without the kernel's name, the block, the quoted
/// line. It never leaves the emulator.
struct Fault {
  FaultKind kind = FaultKind::bad_operand;
  int line = 0;
  std::string why;
  std::string fix;
  int thread = -1;  ///< -1: the one that runs
};

}  // namespace flashcore
