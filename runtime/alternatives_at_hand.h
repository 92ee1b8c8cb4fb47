// What a dispatcher has to launch in place of a program's kernels: the modules that its choice calls
// alternatives, each built when a launch first wants it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

#include <sys/types.h>

#include "dsl/program.h"
#include "dsl/schedule_choice.h"
#include "runtime/alternative_module.h"
#include "runtime/dispatcher.h"

namespace flashcore {

/// Thread-safe. Shared by the dispatcher and its work in the background: either may be gone first.
class AlternativesAtHand : public std::enable_shared_from_this<AlternativesAtHand> {
 public:
  using Choice = std::shared_ptr<const ScheduleChoice>;

  AlternativesAtHand(const Program& program, Dispatcher::Builds builds)
      : program_(program), builds_(std::move(builds)) {}

  /// The alternative of this number; null unless it is built and launches may run it. Takes no lock.
  [[nodiscard]] AlternativeModule* find(std::size_t number) const {
    return entries_[number].in_place.load(std::memory_order_acquire);
  }

  /// What a launch runs. Where `module` is null, a kernel of the program has to serve: the alternative
  /// cannot be built or loaded, the background is building it, or the launch is captured.
  struct Served {
    AlternativeModule* module = nullptr;
    bool is_coming = false;  ///< the background builds the alternative for later launches
  };
  /// For a launch that wants this alternative and does not find it. It waits unless `another_serves`.
  Served serve(const Choice& choice, std::size_t number, int device, CudaStream stream,
               bool another_serves);

  /// Builds the alternative, or waits for another thread that does, and loads its kernels on a device
  /// unless that is -1. Throws what building and loading throw.
  AlternativeModule& prepare(const Choice& choice, std::size_t number, int device);

  /// Builds nothing more in the background.
  void end();
  [[nodiscard]] bool is_building() const;
  void wait_until_built() const;

 private:
  struct Entry {
    std::atomic<AlternativeModule*> in_place = nullptr;
    std::unique_ptr<AlternativeModule> module = nullptr;
    bool is_building = false;  ///< by some thread
    bool is_refused = false;   ///< its kernels cannot be built, or not be loaded
    /// The process whose background is to build it, 0 for none: no thread survives a fork.
    pid_t queued_by = 0;
  };

  AlternativeModule* capture(std::size_t number) const;
  AlternativeModule* take_over(Entry& entry, int device) const;
  void build_later(const Choice& choice, std::size_t number, int device);
  /// What the background does for build_later.
  void build_beside(const Choice& choice, std::size_t number, int device);
  /// Under the lock, which is open while the compiler runs.
  AlternativeModule& build(std::unique_lock<std::mutex>& lock, const Choice& choice,
                           std::size_t number);
  [[nodiscard]] std::unique_ptr<AlternativeModule> make(const Alternative& alternative) const;
  /// Whether this process's background is to build the alternative, or is building it.
  [[nodiscard]] static bool is_queued(const Entry& entry);

  const Program program_;
  const Dispatcher::Builds builds_;
  mutable std::mutex mutex_;
  std::array<Entry, ScheduleChoice::max_alternatives> entries_;
  bool ended_ = false;
};

}  // namespace flashcore
