// What every operation takes and gives. The builder asks when an op is made, the verifier asks
// again after every pass, so a rule is written once. Rules throw SpecError at the op's place.
#pragma once

#include "dsl/ir/function.h"

namespace flashcore::ir {

bool is_comparison(OpCode code);
/// And, or, not: conditions in, a condition out.
bool is_logic(OpCode code);
/// Operands of an elementwise op, 1 to 3.
int operand_count(OpCode code);

/// The result of an op whose operands and attributes decide it: every source but `constant`, every
/// elementwise op but `cast`, reductions, tile ops and `load`.
TileType infer_type(const Function& f, const Op& op);

/// Refuses a cast that has no meaning; gives the type of its result.
TileType cast_type(const Function& f, const Op& op, DType dtype);

/// Refuses coordinates that do not fit the tensor of a load, store or copy. Returns the axes of the
/// tile.
std::vector<AxisId> accessed_axes(const Function& f, const Op& op);

/// Refuses a store whose tile is not the accessed one, or whose tensor is not an output.
void check_store(const Function& f, const Op& op);

/// "bf16[rows, cols]"; a scalar is just its dtype.
std::string describe(const Function& f, const TileType& type);

}  // namespace flashcore::ir
