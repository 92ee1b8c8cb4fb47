// What code generation knows of a tensor-core instruction. Passes, checks and the printer ask a
// description for the property they need, and never for the name: another instruction is another
// file beside these, with its name in dsl/instruction.h, and below.
#pragma once

#include <string_view>

#include "codegen/layout/register_layouts.h"
#include "dsl/dtype.h"
#include "dsl/error.h"
#include "dsl/instruction.h"
#include "dsl/ir/function.h"
#include "dsl/ir/layout.h"
#include "dsl/target.h"

namespace flashcore {

struct Product;
struct LeftOperandLoad;

/// Where an operand that the program computes may be when a product takes it.
enum class ComputedOperand : std::uint8_t {
  none,       ///< only what a load brings to shared memory is taken
  shared,     ///< it is written to shared memory in front of the product
  registers,  ///< it stays in the registers that hold it
};

/// What is not said is as of mma.sync on 16-bit elements.
struct TensorInstruction {
  Instruction name{};
  bool Target::*available = nullptr;  ///< the fact that a target has it by; none: every target has
  std::string_view instead;           ///< what to take where the target lacks it

  int rows = 16, columns = 8;      ///< of the sums to which one instruction adds
  bool (*takes)(DType) = is_half;  ///< the elements of both operands; sums are f32
  int warps = 1;                   ///< that issue it together, and divide its rows
  bool asynchronous = false;       ///< sums may be read behind a wait only

  // What tiles have to be for a product of them to be made of such instructions.
  int column_step = 16;    ///< a warp's columns are a multiple of this
  bool rows_once = false;  ///< a tile has the rows that the warps make at once, and no more
  int most_warps = 0;      ///< of a block that make a product, a multiple of `warps`; 0: any number

  // Registers. Of an opaque instruction it is known which warp holds a block of sums, not which
  // lane holds which element; a block counts as 16 slots along each axis.
  bool opaque = false;
  ir::AxisLayout sum_rows = flashcore::sum_rows;  ///< one fragment of the sums
  ir::AxisLayout sum_columns = flashcore::sum_columns;
  /// Of a left operand in registers, along the terms: two neighbouring fragments of sums, in pairs.
  ir::AxisLayout left_terms = flashcore::sum_columns;

  // Operands. In shared memory both may lie either way round.
  ComputedOperand computed_left = ComputedOperand::registers;
  ComputedOperand computed_right = ComputedOperand::shared;
  /// A computed left operand that is read transposed is written to shared memory, whichever warps
  /// read it there.
  bool turns_computed_left = false;
  bool takes_sums = false;      ///< f32 sums are a left operand without being packed
  bool by_copy_engine = false;  ///< tiles in shared memory come from the copy engine alone
  /// Elements from row to row of an operand's tile in shared memory; 0: swizzled.
  int (*pitch)(int columns) = [](int) { return 0; };

  // Text.
  bool starts_sums = false;  ///< the first instruction of a product needs no zeros to add to
  void (*print_product)(const Product&) = nullptr;
  void (*print_left_load)(const LeftOperandLoad&) = nullptr;

  /// Rows that one warp makes at a time.
  [[nodiscard]] int rows_of_warp() const { return rows / warps; }
};

// One for each file of the folder.
extern const TensorInstruction mma_m16n8k16, mma_m16n8k8_tf32, wmma, wgmma;

inline const TensorInstruction& describe(Instruction name) {
  for (const TensorInstruction* one : {&mma_m16n8k16, &mma_m16n8k8_tf32, &wmma, &wgmma})
    if (one->name == name) return *one;
  throw InternalError("an instruction without a description");
}

/// Of a product, or of the conversion of an operand.
inline const TensorInstruction& instruction_of(const ir::Op& op) {
  if (!op.instruction) throw InternalError("a product that no pass has given an instruction");
  return describe(*op.instruction);
}

}  // namespace flashcore
