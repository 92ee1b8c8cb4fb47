// What blocks of a cluster give each other: every warp's rows go to one block, warp after warp in
// turn.
#include "codegen/analysis/shared_use.h"
#include "codegen/transfers/tile_mover.h"

namespace flashcore {

using namespace ir;

/// Of the warps whose rows a block gets, the n-th finds them behind those of n others, and not
/// behind those of all warps before it.
std::string TileMover::moved_rows(const Buffer& buffer) const {
  const int rows_of = (role_->warps + source_.cluster - 1) / source_.cluster;
  return fmt::format("(warp - warp / {}) * {}", source_.cluster, buffer.slot_bytes() / rows_of);
}

/// Where this block's slot for the rows of a warp lies, in the memory of the block that puts them
/// together.
std::string TileMover::given_address(const Op& give) const {
  const Buffer& buffer = f_[give.buffer];
  // Rows are moved behind the mapping: in front of it the difference may lie before all shared
  // memory.
  return fmt::format("fc::cluster_address({}, warp % {}) - {}", chunk_base(buffer, cluster_rank_),
                     source_.cluster, moved_rows(buffer));
}

std::string TileMover::cluster_address(const Op& cluster_read) const {
  const Buffer& buffer = f_[buffer_of(f_, cluster_read.operands[0])];
  return fmt::format("{} - {}", chunk_base(buffer, std::to_string(cluster_read.rank)),
                     moved_rows(buffer));
}

}  // namespace flashcore
