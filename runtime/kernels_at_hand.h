// What a dispatcher has to launch: kernels by their schedules, the lists of schedules that launches
// want, and the work in the background that builds what is wanted and not there.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include "dsl/schedule.h"
#include "runtime/dispatcher.h"

namespace flashcore {

/// Thread-safe. Shared by the dispatcher and its work in the background: either may be gone first.
class KernelsAtHand : public std::enable_shared_from_this<KernelsAtHand> {
 public:
  using Kernel = Dispatcher::Kernel;
  using Lengths = std::span<const std::int64_t>;

  /// A schedule of some list.
  struct Candidate {
    Schedule schedule;
    Kernel kernel = nullptr;  ///< once it is built
    bool building = false;
    bool loaded = false;                  ///< a launch has run it, or it was prepared
    std::exception_ptr misfit = nullptr;  ///< why no list takes it
  };
  /// What some launches want: the kernel under the first of these schedules that fits.
  struct List {
    std::vector<Schedule> schedules;
    std::vector<Candidate*> candidates;
    /// What launches run, without a lock, once that does not change any more.
    std::atomic<Launchable*> in_place = nullptr;
    bool wanted = false;                     ///< by a launch before
    std::vector<std::int64_t> lengths = {};  ///< of the first that did
    int device = cpu_device;                 ///< of the launch that has it built
    bool waits = false;                      ///< to be built
    bool warned = false;  ///< that a graph keeps another kernel: one graph has many launches
  };

  /// `kernel` is what messages call the program.
  KernelsAtHand(std::string kernel, Dispatcher::Build build)
      : name_(std::move(kernel)), build_(std::move(build)) {}

  [[nodiscard]] const std::string& name() const { return name_; }

  /// Lists and candidates stay where they are.
  List& list_of(const std::vector<Schedule>& schedules);
  void add(const Schedule& schedule, Kernel kernel);

  /// Builds the kernel of the list, or waits for another thread that does.
  Kernel build(List& list);
  /// The same, and loads it on a device.
  void load(List& list, int device);
  /// Null unless that kernel is built.
  Kernel find_built(const List& list);
  /// Whether a kernel is built, of whichever list.
  [[nodiscard]] bool has_kernel() const;

  /// What a launch runs whose list has nothing in place. Null where it is captured and nothing that
  /// it could run is there. `for_now`: an alternative module is being built that later launches run in
  /// place of a kernel of this list, so no kernel is built for them in the background.
  Launchable* serve(List& list, Lengths lengths, int device, CudaStream stream, bool for_now);

  /// Builds nothing more.
  void end();
  [[nodiscard]] bool is_building() const;
  void wait_until_built();

 private:
  Candidate& candidate_of(const Schedule& schedule);
  /// Under the lock, which is open while the compiler runs. Throws what was wrong with the first.
  Candidate& first_that_fits(std::unique_lock<std::mutex>& lock, const List& list);
  /// The same of what is built; null where that is not known yet.
  static Candidate* known_to_fit(const List& list);
  Candidate* best_at_hand(const List& list, Lengths lengths, bool loaded);
  static void put_in_place(List& list, Candidate& candidate);
  Launchable* capture(List& list, Lengths lengths);
  Launchable* take_over(List& list, Candidate& best, int device);
  void build_later(List& list, int device);
  /// Loads what was built for it where its launches want it. Opens the lock meanwhile.
  void load_beside(std::unique_lock<std::mutex>& lock, List& list, Candidate& built);
  void start_work();
  /// Builds what waits, one after the other.
  void work();

  const std::string name_;
  const Dispatcher::Build build_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Candidate> candidates_;
  std::deque<List> lists_;
  std::deque<List*> waiting_;
  pid_t worker_ = 0;  ///< the process whose thread builds what waits: it does not survive a fork
  bool ended_ = false;
};

}  // namespace flashcore
