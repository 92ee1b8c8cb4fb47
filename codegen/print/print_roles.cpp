// Producer and consumers, and how they meet.
#include "codegen/passes/rewrite.h"
#include "codegen/print/kernel_printer.h"

namespace flashcore {

using namespace ir;

void KernelPrinter::print_role(const Op& op) {
  if (role_ == nullptr) out_.blank();
  role_ = &op;
  const bool first = !std::exchange(is_behind_role_, !is_divided(f_, op));
  Writer::Scopes role;
  if (op.first_warp)
    role.push_back(out_.block("{}if (warp >= {})", first ? "" : "else ", op.first_warp));
  else if (!first)
    role.push_back(out_.block("else"));
  if (op.registers) {
    role_registers_ = op.registers;
    out_.line("fc::{}_registers<{}>();", op.registers < op.registers_at_start ? "shrink" : "grow",
              op.registers);
  }
  const auto begins = begins_;
  work_ = work_of(f_, op);
  print_block(op.body);
  begins_ = begins;
  is_behind_role_ = true;
}

void KernelPrinter::print_wait_products(const Op& op) {
  out_.line("fc::wait_products<{}>();", op.pending);
  for (std::size_t i = 0; i < op.results.size(); ++i) {
    storage_[op.results[i].index] = storage_[op.operands[i].index];
    out_.line("fc::pin({});", storage_[op.results[i].index]);
  }
}

}  // namespace flashcore
