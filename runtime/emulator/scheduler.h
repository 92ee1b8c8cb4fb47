// One fiber for every CUDA thread of a block, on one OS thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace flashcore {

/// What a fiber waits for: a counter leaving the value it had. Whoever completes a collective
/// operation, a barrier or a phase advances its counter.
struct Wait {
  const char* place = nullptr;  ///< the primitive, for messages
  int line = 0;
  const std::uint32_t* counter = nullptr;
  std::uint32_t seen = 0;
  [[nodiscard]] bool over() const { return counter == nullptr || *counter != seen; }
};

/// Somebody wants no more of a run.
struct Stopped {};

/// Runs fibers in turn. A warp runs until all its lanes wait, then the next one: lanes between two
/// collective operations follow each other, so that few stacks are warm at a time. One warp is slow: it
/// runs where all others wait, so that what they do not wait for comes as late as it may on a GPU.
class Scheduler {
 public:
  static constexpr int warp_size = 32;

  /// `run` throws Stopped when `stop` becomes true.
  explicit Scheduler(int threads, const std::atomic<bool>* stop = nullptr);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// Runs `body` once as each thread, to the end, warp `slow_warp` modulo their number as late as it may.
  /// The first exception of a thread ends all of them and is thrown here. `stuck` makes the exception for the case that every thread left waits,
  /// or none if some may go on.
  void run(const std::function<void()>& body, const std::function<std::exception_ptr()>& stuck,
           int slow_warp = 0);

  /// Inside a thread: returns when the wait is over.
  void block(const Wait& wait);

  [[nodiscard]] int current() const { return current_; }
  [[nodiscard]] int threads() const { return threads_; }
  [[nodiscard]] bool finished(int thread) const;
  [[nodiscard]] const Wait& wait_of(int thread) const;

 private:
  struct Fiber;
  void start(int thread, const std::function<void()>& body);
  bool run_warp(int first);

  int threads_;
  const std::atomic<bool>* stop_;
  int current_ = -1;
  int left_ = 0;
  std::exception_ptr error_;
  std::size_t stack_bytes_;  ///< of address space for one fiber, with its guard page
  std::byte* stacks_;
  std::unique_ptr<Fiber[]> fibers_;
};

/// "threads 0-2 wait at barrier, line 12; threads 3-31 ...": where those of [begin, end) are that
/// do not run, for messages.
std::string describe_waits(const Scheduler& scheduler, int begin, int end);

}  // namespace flashcore
