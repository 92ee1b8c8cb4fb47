// What blocks of a cluster give each other: every warp's rows go to one block, warp after warp in
// turn.
#include "codegen/analysis/shared_use.h"
#include "codegen/print/kernel_printer.h"

namespace flashcore {

using namespace ir;

void KernelPrinter::print_part() {
  part_ = names_.unique("part");
  out_.line("const int {} = fc::block_x() % {};", part_, source_.cluster);
}

/// Of the warps whose rows a block gets, the n-th finds them behind those of n others, and not
/// behind those of all warps before it.
std::string KernelPrinter::moved_rows(const Buffer& buffer) const {
  const int rows_of = (role_->warps + source_.cluster - 1) / source_.cluster;
  return fmt::format("(warp - warp / {}) * {}", source_.cluster, buffer.slot_bytes() / rows_of);
}

/// Where this block's slot for the rows of a warp lies, in the memory of the block that puts them
/// together.
std::string KernelPrinter::given_address(const Op& give) const {
  const Buffer& buffer = f_[give.buffer];
  // Rows are moved behind the mapping: in front of it the difference may lie before all shared
  // memory.
  return fmt::format("fc::peer_address({}, warp % {}) - {}", chunk_base(buffer, part_),
                     source_.cluster, moved_rows(buffer));
}

std::string KernelPrinter::peer_address(const Op& peer) const {
  const Buffer& buffer = f_[buffer_of(f_, peer.operands[0])];
  return fmt::format("{} - {}", chunk_base(buffer, std::to_string(peer.peer)), moved_rows(buffer));
}

void KernelPrinter::print_meeting_of_peers() {
  out_.line("fc::arrive_at_cluster();");
  out_.line("fc::await_cluster();");
}

}  // namespace flashcore
