#include "runtime/background.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

namespace flashcore {
namespace {

// A compile takes a core for a second; half of the machine is left to whoever asked for it.
std::size_t most_threads() { return std::clamp(std::thread::hardware_concurrency() / 2, 1U, 4U); }

class Threads {
 public:
  ~Threads() { finish(); }

  void run(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    if (finished_) return;
    waiting_.push_back(std::move(work));
    if (idle_ == 0 && threads_.size() < most_threads()) threads_.emplace_back([this] { serve(); });
    changed_.notify_one();
  }

  void finish() {
    std::vector<std::thread> threads;
    {
      const std::lock_guard lock(mutex_);
      finished_ = true;
      waiting_.clear();
      threads.swap(threads_);
      changed_.notify_all();
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      ++idle_;
      changed_.wait(lock, [&] { return finished_ || !waiting_.empty(); });
      --idle_;
      if (finished_) return;
      const std::function<void()> work = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      try {
        work();
      } catch (...) {  // NOLINT(bugprone-empty-catch)
      }
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  std::vector<std::thread> threads_;
  std::size_t idle_ = 0;
  bool finished_ = false;
};

// Made at first use, so that it ends before what work uses, such as the compiler's library. The
// threads do not survive a fork: a child has new ones, and what it inherited is left alone.
struct OfProcess {
  pid_t process = getpid();
  std::unique_ptr<Threads> threads = std::make_unique<Threads>();
  ~OfProcess() {
    if (process != getpid()) (void)threads.release();
  }
};

std::mutex making;

Threads& of_this_process() {
  static OfProcess instance;
  const std::lock_guard lock(making);
  if (instance.process != getpid()) {
    (void)instance.threads.release();
    instance.threads = std::make_unique<Threads>();
    instance.process = getpid();
  }
  return *instance.threads;
}

}  // namespace

void run_in_background(std::function<void()> work) { of_this_process().run(std::move(work)); }

void finish_background() { of_this_process().finish(); }

}  // namespace flashcore
