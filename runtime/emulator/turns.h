// Blocks that add to the same elements in a fixed order note in global memory how far they have
// come, and wait for each other's notes. This keeps what each block knows of the others, and finds
// out when nobody can go on.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace flashcore {

/// By block: how many of its notes a block knows.
using KnownNotes = std::vector<std::uint32_t>;

/// Shared by all blocks of a run; safe from several OS threads, the workers.
class Turns {
 public:
  /// A worker runs blocks from here on, and none any more.
  void enter();
  void leave();

  /// Block `block` notes at `turn` that it has come to `position`; whoever reads that knows what the
  /// block knows.
  void pass(std::int32_t* turn, int position, int block, KnownNotes& known);
  /// Whether `turn` has come to `position`; then `known` is what it says, beside what it was.
  bool reached(const std::int32_t* turn, int position, KnownNotes& known);

  /// A count that grows with every note.
  [[nodiscard]] std::uint32_t notes() const { return notes_; }
  /// Blocks the worker, all of whose threads wait, until there are more notes than `seen`. False if
  /// all other workers have ended or wait as well. Returns early when `stop` becomes true.
  bool await(std::uint32_t seen, const std::atomic<bool>* stop);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<std::uint32_t> notes_ = 0;
  int workers_ = 0;
  int stuck_ = 0;  ///< workers that wait for a note and know all there are
  std::map<const std::int32_t*, KnownNotes> told_;
};

}  // namespace flashcore
