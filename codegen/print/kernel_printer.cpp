// The walk over blocks: scalars, loops and what they carry.
#include "codegen/print/kernel_printer.h"

#include <string_view>
#include <utility>

#include "codegen/passes/rewrite.h"
#include "codegen/text/index_text.h"
#include "dsl/error.h"

namespace flashcore {

using namespace ir;

KernelSource KernelPrinter::print() {
  storage_.resize(f_.values.size());
  uses_ = count_uses(f_);
  segments_.resize(f_.axes.size());
  collect_arguments();
  collect_tensor_maps();
  fields_ = Fields(f_, source_);
  print_kernel();
  const std::string kernel = out_.take();
  fields_.lay_out(source_);
  print_parameters();
  out_.blank();
  source_.body = out_.take() + kernel;
  return std::move(source_);
}

void KernelPrinter::print_kernel() {
  const std::string cluster =
      source_.cluster > 1 ? fmt::format("__cluster_dims__({}, 1, 1) ", source_.cluster) : "";
  out_.line("extern \"C\" __global__ void {}__launch_bounds__({}, {})", cluster, source_.threads,
            source_.min_blocks);
  auto kernel = out_.block("{}(const __grid_constant__ Parameters p)", source_.entry);
  print_grid();
  // All lanes of a warp have one number; that the compiler knows it keeps addresses out of their
  // registers.
  out_.line("const int thread = fc::thread_index(), lane = thread % 32, warp = {};",
            roles_of(f_).empty() ? "thread / 32" : "fc::uniform(thread / 32)");
  if (!f_.buffers.empty()) out_.line("const fc::u32 shared = fc::shared_base();");
  declare_lane_offsets();
  print_block(f_.body);
}

void KernelPrinter::print_block(BlockId block) {
  const BlockId outer = std::exchange(block_, block);
  if (block == work_) declare_ring_places();
  const auto& ops = f_[block].ops;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const std::vector<const Op*> together = copied_together(block, i);
    if (together.size() < 2) {
      print_op(f_[ops[i]]);
      continue;
    }
    print_copies(together);
    i += together.size() - 1;
  }
  block_ = outer;
}

/// Copies of one tile's rows at computed positions, one behind the other.
std::vector<const Op*> KernelPrinter::copied_together(BlockId block, std::size_t first) const {
  std::vector<const Op*> copies;
  for (std::size_t i = first; i < f_[block].ops.size(); ++i) {
    const Op& op = f_[f_[block].ops[i]];
    if (op.code != OpCode::issue || !op.body || is_bulk_copy(op)) break;
    if (!copies.empty() && op.operands != copies[0]->operands) break;
    copies.push_back(&op);
  }
  return copies;
}

// ---- operations
//
// At a named barrier some warps of a block meet while others go on. A block has 16; barrier 0 is that
// of all threads. Each purpose gets a run of four, so that every warpgroup of a role may have one of
// its own: from 1 on where its warps meet, and from 5 on where it waits in ping-pong. At 9 all warps
// of a role meet.
//
// In ping-pong a warpgroup waits at its barrier for the arrival of the one before it. The last
// warpgroup arrives at the barrier of the first in the beginning, and the first takes the last
// arrival in the end.

