// Vector clocks: what each thread of a block, or of a cluster, knows of the others.
//
// An agent is a thread, or something that works on shared memory in the name of threads: the tensor
// cores of a warpgroup, the boxes that arrive at an mbarrier, the box stores of a thread. An access
// carries its agent and that agent's time. It comes before everything that a thread does once the
// thread's clock has reached that time for that agent.
//
// Blocks whose threads meet at barriers of the whole block only do not need them (shared_memory.h);
// they begin to run when a block first uses anything that orders some threads and not others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace flashcore {

/// Up to which time each agent is known.
class Clock {
 public:
  [[nodiscard]] std::int32_t operator[](int agent) const {
    const auto index = static_cast<std::size_t>(agent);
    return index < times_.size() ? times_[index] : 0;
  }
  void raise(int agent, std::int32_t time);
  void join(const Clock& other);
  /// Keeps what `other` knows too.
  void intersect(const Clock& other);
  void assign(std::size_t agents, std::int32_t time) { times_.assign(agents, time); }

 private:
  std::vector<std::int32_t> times_;
};

class Clocks {
 public:
  static constexpr int warpgroup = 128;

  explicit Clocks(int threads);
  /// A new block, whose clocks do not run.
  void reset();
  [[nodiscard]] bool running() const { return running_; }
  /// From an epoch on: all threads know what was done before it, and only their own deeds of it.
  void start(std::uint32_t epoch);

  /// An agent beside the threads. It begins at time 0, which every thread knows.
  int add_agent();
  /// The agent's next time.
  std::int32_t tick(int agent) { return ++beside_[static_cast<std::size_t>(agent - threads_)]; }
  [[nodiscard]] int threads() const { return threads_; }
  [[nodiscard]] bool is_thread(int agent) const { return agent < threads_; }

  [[nodiscard]] const Clock& of(int thread) const {
    return clocks_[static_cast<std::size_t>(thread)];
  }
  [[nodiscard]] std::int32_t now(int thread) const { return of(thread)[thread]; }
  /// What all threads of a warpgroup know.
  const Clock& common(int group);

  /// Hands on what the thread knows and did so far.
  void release(int thread, Clock& into);
  void acquire(int thread, const Clock& from);
  void learn(int thread, int agent, std::int32_t time);
  /// These threads release and acquire.
  void meet(int first, int count);
  /// Puts the lanes of a warp at the same time, so that one time stands for a deed of all of them.
  std::int32_t level_warp(int first);

  /// The thread's writes so far are visible to asynchronous readers that are ordered behind this.
  void fence(int thread) { mark(fences_[static_cast<std::size_t>(thread)], thread); }
  /// Whether a thread has fenced what it did at `time`, and `view` knows of the fence.
  [[nodiscard]] bool fenced(int thread, std::int32_t time, const Clock& view) const {
    return marked(fences_[static_cast<std::size_t>(thread)], thread, time, view);
  }
  /// The same for publish_mbarriers().
  void publish(int thread) { mark(published_[static_cast<std::size_t>(thread)], thread); }
  [[nodiscard]] bool published(int thread, std::int32_t time, const Clock& view) const {
    return marked(published_[static_cast<std::size_t>(thread)], thread, time, view);
  }

 private:
  using Marks = std::vector<std::int32_t>;  ///< times, ascending
  void mark(Marks& marks, int thread);
  static bool marked(const Marks& marks, int thread, std::int32_t time, const Clock& view);
  void changed(int thread) { common_known_[static_cast<std::size_t>(thread / warpgroup)] = false; }

  int threads_;
  bool running_ = false;
  std::vector<Clock> clocks_;         ///< of each thread
  std::vector<std::int32_t> beside_;  ///< times of the agents that are no threads
  std::vector<Clock> common_;         ///< of each warpgroup, where known
  std::vector<bool> common_known_;
  std::vector<Marks> fences_, published_;  ///< of each thread
};

}  // namespace flashcore
