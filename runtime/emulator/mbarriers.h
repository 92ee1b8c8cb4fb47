// The mbarriers of a block: arrivals and bytes of boxes counted in phases.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/emulator/clocks.h"
#include "runtime/emulator/scheduler.h"
#include "runtime/emulator/shared_memory.h"
#include "runtime/emulator/tensor_box.h"

namespace flashcore {

/// An arrival releases what its thread did, a wait for a phase acquires what its arrivals released.
/// Boxes come as late as they may: not before all arrivals of the phase they belong to, nor before
/// somebody waits for it.
class Mbarriers {
 public:
  /// `complete` puts a box into shared memory, in the name of an agent at its time.
  using Complete = std::function<void(const TensorBox&, int agent, std::int32_t time)>;
  Mbarriers(Scheduler& scheduler, SharedMemory& shared, Clocks& clocks, Complete complete);

  void reset() { mbarriers_.clear(); }

  void init(std::uint32_t address, int arrivals, Accessor by);
  void arrive(std::uint32_t address, std::uint32_t expected_bytes, Accessor by);
  void await(std::uint32_t address, int parity, Accessor by);
  /// A box that arrives at the mbarrier, from now on at any time.
  void add_box(std::uint32_t address, const TensorBox& box);

  /// Throws a Fault for a box that nobody has waited for when the block ends.
  void check_end() const;
  /// "; mbarrier at byte 64: phase 3 lacks 1 of 2 arrivals ...": those that threads wait for.
  [[nodiscard]] std::string describe_waits() const;

 private:
  struct Mbarrier {
    std::uint32_t address = 0;
    int count = 0, pending = 0;    ///< arrivals of a phase; of this one, still to come
    std::uint64_t expected = 0;    ///< bytes of this phase
    std::uint32_t phase = 0;       ///< phases that are over
    int waiting = 0;               ///< threads
    std::vector<TensorBox> boxes;  ///< of this phase, on their way
    Clock gathered, over;  ///< released by arrivals so far; by those of phases that are over
    std::vector<std::int64_t> awaited;  ///< by thread: the last phase that it knows to be over
    std::int64_t last_awaited = -1;     ///< the last phase that any thread has waited for
    int agent = 0;                      ///< that writes the boxes
    int init_thread = 0, init_line = 0;
    std::int32_t init_time = 0;

    [[nodiscard]] std::uint64_t bytes_under_way() const {
      std::uint64_t sum = 0;
      for (const TensorBox& box : boxes) sum += box.bytes();
      return sum;
    }
    [[nodiscard]] std::string describe() const;
  };

  /// The mbarrier at an address, which the thread may use.
  Mbarrier& at(std::uint32_t address, const Accessor& by, bool by_copy_engine);
  /// Throws a Fault if the phase that the thread waits for next, and the one behind it, are over.
  static void check_pace(const Mbarrier& mbarrier, int parity, const Accessor& by);
  /// Throws a Fault if the last phase is over and no thread has waited for it.
  static void check_awaited(const Mbarrier& mbarrier, const Accessor& by);
  /// Ends the phase where nothing is missing.
  void settle(Mbarrier& mbarrier, const Accessor& by);

  Scheduler& scheduler_;
  SharedMemory& shared_;
  Clocks& clocks_;
  Complete complete_;
  std::map<std::uint32_t, Mbarrier> mbarriers_;  ///< by address
};

}  // namespace flashcore
