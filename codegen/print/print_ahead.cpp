// A block without a producer: loops that fill rings ahead of the products that read them.
//
// Such a loop has a place of its own for every ring, the tile that it gets next. One thread asks
// for as many as there are slots where the loop stands, and for one more wherever a slot is
// released. There it needs to ask nobody: its own wait has seen the last product on the slot land,
// and a product of a warpgroup lands for all four warps. Which tile is next, which may take a while
// among surveyed ones, it finds out while it would wait for that product anyway.
#include <utility>

#include "codegen/print/kernel_printer.h"

namespace flashcore {

using namespace ir;

void KernelPrinter::print_ahead(const Op& loop) {
  std::vector<Ring*> rings;
  const auto [begin, end] = loop_bounds(loop);
  out_.comment(fmt::format("{} tiles of {}, as many ahead as rings have slots", f_[loop.axis].name,
                           f_[loop.axis].tile));
  for (OpId id : f_[loop.body].ops) {
    const Op& fill = f_[id];
    if (fill.code != OpCode::fill_slot) continue;
    Ring& ring = ring_names_[fill.buffer];
    ring.loop = &loop;
    ring.fill = &fill;
    ring.next = names_.unique("next_" + f_[fill.buffer].name);
    out_.line("int {} = {};", ring.next, loop.descending ? end : begin + " - 1");
    rings.push_back(&ring);
  }
  auto one = out_.block("if (thread == 0)");
  Writer::Scopes rounds;
  const std::string slot = names_.unique("slot");
  if (loop.ahead > 1)
    rounds.push_back(out_.block("for (int {0} = 0; {0} < {1}; ++{0})", slot, loop.ahead));
  for (const Ring* ring : rings) {
    out_.line("{};", to_next_tile(loop, ring->next));
    print_next_fill(*ring, loop.ahead > 1 ? slot : "", "");
  }
  names_.release(slot);
}

/// Where products are in flight: which tiles the rings get next that these read from.
void KernelPrinter::print_next_tiles() {
  for (const Ring* ring : std::exchange(read_rings_, {}))
    out_.line("if (thread == 0) {};", to_next_tile(*ring->loop, ring->next));
}

/// Fills a slot with the tile that its ring gets next, if there is one.
void KernelPrinter::print_next_fill(const Ring& ring, const std::string& slot,
                                    const std::string& where) {
  const Op& loop = *ring.loop;
  auto more = out_.block("if ({}{})", where, is_tile(loop, ring.next));
  const auto outer_begins = begins_;
  begins_[loop.axis.index] = names_.unique(f_[loop.axis].name + "_begin");
  out_.line("const int {} = {} * {};", begins_[loop.axis.index], ring.next, f_[loop.axis].tile);
  print_boxes(*ring.fill, slot);
  begins_ = outer_begins;
}

}  // namespace flashcore
