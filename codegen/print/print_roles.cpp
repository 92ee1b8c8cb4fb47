// Producer and consumers, the rings between them, and what the copy engine moves.
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
#include "dsl/error.h"

namespace flashcore {

using namespace ir;

namespace {

constexpr int group_warps = 4, group_threads = 128;

/// The tensor dimension that the rows of a tile run along.
std::size_t row_dimension(const Op& access) {
  for (std::size_t d = 0; d < access.coordinates.size(); ++d)
    if (access.coordinates[d].axis) return d;
  throw InternalError("a tile without rows");
}

/// What the region of an issue yields for a computed coordinate.
ValueId first_of_box(const Function& f, const Op& issue, std::size_t dim) {
  const auto before = issue.coordinates.begin();
  const auto number = std::count_if(before, before + static_cast<std::ptrdiff_t>(dim),
                                    [](const Coordinate& c) { return c.computed; });
  return f[f[issue.body].ops.back()].operands[static_cast<std::size_t>(number)];
}

}  // namespace

// ---- tensor maps

/// The maps of all copies of whole tiles: one for every width of panel.
void KernelPrinter::collect_tensor_maps() {
  for_each_op(f_, f_.body, [&](const Op& op, BlockId) {
    const bool stores = op.code == OpCode::store &&
                        f_[op.operands[0]].layout.space == Space::shared &&
                        schedule_.copy == CopyInstruction::tma;
    if (!is_bulk_copy(op) && !stores) return;
    const Buffer& buffer = f_[stores ? f_.definition(op.operands[0])->buffer : op.buffer];
    if (!op.coordinates.back().axis)
      throw SpecError({fmt::format("a product of {} along dimension {}", f_[op.tensor].name,
                                   op.coordinates.size() - 2),
                       "bulk copies need neighbouring elements in the last axis of the tile",
                       "index the last dimension with the tile's last axis, and transpose the tile",
                       op.where});
    if (f_[op.coordinates.back().axis].ragged && !op.coordinates.back().computed)
      throw SpecError({fmt::format("a product of {} along the ragged axis {}", f_[op.tensor].name,
                                   f_[op.coordinates.back().axis].name),
                       "bulk copies need rows that begin at a multiple of 8 elements",
                       "index the last dimension with an axis that is not ragged", op.where});
    require_alignment(op.tensor, 16);
    for (const ChunkLoop& panels : chunk_loops(buffer)) {
      const TensorMapArgument map{static_cast<int>(op.tensor.index),
                                  static_cast<int>(row_dimension(op)), stores ? 64 : buffer.rows,
                                  panels.width};
      const auto same = [&](const TensorMapArgument& other) {
        return other.tensor == map.tensor && other.row_dim == map.row_dim &&
               other.rows == map.rows && other.width == map.width;
      };
      if (std::none_of(source_.tensor_maps.begin(), source_.tensor_maps.end(), same))
        source_.tensor_maps.push_back(map);
    }
  });
}

std::string KernelPrinter::map_of(const Op& op, int rows, int width) const {
  for (std::size_t i = 0; i < source_.tensor_maps.size(); ++i) {
    const TensorMapArgument& map = source_.tensor_maps[i];
    if (map.tensor == static_cast<int>(op.tensor.index) && map.rows == rows && map.width == width &&
        map.row_dim == static_cast<int>(row_dimension(op)))
      return fields_.map(i);
  }
  throw InternalError("no tensor map for a copy");
}

/// The coordinates of a box, the dense dimension first: `row` and `column` are added to the tile's
/// own.
std::string KernelPrinter::box_coordinates(const Op& op, const std::string& row,
                                           const std::string& column) {
  std::string text;
  const std::size_t row_dim = row_dimension(op);
  for (std::size_t d = op.coordinates.size(); d-- > 0;) {
    const Coordinate& c = op.coordinates[d];
    std::string at = c.computed ? scalar(first_of_box(f_, op, d))
                     : c.value  ? scalar(c.value)
                                : begin(c.axis);
    const auto plus = [&](const std::string& term) {
      if (term != "0" && !term.empty()) at = at == "0" ? term : fmt::format("{} + {}", at, term);
    };
    if (c.axis && !c.computed) plus(segments_[f_.origin(c.axis).index].first);
    if (d == row_dim) plus(row);
    if (d + 1 == op.coordinates.size()) plus(column);
    text += (text.empty() ? "" : ", ") + at;
  }
  return text;
}

// ---- roles

bool KernelPrinter::has_roles() const {
  return std::any_of(f_[f_.body].ops.begin(), f_[f_.body].ops.end(),
                     [&](OpId id) { return f_[id].code == OpCode::role; });
}

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
  {
    auto one = out_.block("if (thread == 0)");
    for (std::size_t i = 0; i < source_.tensor_maps.size(); ++i)
      out_.line("fc::prefetch_map({});", fields_.map(i));
    const std::string slot = names_.unique("slot");
    for (BufferId id : rings) {
      const Ring& ring = ring_names_[id];
      const int stages = f_[id].stages;
      Writer::Scopes loop;
      if (stages > 1)
        loop.push_back(out_.block("for (int {0} = 0; {0} < {1}; ++{0})", slot, stages));
      const std::string place = stages > 1 ? slot : "";
      out_.line("fc::init_mbarrier({}, 1);", in_slot(ring.full, place));
      if (f_[id].empty)
        out_.line("fc::init_mbarrier({}, {});", in_slot(ring.empty, place), f_[id].releases);
    }
    names_.release(slot);
    out_.line("fc::publish_mbarriers();");
  }
}

