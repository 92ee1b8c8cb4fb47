// The rings between producer and consumers: their barriers, and the slots that a role goes through.
//
// A role goes through its ring slot after slot. Which one is next, and the parity of the phase to
// wait for, are two variables that a role keeps over all tiles it works on. With many rings the
// parities are bits of one variable: the registers are wanted for more.
#include <algorithm>
#include <set>

#include "codegen/analysis/ring_barriers.h"
#include "codegen/analysis/shared_use.h"
#include "codegen/passes/rewrite.h"
#include "codegen/print/kernel_printer.h"
#include "codegen/text/index_text.h"

namespace flashcore {

using namespace ir;

/// Who waits for what, made ready by one thread.
void KernelPrinter::print_ring_barriers(const Op&) {
  std::vector<BufferId> rings;
  for (std::size_t i = 0; i < f_.buffers.size(); ++i)
    if (f_.buffers[i].full) rings.emplace_back(i);
  const bool any_empty =
      std::any_of(rings.begin(), rings.end(), [&](BufferId id) { return f_[id].empty > 0; });
  out_.comment(fmt::format("where a ring's slots say that they are full{}",
                           any_empty ? ", and that they are empty" : ""));
  for (BufferId id : rings) {
    Ring& ring = ring_names_[id];
    ring.full = names_.unique(f_[id].name + "_full");
    std::string text = fmt::format("{} = shared + {}", ring.full, f_[id].full);
    if (f_[id].empty) {
      ring.empty = names_.unique(f_[id].name + "_empty");
      text += fmt::format(", {} = shared + {}", ring.empty, f_[id].empty);
    }
    out_.line("const fc::u32 {};", text);
  }
  if (std::ranges::any_of(f_.buffers, [](const Buffer& ring) { return ring.blocks > 1; }))
    other_block_ =
        constant("fc::u32", "other_block",
                 fmt::format("fc::cluster_address(shared, {} ^ 1) - shared", cluster_rank_));
  auto one = out_.block("if (thread == 0)");
  for (std::size_t i = 0; i < source_.tensor_maps.size(); ++i)
    out_.line("fc::prefetch_map({});", fields_.map(i));
  const std::string slot = names_.unique("slot");
  for (BufferId id : rings) {
    const Ring& ring = ring_names_[id];
    Writer::Scopes loop;
    if (f_[id].stages > 1)
      loop.push_back(out_.block("for (int {0} = 0; {0} < {1}; ++{0})", slot, f_[id].stages));
    const std::string place = f_[id].stages > 1 ? slot : "";
    out_.line("fc::init_mbarrier({}, {});", in_slot(ring.full, place), fills_of(f_, id));
    if (f_[id].empty)
      out_.line("fc::init_mbarrier({}, {});", in_slot(ring.empty, place),
                f_[id].releases * f_[id].blocks);
  }
  names_.release(slot);
  out_.line("fc::publish_mbarriers();");
}

/// Where the work of a role begins.
void KernelPrinter::declare_ring_places() {
  constexpr std::size_t many = 8;
  const auto has_phases = [&](const Op& op) {
    return (op.code == OpCode::issue || op.code == OpCode::wait) && op.buffer &&
           !f_[op.buffer].beside;
  };
  std::set<BufferId> declared, with_phases;
  for_each_op(f_, work_, [&](const Op& op, BlockId) {
    if (has_phases(op)) with_phases.insert(op.buffer);
  });
  const std::string phases = with_phases.size() > many ? names_.unique("phases") : "";
  if (!phases.empty()) out_.line("unsigned {} = 0;", phases);
  int bits = 0;
  for_each_op(f_, work_, [&](const Op& op, BlockId) {
    if ((!goes_round(op) && !has_phases(op)) || !declared.insert(op.buffer).second) return;
    Ring& ring = ring_names_[op.buffer];
    ring.is_released = any_op(f_, work_, [&](const Op& other) {
      return other.code == OpCode::release && other.buffer == op.buffer;
    });
    std::string variables;
    if (f_[op.buffer].stages > 1) {
      ring.slot = names_.unique(f_[op.buffer].name + "_slot");
      variables = ring.slot + " = 0";
    }
    if (has_phases(op) && phases.empty()) {
      ring.phase = names_.unique(f_[op.buffer].name + "_phase");
      ring.next_phase = fmt::format("{} ^= 1;", ring.phase);
      append(variables, ", ", ring.phase + " = 0");
    } else if (has_phases(op)) {
      ring.phase = fmt::format("({} >> {} & 1)", phases, bits);
      ring.next_phase = fmt::format("{} ^= 1u << {};", phases, bits++);
    }
    if (!variables.empty()) out_.line("int {};", variables);
  });
}

std::string KernelPrinter::in_slot(const std::string& barrier, const std::string& slot) {
  return slot.empty() ? barrier : fmt::format("{} + {} * 8", barrier, slot);
}

std::string KernelPrinter::to_other_block(const Buffer& channel) const {
  return channel.blocks > 1 ? ", " + other_block_ : "";
}

void KernelPrinter::print_next_slot(int stages, const Ring& ring) {
  if (stages == 1) {
    out_.line("{}", ring.next_phase);
    return;
  }
  auto wrap = out_.block("if (++{} == {})", ring.slot, stages);
  out_.line("{} = 0;", ring.slot);
  if (!ring.next_phase.empty()) out_.line("{}", ring.next_phase);
}

/// Whether a conversion fills one slot of a tile after the other.
bool KernelPrinter::goes_round(const Op& convert) const {
  return convert.code == OpCode::convert && convert.buffer && f_[convert.buffer].stages > 1 &&
         convert.partials.warps == 1 && !convert.blocks;
}

/// The slot and the phase of an op of a ring, whose own place is that of the first slot that is held.
std::pair<std::string, std::string> KernelPrinter::place_ahead(const Op& op) {
  const Ring& ring = ring_names_[op.buffer];
  if (!op.pending) return {ring.slot, ring.phase};
  const std::string slot =
      constant("int", ring.slot + "_ahead",
               fmt::format("({} + {}) % {}", ring.slot, op.pending, f_[op.buffer].stages));
  return {slot, fmt::format("{} ^ ({} < {})", ring.phase, slot, ring.slot)};
}

void KernelPrinter::print_acquire(const Op& op) {
  const auto [slot, phase] = place_ahead(op);
  out_.line("fc::wait_phase({}, {} ^ 1);", in_slot(ring_names_[op.buffer].empty, slot), phase);
}

void KernelPrinter::print_issue(const Op& op) {
  const Buffer& channel = f_[op.buffer];
  if (is_bulk_copy(op)) return print_boxes(op);
  if (channel.transport == Transport::warps) {
    out_.comment(fmt::format("{} <- {}", channel.name, label(op.operands[0])));
    const std::string tile =
        constant("fc::u32", channel.name + "_given", chunk_base(channel, place_ahead(op).first));
    return print_elements(op, tile);
  }
  if (!channel.holds_scalars()) return print_copies({&op});
  const std::string slot = chunk_base(channel, ring_names_[op.buffer].slot);
  for (std::size_t i = 0; i < op.operands.size(); ++i)
    out_.line("fc::store_{}({}{}, static_cast<fc::u32>({}){});",
              channel.blocks > 1 ? "in_both" : "shared", slot, plus(4 * static_cast<int>(i)),
              scalar(op.operands[i]), to_other_block(channel));
}

void KernelPrinter::print_beside(const Op& op) {
  const Buffer& vector = f_[op.buffer];
  storage_[op.results[0].index] =
      constant("fc::u32", label(op.results[0]),
               storage_[op.operands[0].index] + plus(vector.offset - f_[vector.beside].offset));
}

void KernelPrinter::print_commit(const Op& op) {
  if (!op.buffer) return out_.line("fc::commit_copies();");
  const Ring& ring = ring_names_[op.buffer];
  const Buffer& channel = f_[op.buffer];
  if (channel.transport == Transport::warps) {
    out_.line("fc::arrive_as_warp({}, lane);", in_slot(ring.full, place_ahead(op).first));
    return;
  }
  out_.line("fc::{}({}{});", channel.blocks > 1 ? "publish_in_both" : "arrive",
            in_slot(ring.full, ring.slot), to_other_block(channel));
  if (!ring.is_released) print_next_slot(channel.stages, ring);
}

void KernelPrinter::print_wait(const Op& op) {
  if (!op.buffer) return out_.line("fc::wait_copies<{}>();", op.pending);
  const Buffer& buffer = f_[op.buffer];
  const Ring& ring = ring_names_[op.buffer];
  const auto [slot, phase] = place_ahead(op);
  const bool is_published = buffer.holds_scalars() && buffer.blocks > 1;
  const bool by_one_thread = role_ && works_in_one_thread(f_, *role_);
  out_.line("fc::{}({}, {});", is_published ? "wait_published" : "wait_phase",
            in_slot(ring.full, slot), phase);
  for (std::size_t i = 0; i < op.results.size(); ++i) {
    const std::string& called = f_[op.results[i]].name;
    const std::string at = chunk_base(buffer, slot) + plus(4 * static_cast<int>(i));
    const bool number = buffer.holds_scalars();
    storage_[op.results[i].index] =
        constant(number ? "int" : "fc::u32", called.empty() ? buffer.name : called,
                 !number        ? at
                 : is_published ? fmt::format("static_cast<int>(fc::load_published({}))", at)
                 : by_one_thread
                     ? fmt::format("static_cast<int>(fc::load_shared_word({}))", at)
                     : fmt::format("fc::uniform(static_cast<int>(fc::load_shared_word({})))", at));
  }
}

/// Zeros in the last rows of a tile, or the last elements of a vector, by all threads of the role. A row's
/// chunks fill its part of a panel, in whatever order.
void KernelPrinter::print_clearing(const Op& op) {
  const Buffer& buffer = f_[buffer_of(f_, op.operands[0])];
  const std::string tile = storage_[op.operands[0].index], first = scalar(op.operands[1]);
  if (buffer.is_vector()) {
    auto elements = out_.block("for (int at = fc::max(0, {}) + thread; at < {}; at += {})", first,
                               buffer.columns, role_->warps * 32);
    out_.line("fc::store_shared({} + at * 4, 0.f);", tile);
    return;
  }
  out_.line("const float zeros[4] = {{}};");
  for (const ChunkLoop& loop : chunk_loops(buffer)) {
    const int line = loop.width * 2, panel = buffer.rows * line;
    auto chunks = out_.block("for (int at = fc::max(0, {}) * {} + thread * 16; at < {}; at += {})",
                             first, line, panel, role_->warps * 32 * 16);
    const int offset = 2 * buffer.rows * loop.first_column;
    const auto panels = out_.repeated("panel", loop.panels, false);
    out_.line("fc::store_shared<4>({}{}{} + at, zeros);", tile, plus(offset),
              loop.panels > 1 ? fmt::format(" + panel * {}", panel) : "");
  }
}

void KernelPrinter::print_release(const Op& op) {
  const Buffer& buffer = f_[op.buffer];
  const Ring& ring = ring_names_[op.buffer];
  if (buffer.empty) {
    const std::string empty = in_slot(ring.empty, ring.slot), other = to_other_block(buffer);
    const char* const in_both = buffer.blocks > 1 ? "_in_both" : "";
    switch (releaser_of(f_, op.buffer)) {
      case Releaser::thread:  // the first block of a cluster writes the scalars of all
        out_.line("fc::arrive{}({});", buffer.blocks > 1 ? "_in_first" : "", empty);
        break;
      case Releaser::warp:
        out_.line("fc::arrive_as_warp{}({}{}, lane);", in_both, empty, other);
        break;
      case Releaser::warpgroup:
        out_.line("fc::arrive{}_if(thread % {} == 0, {}{});", in_both, group_threads, empty, other);
        break;
    }
  }
  print_next_slot(buffer.stages, ring);
}

}  // namespace flashcore
