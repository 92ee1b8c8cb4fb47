// The walk over blocks: scalars, loops and what they carry.
#include "codegen/print/kernel_printer.h"

#include <algorithm>
#include <utility>

#include "codegen/analysis/shared_use.h"
#include "codegen/passes/rewrite.h"
#include "dsl/error.h"

namespace flashcore {

using namespace ir;

KernelSource KernelPrinter::print() {
  storage_.resize(f_.values.size());
  defining_block_.assign(f_.values.size(), BlockId{});
  uses_ = count_uses(f_);
  segments_.resize(f_.axes.size());
  for (std::size_t b = 0; b < f_.blocks.size(); ++b)
    for (ValueId argument : f_.blocks[b].arguments) defining_block_[argument.index] = BlockId(b);
  for_each_op(f_, f_.body, [&](const Op& op, BlockId block) {
    for (ValueId result : op.results) defining_block_[result.index] = block;
  });

  collect_arguments();
  collect_tensor_maps();
  fields_ = Fields(f_, source_);
  print_kernel();
  const std::string kernel = out_.take();
  lay_out_parameters(kernel);
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
            has_roles() ? "fc::uniform(thread / 32)" : "thread / 32");
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

void KernelPrinter::print_op(const Op& op) {
  switch (op.code) {
    case OpCode::dot:
      print_dot(op);
      break;
    case OpCode::convert:
      print_convert(op);
      break;
    case OpCode::combine_partials:
      print_combination(op);
      break;
    case OpCode::cluster_read:
      print_from_shared(op);
      break;
    case OpCode::cluster_wait:
      out_.line("fc::wait_cluster();");
      break;
    case OpCode::cluster_sync:
      out_.line("fc::arrive_at_cluster();");
      out_.line("fc::wait_cluster();");
      break;
    case OpCode::wait_for_kernels:
      out_.line("fc::wait_for_kernels();");
      break;
    case OpCode::wait_turn:
    case OpCode::release_turn:
      print_turn(op);
      break;
    case OpCode::launch_dependents:
      out_.line("fc::launch_dependents();");
      break;
    case OpCode::enter_cluster:
      out_.line("fc::enter_cluster();");
      break;
    case OpCode::segment:
      print_segment(op);
      break;
    case OpCode::load:
      print_load(op);
      break;
    case OpCode::store:
      print_store(op);
      break;
    case OpCode::acquire:
      print_acquire(op);
      break;
    case OpCode::issue:
      print_issue(op);
      break;
    case OpCode::commit:
      print_commit(op);
      break;
    case OpCode::wait:
      print_wait(op);
      break;
    case OpCode::release:
      print_release(op);
      break;
    case OpCode::read_slot: {
      const Buffer& buffer = f_[op.buffer];
      const std::string name = names_.unique(label(op.results[0]));
      storage_[op.results[0].index] = name;
      out_.line("const fc::u32 {} = {};", name, chunk_base(buffer, scalar(op.operands[0])));
      break;
    }
    case OpCode::transpose:
      break;
    case OpCode::init_mbarriers:
      print_ring_barriers();
      break;
    case OpCode::role:
      print_role(op);
      break;
    case OpCode::wait_products:
      print_wait_products(op);
      break;
    case OpCode::ping_pong_open:
    case OpCode::ping_pong_close:
    case OpCode::ping_pong_wait:
    case OpCode::ping_pong_arrive:
      print_ping_pong(op);
      break;
    case OpCode::clear_rows:
      print_clearing(op);
      break;
    case OpCode::fence_async:
      out_.line("fc::fence_async();");
      break;
    case OpCode::meet_warpgroup:
      out_.line("fc::meet({} + warp / 4, 128);", op.barrier);
      break;
    case OpCode::meet_role:
      out_.line("fc::meet({}, {});", op.barrier, role_->warps * 32);
      break;
    case OpCode::drain_stores:
      print_drain();
      break;
    case OpCode::barrier:
      out_.line("fc::barrier();");
      break;
    case OpCode::if_:
      print_if(op);
      break;
    case OpCode::all_lanes:
      print_vote(op);
      break;
    case OpCode::all_within:
      print_bound(op);
      break;
    case OpCode::in_place:
      storage_[op.results[0].index] = names_.unique(f_[op.results[0]].name);
      out_.line("const float {} = fc::in_place({});", storage_[op.results[0].index],
                scalar(op.operands[0]));
      break;
    case OpCode::nest:
      print_nest(op);
      break;
    case OpCode::loop:
      print_loop(op);
      break;
    case OpCode::scan_tiles:
      print_scan(op);
      break;
    case OpCode::tile_loop:
      print_tile_loop(op);
      break;
    case OpCode::enter:
      print_enter(op);
      break;
    case OpCode::divide:
      print_divide(op);
      break;
    case OpCode::claim_tile:
      print_draw(op);
      break;
    case OpCode::next_tile:
      print_next_tile(op);
      break;
    case OpCode::tile_is_full:
      storage_[op.results[0].index] = names_.unique("full");
      out_.line("const bool {} = !{};", storage_[op.results[0].index],
                tile_set_call("tile_is_masked", op, scalar(op.operands[0])));
      break;
    case OpCode::yield:
      break;  // print_loop places it
    case OpCode::reduce_max:
    case OpCode::reduce_min:
    case OpCode::reduce_sum:
      print_reduction(op);
      break;
    default:
      if (kind_of(op.code) == OpKind::source) break;
      if (f_[op.results[0]].layout.space == Space::operand)
        print_pack(op);
      else
        print_scalar(op);
  }
}

void KernelPrinter::print_scalar(const Op& op) {
  std::vector<std::string> operands;
  for (ValueId operand : op.operands) operands.push_back(scalar(operand));
  const ValueId value = op.results[0];
  const DType dtype = f_[value].type.dtype;
  std::string text = expression(op, operands);
  if (f_[value].name.empty() && uses_[value.index] == 1 && text.size() < 48) {
    storage_[value.index] = std::move(text);  // a part of the one expression that reads it
    return;
  }
  if (text.starts_with("(")) text = text.substr(1, text.size() - 2);
  storage_[value.index] = names_.unique(f_[value].name);
  out_.line("const {} {} = {};",
            dtype == DType::i32  ? "int"
            : dtype == DType::i1 ? "bool"
                                 : "float",
            storage_[value.index], text);
}

void KernelPrinter::print_store(const Op& op) {
  const ValueId value = op.operands[0];
  if (f_[value].type.is_scalar()) {
    const std::string pointer = source_pointer(op), name = names_.unique("element");
    out_.comment(fmt::format("store {} = {}", f_[op.tensor].name, label(value)));
    out_.line("const {} {}[1] = {{{}}};", array_type(value), name, scalar(value));
    out_.line("if (thread == 0) fc::store_global<1>({}, {});", pointer, name);
    return;
  }
  if (f_[op.operands[0]].layout.space == Space::shared)
    schedule_.copy == CopyInstruction::tma ? print_bulk_store(op) : print_staged_store(op);
  else if (stores_by_quads(op))
    print_quad_store(op);
  else
    print_access(op, op.operands[0], true);
}

void KernelPrinter::print_convert(const Op& op) {
  const Op* made_by = f_.definition(op.operands[0]);
  if (op.buffer && made_by && made_by->code == OpCode::constant)
    print_constant_tile(op, made_by->number);
  else if (op.buffer)
    f_[op.operands[0]].layout.space == Space::opaque ? print_blocks_to_shared(op)
                                                     : print_to_shared(op);
  else if (f_[op.results[0]].layout.space == Space::operand)
    print_operand_load(op);
  else if (f_[op.operands[0]].layout.space == Space::registers)
    print_shuffles(op);
  else
    print_from_shared(op);
}

}  // namespace flashcore