/// Where the work of a role begins.
void KernelPrinter::declare_ring_places() {
  constexpr std::size_t many = 8;
  std::set<BufferId> declared, with_phases;
  for_each_op(f_, work_, [&](const Op& op, BlockId) {
    if ((op.code == OpCode::issue || op.code == OpCode::wait) && op.buffer)
      with_phases.insert(op.buffer);
  });
  const std::string phases = with_phases.size() > many ? names_.unique("phases") : "";
  if (!phases.empty()) out_.line("unsigned {} = 0;", phases);
  int bits = 0;
  for_each_op(f_, work_, [&](const Op& op, BlockId) {
    if (goes_round(op) && declared.insert(op.buffer).second) {
      ring_names_[op.buffer].slot = names_.unique(f_[op.buffer].name + "_slot");
      out_.line("int {} = 0;", ring_names_[op.buffer].slot);
    }
    const bool goes_on = (op.code == OpCode::issue || op.code == OpCode::wait) && op.buffer;
    if (!goes_on || !declared.insert(op.buffer).second) return;
    Ring& ring = ring_names_[op.buffer];
    std::string variables;
    if (f_[op.buffer].stages > 1) {
      ring.slot = names_.unique(f_[op.buffer].name + "_slot");
      variables = ring.slot + " = 0";
    }
    if (phases.empty()) {
      ring.phase = names_.unique(f_[op.buffer].name + "_phase");
      ring.next_phase = fmt::format("{} ^= 1;", ring.phase);
      variables += fmt::format("{}{} = 0", variables.empty() ? "" : ", ", ring.phase);
    } else {
      ring.phase = fmt::format("({} >> {} & 1)", phases, bits);
      ring.next_phase = fmt::format("{} ^= 1u << {};", phases, bits++);
    }
    if (!variables.empty()) out_.line("int {};", variables);
  });
}

void KernelPrinter::print_role(const Op& op) {
  const bool first = role_ == nullptr;
  role_ = &op;
  if (first) out_.blank();
  Writer::Scopes role;
  if (op.first_warp)
    role.push_back(out_.block("{}if (warp >= {})", first ? "" : "else ", op.first_warp));
  else if (!first)
    role.push_back(out_.block("else"));
  if (op.registers)
    out_.line("fc::{}_registers<{}>();", op.registers < op.registers_at_start ? "shrink" : "grow",
              op.registers);
  const auto begins = begins_;
  const auto pointers = pointers_;
  work_ = work_of(f_, op);
  print_block(op.body);
  begins_ = begins;
  pointers_ = pointers;
}

// ---- rings

