// What insert_barriers knows of shared memory at a place of the program.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "codegen/analysis/shared_use.h"
#include "dsl/ir/function.h"

namespace flashcore {

/// What has happened to a buffer in shared memory.
struct BufferHazards {
  /// Written by threads that have not met since: those of a warpgroup, or all of the block or role.
  bool by_warpgroup = false, by_all = false;
  bool loading = false;  ///< copies of threads into it were issued, and have not been waited for
  int handed_on = 0;     ///< how many of its slots the copy engine may still be reading
  bool adding = false;   ///< the copy engine may still be adding it to a tensor at the block's turn
  /// The copy engine has read it, which the thread that waited for the engine knows, and no other.
  bool drained = false;
  bool multiplied = false;  ///< products have read it, and the warps have not met since
  bool read = false;        ///< threads have read it, and have not met since
  bool unfenced = false;    ///< threads have read it, and have not fenced that since
  bool given = false;    ///< other blocks of the cluster write it, and have not met this one since
  bool awaited = false;  ///< each thread has waited for a slot of it, and has met no other since
  int held = 0;          ///< of a ring: slots that were waited for and have not been released

  bool operator==(const BufferHazards&) const = default;
  void join(const BufferHazards& other);
};

/// What has happened to all buffers of a function, as the threads of the block or of a role see it.
class SharedHazards {
 public:
  explicit SharedHazards(const ir::Function& f) : f_(&f), buffers_(f.buffers.size()) {}

  BufferHazards& operator[](ir::BufferId buffer) { return buffers_[buffer.index]; }
  const BufferHazards& operator[](ir::BufferId buffer) const { return buffers_[buffer.index]; }

  /// Whether the test holds for the buffer, or for one that shares bytes with it.
  template <class Test>
  [[nodiscard]] bool any(ir::BufferId buffer, Test test) const {
    for (std::size_t i = 0; i < buffers_.size(); ++i)
      if (overlap((*f_)[buffer], f_->buffers[i]) && test(buffers_[i])) return true;
    return false;
  }

  /// That threads have met: `barrier`, `meet_role`, `meet_warpgroup` or `cluster_sync`.
  void meet(ir::OpCode meeting);

  /// That threads have fenced what they did, for the copy engine and products.
  void fence();
  /// Whether threads have read a slot of a ring, or of what comes in its slots, behind their last fence.
  [[nodiscard]] bool is_unfenced(ir::BufferId ring) const;

  /// A tile in shared memory is handed to the copy engine.
  void hand_on(const ir::Op& store);
  /// The threads that have handed these on wait for the engine: `drain_stores` or `complete_stores`.
  void drain(const std::set<ir::BufferId>& stored, const ir::Op& wait);

  /// That copies of threads have been waited for, but for so many groups of them.
  void wait_for_copies(int pending);

  /// Of each buffer that a product reads: how many slots of it were waited for in front of the one that it
  /// reads, and are still held.
  using Reads = std::map<ir::BufferId, int>;
  /// A product reads these; an issued one until it is waited for.
  void multiply(Reads read, bool issued);
  /// All products are over but for the last so many.
  void wait_for_products(int pending);
  /// Whether a product that is not over reads the buffer; of a ring, its first slot that is held.
  [[nodiscard]] bool is_multiplied(ir::BufferId buffer) const;
  /// The first slot of a ring that is held is given back.
  void release(ir::BufferId ring);

  /// The cluster's blocks have begun; false if that was known.
  bool begin_cluster();

  /// What has happened on either of two ways to the same place.
  void join(const SharedHazards& other);
  bool operator==(const SharedHazards& other) const {
    return buffers_ == other.buffers_ && in_flight_ == other.in_flight_ &&
           cluster_has_begun_ == other.cluster_has_begun_;
  }

 private:
  void end_product(const Reads& read);

  const ir::Function* f_;
  std::vector<BufferHazards> buffers_;
  std::vector<Reads> in_flight_;    ///< what products read, the oldest first
  bool cluster_has_begun_ = false;  ///< all its blocks
};

}  // namespace flashcore
