// Reductions: over what a thread holds, then over the lanes that share it.
#include "codegen/print/kernel_printer.h"

namespace flashcore {

using namespace ir;

namespace {

/// What a reduction starts from.
const char* start_of(OpCode reduction, DType dtype) {
  if (reduction == OpCode::reduce_sum) return "0.f";
  const bool largest = reduction == OpCode::reduce_max;
  if (dtype == DType::i32) return largest ? "-2147483647 - 1" : "2147483647";
  return largest ? "-fc::infinity()" : "fc::infinity()";
}

}  // namespace

void KernelPrinter::print_lane_combination(OpCode reduction, const std::string& target,
                                           const AxisLayout& layout) {
  for (int mask = 1; mask < layout.lanes; mask *= 2) {
    const std::string other =
        fmt::format("fc::shuffle_xor({}, {})", target, mask * layout.lane_divisor);
    out_.line("{} = {};", target, combined(reduction, target, other));
  }
}

/// Prints what a reduction starts from; returns the name of its partial results, if it has any. A
/// vector that every warp holds whole becomes a scalar, the same in every thread.
std::string KernelPrinter::start_reduction(const Op& op) {
  const ValueId value = op.results[0];
  const char* const start = start_of(op.code, f_[value].type.dtype);
  const std::string& name = f_[value].name;
  out_.comment(fmt::format("{} = {}({}, {}){}", name.empty() ? name_of(op.code) : name,
                           name_of(op.code), label(op.operands[0]), f_[op.axis].name,
                           op.scope == ReductionScope::lane   ? ", each lane its partial"
                           : op.scope == ReductionScope::warp ? ", each warp its partial"
                                                              : ""));
  if (f_[value].type.is_scalar()) {
    storage_[value.index] = names_.unique(name);
    out_.line("{} {} = {};", array_type(value), storage_[value.index], start);
    return {};
  }
  declare(value, op.code == OpCode::reduce_sum);
  // A sum keeps step with the exponentials it adds; a maximum everything waits for. So its partial
  // results stand side by side: each element waits for the one before it in its own chain only.
  if (op.code == OpCode::reduce_sum) return {};
  const Shape rows = shape_of(value), from = shape_of(op.operands[0]);
  const int chains = schedule_.reduction_chains;
  const bool chained = chains > 1 && from.axes.size() == 2 && from.axes[1] == op.axis &&
                       from.layouts[1].fragments % chains == 0;
  std::string partials;
  if (chained) {
    partials = names_.unique(storage_[value.index] + "_partials");
    out_.line("{} {}[{}][{}][{}];", array_type(value), partials, rows.layouts[0].fragments,
              rows.layouts[0].slots, chains);
  }
  Loops cursor = open_loops(rows);
  if (chained) cursor.scopes.push_back(out_.unrolled("c", chains, false));
  out_.line("{} = {};",
            chained ? fmt::format("{}[{}][{}][c]", partials, cursor.fragments[0], cursor.slots[0])
                    : element(value, cursor),
            start);
  return partials;
}

void KernelPrinter::print_element_of_reduction(const Op& op, const std::string& partials,
                                               const Cursor& cursor) {
  const ValueId from = op.operands[0], value = op.results[0];
  const std::string target =
      partials.empty()
          ? element(value, cursor)
          : fmt::format("{}[{}][{}][{} % {}]", partials, cursor.fragments[0], cursor.slots[0],
                        cursor.fragments[1], schedule_.reduction_chains);
  out_.line("{} = {};", target, combined(op.code, target, element(from, cursor)));
}

/// Combines the partials of a thread, and then those of the lanes with the same row, unless each keeps
/// its own.
void KernelPrinter::finish_reduction(const Op& op, const std::string& partials) {
  const Shape shape = shape_of(op.operands[0]);
  const AxisLayout& along = shape.layouts[shape.axes[0] == op.axis ? 0 : 1];
  const bool by_lanes = op.scope != ReductionScope::lane && along.lanes > 1;
  if (partials.empty() && !by_lanes) return;
  if (f_[op.results[0]].type.is_scalar())
    return print_lane_combination(op.code, scalar(op.results[0]), along);
  const Loops cursor = open_loops(shape_of(op.results[0]), true);
  const std::string target = element(op.results[0], cursor);
  if (!partials.empty()) {
    const auto part = [&](int c) {
      return fmt::format("{}[{}][{}][{}]", partials, cursor.fragments[0], cursor.slots[0], c);
    };
    std::string all = part(0);
    for (int c = 1; c < schedule_.reduction_chains; ++c) all = combined(op.code, all, part(c));
    out_.line("{} = {};", target, all);
  }
  if (by_lanes) print_lane_combination(op.code, target, along);
}

void KernelPrinter::print_reduction(const Op& op) {
  const std::string partials = start_reduction(op);
  print_element_of_reduction(op, partials, open_loops(shape_of(op.operands[0])));
  finish_reduction(op, partials);
}

void KernelPrinter::print_combination(const Op& op) {
  const ValueId value = op.results[0], partials = op.operands[0];
  if (f_[partials].layout.space == Space::shared) return print_from_shared(op);
  become(value, partials);
  out_.comment(fmt::format("{}: partials of the lanes, combined", label(value)));
  const Loops cursor = open_loops(shape_of(value), true);
  print_lane_combination(op.reduction, element(value, cursor), op.partials);
}

}  // namespace flashcore