std::string KernelPrinter::in_slot(const std::string& barrier, const std::string& slot) {
  return slot.empty() ? barrier : fmt::format("{} + {} * 8", barrier, slot);
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

void KernelPrinter::print_acquire(const Op& op) {
  const Ring& ring = ring_names_[op.buffer];
  out_.line("fc::wait_phase({}, {} ^ 1);", in_slot(ring.empty, ring.slot), ring.phase);
}

void KernelPrinter::print_issue(const Op& op) {
  const Buffer& channel = f_[op.buffer];
  switch (channel.transport) {
    case Transport::tma:
      print_boxes(op);
      break;
    case Transport::store:
      out_.line("fc::store_shared({}, static_cast<fc::u32>({}));",
                chunk_base(channel, ring_names_[op.buffer].slot), scalar(op.operands[0]));
      break;
    default:
      print_copies({&op});
  }
}

/// A tile, as boxes of a panel each. They say themselves when they have completed. The next
/// acquired slot is another; who reads the channel itself goes on where it releases.
void KernelPrinter::print_boxes(const Op& op) {
  const Buffer& buffer = f_[op.buffer];
  const Ring& ring = ring_names_[op.buffer];
  const std::string slot = op.operands.empty() ? ring.slot : scalar(op.operands[0]);
  const std::string full = in_slot(ring.full, slot), target = chunk_base(buffer, slot);
  out_.comment(fmt::format("{} <- {}", buffer.name, f_[op.tensor].name));
  if (op.body) print_block(op.body);
  out_.line("fc::arrive_expect_tx({}, {});", full, buffer.slot_bytes());
  for (const ChunkLoop& loop : chunk_loops(buffer))
    for (int panel = 0; panel < loop.panels; ++panel) {
      const int column = loop.first_column + panel * loop.width;
      const int offset = size_of(buffer.dtype) * buffer.rows * column;
      out_.line("fc::load_box({}{}, {}, {}, {});", target,
                offset ? fmt::format(" + {}", offset) : "", map_of(op, buffer.rows, loop.width),
                full, box_coordinates(op, "0", std::to_string(column)));
    }
  if (buffer.empty) print_next_slot(buffer.stages, ring);
}

void KernelPrinter::print_commit(const Op& op) {
  if (!op.buffer) return out_.line("fc::commit_copies();");
  const Ring& ring = ring_names_[op.buffer];
  out_.line("fc::arrive({});", in_slot(ring.full, ring.slot));
  print_next_slot(f_[op.buffer].stages, ring);
}

void KernelPrinter::print_wait(const Op& op) {
  if (!op.buffer) return out_.line("fc::wait_copies<{}>();", op.pending);
  const Buffer& buffer = f_[op.buffer];
  const Ring& ring = ring_names_[op.buffer];
  const std::string& called = f_[op.results[0]].name;
  const std::string name = names_.unique(called.empty() ? buffer.name : called);
  storage_[op.results[0].index] = name;
  std::string slot = ring.slot, phase = ring.phase;
  if (op.pending) {  // the ring's own place is that of the first slot which is held
    slot = names_.unique(ring.slot + "_ahead");
    out_.line("const int {} = ({} + {}) % {};", slot, ring.slot, op.pending, buffer.stages);
    phase = fmt::format("{} ^ ({} < {})", ring.phase, slot, ring.slot);
  }
  out_.line("fc::wait_phase({}, {});", in_slot(ring.full, slot), phase);
  if (buffer.holds_scalars())
    return out_.line("const int {} = fc::uniform(static_cast<int>(fc::load_shared_word({})));",
                     name, chunk_base(buffer, slot));
  out_.line("const fc::u32 {} = {};", name, chunk_base(buffer, slot));
}

/// Zeros in the last rows of a tile, by all threads of the role. A row's chunks fill its part of a
/// panel, in whatever order.
void KernelPrinter::print_clearing(const Op& op) {
  const Buffer& buffer = f_[buffer_of(f_, op.operands[0])];
  const std::string tile = storage_[op.operands[0].index], first = scalar(op.operands[1]);
  out_.line("const float zeros[4] = {{}};");
  for (const ChunkLoop& loop : chunk_loops(buffer)) {
    const int line = loop.width * 2, panel = buffer.rows * line;
    auto chunks = out_.block("for (int at = fc::max(0, {}) * {} + thread * 16; at < {}; at += {})",
                             first, line, panel, role_->warps * 32 * 16);
    const int offset = 2 * buffer.rows * loop.first_column;
    Writer::Scopes panels;
    if (loop.panels > 1) panels.push_back(out_.unrolled("panel", loop.panels, false));
    out_.line("fc::store_shared<4>({}{}{} + at, zeros);", tile,
              offset ? fmt::format(" + {}", offset) : "",
              loop.panels > 1 ? fmt::format(" + panel * {}", panel) : "");
  }
}

void KernelPrinter::print_release(const Op& op) {
  const Buffer& buffer = f_[op.buffer];
  const Ring& ring = ring_names_[op.buffer];
  if (buffer.empty) {
    const std::string empty = in_slot(ring.empty, ring.slot);
    switch (releaser_of(f_, op.buffer)) {
      case Releaser::thread:
        out_.line("fc::arrive({});", empty);
        break;
      case Releaser::warp:
        out_.line("fc::arrive_as_warp({}, lane);", empty);
        break;
      case Releaser::warpgroup:
        out_.line("if (thread % {} == 0) fc::arrive({});", group_threads, empty);
        break;
    }
  }
  print_next_slot(buffer.stages, ring);
}

void KernelPrinter::print_wait_products(const Op& op) {
  out_.line("fc::wait_products<{}>();", op.pending);
  for (std::size_t i = 0; i < op.results.size(); ++i) {
    storage_[op.results[i].index] = storage_[op.operands[i].index];
    out_.line("fc::pin({});", storage_[op.results[i].index]);
  }
}

// ---- ping-pong

/// A warpgroup waits at a barrier of its own for the arrival of the one before it. The last
/// warpgroup arrives at the barrier of the first in the beginning, and the first takes the last
/// arrival in the end.
void KernelPrinter::print_ping_pong(const Op& op) {
  const int groups = role_->warps / group_warps, two = 2 * group_threads;
  if (op.code == OpCode::ping_pong_open)
    out_.line("if (warp / 4 == {}) fc::signal({}, {});", groups - 1, op.barrier, two);
  else if (op.code == OpCode::ping_pong_close)
    out_.line("if (warp / 4 == 0) fc::meet({}, {});", op.barrier, two);
  else if (op.code == OpCode::ping_pong_wait)
    out_.line("fc::meet({} + warp / 4, {});", op.barrier, two);
  else
    out_.line("fc::signal({} + (warp / 4 + 1) % {}, {});", op.barrier, groups, two);
}

/// The warps of a warpgroup, or of the role.
void KernelPrinter::print_meeting(const Op& op) {
  if (op.code == OpCode::meet_warpgroup)
    out_.line("fc::meet({} + warp / 4, 128);", op.barrier);
  else
    out_.line("fc::meet({}, {});", op.barrier, role_->warps * 32);
}

// ---- stores

/// Each warpgroup hands its 64 rows to the copy engine, or its columns of 64 rows.
void KernelPrinter::print_bulk_store(const Op& op) {
  const Op& staging = *f_.definition(op.operands[0]);
  const Buffer& buffer = f_[staging.buffer];
  const int size = size_of(buffer.dtype), groups = f_[staging.operands[0]].layout.axes[1].warps,
            share = buffer.columns / groups;
  const char* function = op.accumulation == Accumulation::none        ? "store_box"
                         : op.accumulation == Accumulation::any_order ? "add_box<false>"
                                                                      : "add_box<true>";
  out_.comment(fmt::format("store {}", f_[op.tensor].name));
  auto one = out_.block("if (thread % {} == 0)", group_threads);
  for (const ChunkLoop& loop : chunk_loops(buffer))
    for (int panel = 0; panel < loop.panels / groups; ++panel) {
      const int column = loop.first_column + panel * loop.width;
      const int offset = size * buffer.rows * column;
      const std::string first =
          groups > 1 ? fmt::format("warp / 4 * {} + {}", share, column) : std::to_string(column);
      out_.line("fc::{}({}, {}{} + warp / 4 * {}, {});", function, map_of(op, 64, loop.width),
                storage_[op.operands[0].index], offset ? fmt::format(" + {}", offset) : "",
                groups > 1 ? size * buffer.rows * share : 64 * loop.width * size,
                box_coordinates(op, groups > 1 ? "0" : "warp / 4 * 64", first));
    }
  out_.line("fc::commit_stores();");
}

void KernelPrinter::print_drain(const Op& op) {
  out_.line("if (thread % {} == 0) fc::wait_stores_read<{}>();", group_threads, op.pending);
}

}  // namespace flashcore
