#include "dsl/ir/verify_attributes.h"

#include <fmt/format.h>

#include "dsl/ir/print.h"
#include "dsl/ir/verify_op.h"

namespace flashcore::ir {
namespace {

/// Attributes that only some operations have.
void refuse_misplaced(const Function& f, const Op& op) {
  if (op.scope == ReductionScope::lane && kind_of(op.code) != OpKind::reduction)
    refuse_op(f, op, "only a reduction is done by lane", "leave \"by lane\" out");
  if (op.scope == ReductionScope::warp && kind_of(op.code) != OpKind::reduction &&
      op.code != OpCode::dot)
    refuse_op(f, op, "only a reduction or a product is done by warp", "leave \"by warp\" out");
  if (op.issued && op.code != OpCode::dot)
    refuse_op(f, op, "only a product is issued", "leave \"issued\" out");
  if (op.instruction && op.code != OpCode::dot && op.code != OpCode::convert)
    refuse_op(f, op, "only a product, or the conversion of its operand, uses an instruction",
              fmt::format("leave \"using {}\" out", name_of(*op.instruction)));
  if (op.rounding != OperandRounding::none && op.code != OpCode::dot)
    refuse_op(f, op, "only a product rounds its operands",
              fmt::format("leave \"as {}\" out", name_of(op.rounding)));
  if (op.precise && op.code != OpCode::tanh)
    refuse_op(f, op, "only a tanh is precise", "leave \"precise\" out");
  if (op.unordered && op.code != OpCode::loop)
    refuse_op(f, op, "only a loop has iterations to order", "leave \"unordered\" out");
  if (op.accumulation != Accumulation::none && op.code != OpCode::store)
    refuse_op(f, op, "only a store adds to a tensor", "leave \"adding\" out");
  const bool holds = op.code == OpCode::loop || op.code == OpCode::scan_tiles ||
                     op.code == OpCode::tile_loop || is_plain(op.code) || op.code == OpCode::role ||
                     op.code == OpCode::issue;
  if (op.body && !holds)
    refuse_op(f, op, "only a loop, an if, a nest, a role or an issue has a region",
              "leave out what stands in braces behind it");
  if (op.otherwise && op.code != OpCode::if_)
    refuse_op(f, op, "only an if has a region behind \"else\"", "leave out the second region");
  if ((op.warps || op.registers) && op.code != OpCode::role)
    refuse_op(f, op, "only a role has warps of its own", "leave \"warps\" and \"registers\" out");
  if (op.inside && op.code != OpCode::gather)
    refuse_op(f, op, "only a gather has indices", "leave \"inside\" out");
  if (op.box_rows && op.code != OpCode::issue)
    refuse_op(f, op, "only an issue has boxes",
              fmt::format("leave \"boxes of {} rows\" out", op.box_rows));
  if (op.acquires && (op.code != OpCode::issue || !op.body))
    refuse_op(f, op, "only an issue whose region computes positions waits for its slot itself",
              "leave \"acquiring\" out, and put an acquire in front of the issue");
  if (op.fence && op.code != OpCode::nest && op.code != OpCode::dot)
    refuse_op(f, op, "only a nest or a product has a fence", "leave \"fence\" out");
}

/// The things that an op names exist.
void verify_names(const Function& f, const Op& op) {
  const OpKind kind = kind_of(op.code);
  const bool turn = op.code == OpCode::wait_turn || op.code == OpCode::release_turn;
  const bool accesses = op.code == OpCode::load || op.code == OpCode::store || turn ||
                        op.code == OpCode::gather || op.code == OpCode::dimension ||
                        op.code == OpCode::searchsorted ||
                        (op.code == OpCode::issue && !issues_values(f, op));
  if (accesses && (!op.tensor || op.tensor.index >= f.tensors.size()))
    refuse_op(f, op, "it names no tensor",
              "name an input or output with its indices, as in x[rows, d]");
  if (op.code == OpCode::parameter && (!op.parameter || op.parameter.index >= f.parameters.size()))
    refuse_op(f, op, "it names no parameter", "declare one, parameter scale: f32, and name it");
  const bool of_channel = op.code == OpCode::acquire || op.code == OpCode::issue ||
                          op.code == OpCode::read_slot || op.code == OpCode::release ||
                          op.code == OpCode::beside ||
                          (op.code == OpCode::wait && !op.results.empty());
  const bool buffered = of_channel || op.code == OpCode::scan_tiles ||
                        op.code == OpCode::next_tile || op.code == OpCode::tile_is_full;
  if ((buffered && !op.buffer) || (op.buffer && op.buffer.index >= f.buffers.size()))
    refuse_op(f, op, "it names no buffer", "declare a buffer, and name it behind \"in\"");
  if (of_channel && f[op.buffer].transport == Transport::none)
    refuse_op(f, op, fmt::format("{} is a buffer and no channel", f[op.buffer].name),
              "declare it as a channel, and say how its tiles come: channel ... by tma");
  const bool nowhere = op.code == OpCode::constant || op.code == OpCode::parameter ||
                       op.code == OpCode::undefined || op.code == OpCode::dimension ||
                       asks_who_runs(op.code);
  const bool along = kind == OpKind::reduction || op.code == OpCode::enter ||
                     op.code == OpCode::scan_tiles || op.code == OpCode::combine_partials ||
                     op.code == OpCode::segment || (kind == OpKind::source && !nowhere);
  if ((along && !op.axis) || (op.axis && op.axis.index >= f.axes.size()))
    refuse_op(f, op, "it names no axis", "name one that is declared, as in index rows");
}

}  // namespace

void verify_attributes(const Function& f, const Op& op) {
  refuse_misplaced(f, op);
  verify_names(f, op);
}

bool issues_values(const Function& f, const Op& op) {
  return op.buffer && op.buffer.index < f.buffers.size() &&
         (f[op.buffer].holds_scalars() || f[op.buffer].transport == Transport::warps);
}

}  // namespace flashcore::ir