void KernelPrinter::print_op(const Op& op) {
  using enum OpCode;
  using Self = KernelPrinter;
  static constexpr std::pair<OpCode, std::string_view> statements[] = {
      {barrier, "fc::barrier();"},
      {complete_stores, "if (thread % 128 == 0) fc::wait_stores<0>();"},
      {cluster_sync, "fc::arrive_at_cluster();"},
      {cluster_sync, "fc::wait_cluster();"},
      {cluster_wait, "fc::wait_cluster();"},
      {drain_stores, "if (thread % 128 == 0) fc::wait_stores_read<{pending}>();"},
      {enter_cluster, "fc::enter_cluster();"},
      {fence_async, "fc::fence_async();"},
      {launch_dependents, "fc::launch_dependents();"},
      {meet_role, "fc::meet(9, {threads});"},
      {meet_warpgroup, "fc::meet(1 + warp / 4, 128);"},
      {ping_pong_arrive, "fc::signal(5 + (warp / 4 + 1) % {groups}, 256);"},
      {ping_pong_close, "if (warp / 4 == 0) fc::meet(5, 256);"},
      {ping_pong_open, "if (warp / 4 == {last_group}) fc::signal(5, 256);"},
      {ping_pong_wait, "fc::meet(5 + warp / 4, 256);"},
      {wait_for_kernels, "fc::wait_for_kernels();"}};
  static constexpr std::pair<OpCode, Print Self::*> functions[] = {
      {acquire, &Self::print_acquire},
      {all_lanes, &Self::print_vote},
      {all_within, &Self::print_bound},
      {claim_tile, &Self::print_draw},
      {clear_rows, &Self::print_clearing},
      {cluster_read, &Self::print_from_shared},
      {combine_partials, &Self::print_combination},
      {commit, &Self::print_commit},
      {convert, &Self::print_convert},
      {divide, &Self::print_divide},
      {dot, &Self::print_dot},
      {enter, &Self::print_enter},
      {find_segment, &Self::print_find_segment},
      {searchsorted, &Self::print_searchsorted},
      {if_, &Self::print_if},
      {in_place, &Self::print_in_place},
      {init_mbarriers, &Self::print_ring_barriers},
      {issue, &Self::print_issue},
      {load, &Self::print_load},
      {loop, &Self::print_loop},
      {nest, &Self::print_nest},
      {next_tile, &Self::print_next_tile},
      {read_slot, &Self::print_slot},
      {beside, &Self::print_beside},
      {reduce_max, &Self::print_reduction},
      {reduce_min, &Self::print_reduction},
      {reduce_sum, &Self::print_reduction},
      {release, &Self::print_release},
      {release_turn, &Self::print_turn},
      {role, &Self::print_role},
      {scan_tiles, &Self::print_scan},
      {segment, &Self::print_segment},
      {store, &Self::print_store},
      {tile_is_full, &Self::print_full_tile},
      {tile_loop, &Self::print_tile_loop},
      {wait, &Self::print_wait},
      {wait_products, &Self::print_wait_products},
      {wait_turn, &Self::print_turn}};

  if (kind_of(op.code) == OpKind::elementwise)
    return f_[op.results[0]].layout.space == Space::operand ? print_pack(op) : print_scalar(op);
  // Sources and views have no text of their own, and a yield that of its region's op.
  bool printed = kind_of(op.code) == OpKind::source || op.code == transpose || op.code == yield;
  const int warps = role_ ? role_->warps : 0, groups = warps / 4;
  for (const auto& [code, text] : statements)
    if (code == op.code) {
      out_.line("{}",
                fmt::format(fmt::runtime(text), fmt::arg("groups", groups),
                            fmt::arg("last_group", groups - 1), fmt::arg("threads", warps * 32),
                            fmt::arg("pending", op.pending)));
      printed = true;
    }
  for (const auto& [code, print] : functions)
    if (code == op.code) {
      (this->*print)(op);
      printed = true;
    }
  if (!printed) throw InternalError(fmt::format("{} has no text", name_of(op.code)));
}

void KernelPrinter::print_slot(const Op& op) {
  storage_[op.results[0].index] =
      constant("fc::u32", label(op.results[0]), chunk_base(f_[op.buffer], scalar(op.operands[0])));
}

void KernelPrinter::print_in_place(const Op& op) {
  storage_[op.results[0].index] = constant("float", f_[op.results[0]].name,
                                           fmt::format("fc::in_place({})", scalar(op.operands[0])));
}

void KernelPrinter::print_scalar(const Op& op) {
  std::vector<std::string> operands;
  for (ValueId operand : op.operands) operands.push_back(scalar(operand));
  const ValueId value = op.results[0];
  std::string text = expression(op, operands);
  if (f_[value].name.empty() && uses_[value.index] == 1 && text.size() < 48) {
    storage_[value.index] = std::move(text);  // a part of the one expression that reads it
    return;
  }
  storage_[value.index] = constant(array_type(value), f_[value].name, without_parentheses(text));
}

void KernelPrinter::print_convert(const Op& op) {
  const double* number = constant_of(f_, op.operands[0]);
  if (op.buffer && number)
    print_constant_tile(op, *number);
  else if (op.buffer)
    print_to_shared(op);
  else if (f_[op.results[0]].layout.space == Space::operand)
    print_operand_load(op);
  else if (f_[op.operands[0]].layout.space == Space::registers)
    print_shuffles(op);
  else
    print_from_shared(op);
  if (goes_round(op)) print_next_slot(f_[op.buffer].stages, ring_names_[op.buffer]);
}

}  // namespace flashcore
