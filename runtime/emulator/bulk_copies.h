// What the copy engine does for a block: boxes of tensors to and from shared memory.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "runtime/emulator/clocks.h"
#include "runtime/emulator/global_memory.h"
#include "runtime/emulator/shared_memory.h"
#include "runtime/emulator/tensor_box.h"

namespace flashcore {

/// A box that is stored, or added to what the tensor holds: of a block at its turn, or in any order.
struct BoxStore {
  TensorBox box;
  bool adds = false, in_turn = false;
};

/// A load reads the tensor when it completes. A store reads shared memory when somebody waits for
/// that, and an addition is made when its thread waits for it, or leaves: the latest moments that
/// the hardware may choose.
class BulkCopies {
 public:
  BulkCopies(int threads, GlobalMemory& memory, SharedMemory& shared, Clocks& clocks);
  void reset();

  /// Checks a load and marks its target. The mbarrier completes it.
  void begin_load(const TensorBox& box, int coordinates, int block);
  void complete(const TensorBox& box, int agent, std::int32_t time);

  void store(const BoxStore& store, int coordinates);
  void commit_stores(int thread);
  /// All but the newest `pending` groups of the thread have been read.
  void wait_stores_read(int pending, int thread, int block);
  /// They have been made. `known` is what the block knows of the notes of others.
  void wait_stores(int pending, int thread, int block, const KnownNotes& known);
  /// Throws a Fault for a store that may still read when its thread leaves.
  void leave(int thread, int block, const KnownNotes& known);

 private:
  struct Group {
    std::vector<BoxStore> boxes;
    std::int32_t time;
  };
  /// Elements that have been read, and not been added.
  struct Addition {
    std::byte* address;
    std::vector<float> values;
    bool in_turn;
    int line;
  };
  struct Stores {
    int agent = -1;  ///< that reads for the thread, once it has stored
    std::vector<BoxStore> open;
    std::deque<Group> groups;
    std::deque<std::vector<Addition>> additions;  ///< of groups that have been read
    std::int32_t time = 0;                        ///< of the open group
  };
  void write_out(const BoxStore& store, int block, std::vector<Addition>& additions);
  void add(const std::vector<Addition>& additions, int block, const KnownNotes& known);
  [[nodiscard]] Stores& stores_of(int thread) { return stores_[static_cast<std::size_t>(thread)]; }

  GlobalMemory& memory_;
  SharedMemory& shared_;
  Clocks& clocks_;
  std::vector<Stores> stores_;  ///< of each thread
  bool used_ = false;
};

}  // namespace flashcore
