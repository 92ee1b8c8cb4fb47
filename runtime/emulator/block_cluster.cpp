// What a block and the others of its cluster do to each other.
#include "runtime/emulator/block.h"
#include "runtime/emulator/cluster.h"

namespace flashcore {
namespace {

// An address in another block: its rank, counted from one, above the bits of an address.
constexpr int rank_bit = 24;
constexpr std::uint32_t offset_bits = (1u << rank_bit) - 1;

}  // namespace

void Block::arrive_at_cluster(bool releases, int line) {
  cluster_.barrier().arrive(releases, accessor(line));
}
void Block::wait_cluster(int line) { cluster_.barrier().await(accessor(line)); }

std::uint32_t Block::cluster_address(std::uint32_t address, int rank, int line) const {
  if (rank < 0 || rank >= cluster_.size())
    throw Fault{FaultKind::bad_operand, line,
                fmt::format("there is no block {} in a cluster of {}", rank, cluster_.size()),
                fmt::format("0 to {}", cluster_.size() - 1)};
  return address | static_cast<std::uint32_t>(rank + 1) << rank_bit;
}

/// The block in which a cluster_address lies.
Block& Block::owner_of(std::uint32_t address, int line) {
  const int rank = static_cast<int>(address >> rank_bit) - 1;
  if (rank < 0 || rank >= cluster_.size())
    throw Fault{FaultKind::bad_operand, line,
                fmt::format("{} is no address in a block of the cluster", address),
                "cluster_address() of an address in shared memory"};
  return cluster_[rank];
}

void Block::store_cluster(std::uint32_t address, const void* in, int bytes, int line) {
  Block& owner = owner_of(address, line);
  banks_.gather(Primitive::store_shared, line, thread_index(), address, bytes);
  owner.receive(address & offset_bits, in, bytes, accessor(line));
}

void Block::receive(std::uint32_t address, const void* in, int bytes, Accessor from) {
  check_reachable(from);
  shared_.write(address, bytes, in, from);
  note_received(from);
}

void Block::arrive(std::uint32_t mbarrier, std::uint32_t expected_bytes, int line) {
  Block& owner = mbarrier > offset_bits ? owner_of(mbarrier, line) : *this;
  if (&owner != this) owner.check_reachable(accessor(line));
  owner.mbarriers_.arrive(mbarrier & offset_bits, expected_bytes, accessor(line));
  owner.note_received(accessor(line));
}

/// Throws a Fault unless a thread of the cluster may write to this block now.
void Block::check_reachable(Accessor from) const {
  const int rank = first_thread_ / threads_;
  if (!cluster_.barrier().knows_all(from.thread))
    throw Fault{FaultKind::race, from.line,
                fmt::format("block {} of the cluster is written to by a thread that does not know "
                            "whether it has begun",
                            rank),
                "enter_cluster() in all threads and wait_cluster() before the first write",
                from.thread};
  if (left_ == threads_)
    throw Fault{FaultKind::race, from.line,
                fmt::format("block {} of the cluster is written to after it has left", rank),
                "a wait at the cluster's barrier, in that block, behind the write", from.thread};
}

/// A thread of another block has written to this one, which has to know of the write before it leaves.
void Block::note_received(Accessor from) {
  if (from.thread / threads_ != first_thread_ / threads_)
    received_[from.thread] = {clocks_.now(from.thread), from.line};
}

void Block::check_received() const {
  for (const auto& [thread, write] : received_) {
    bool known = false;
    for (int mine = first_thread_; mine < first_thread_ + threads_ && !known; ++mine)
      known = clocks_.of(mine)[thread] >= write.time;
    if (!known)
      throw Fault{FaultKind::race, write.line,
                  fmt::format("block {} of the cluster leaves, and none of its threads knows of "
                              "what thread {} writes into its shared "
                              "memory: the write may come later",
                              first_thread_ / threads_, thread),
                  "a wait at the cluster's barrier, in that block, behind the write"};
  }
}

}  // namespace flashcore
