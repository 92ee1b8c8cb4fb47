// The asynchronous copies of one thread, between issue and wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace flashcore {

struct AsyncCopy {
  std::uint32_t target = 0;
  const void* source = nullptr;
  int valid_bytes = 0;
  int line = 0;
};

/// Copies are queued in order; commit() closes a group. The queue keeps the data where it is: a
/// copy reads its source when it completes, which is the latest moment the hardware may choose.
class AsyncCopies {
 public:
  void reset() {
    copies_.clear();
    groups_.clear();
    open_ = 0;
  }
  void issue(const AsyncCopy& copy) {
    copies_.push_back(copy);
    ++open_;
  }
  void commit() {
    groups_.push_back(open_);
    open_ = 0;
  }
  /// Calls `complete(copy)` for every copy but those of the newest `pending` groups and of the open
  /// one.
  template <class Complete>
  void wait(std::size_t pending, const Complete& complete) {
    for (; groups_.size() > pending; groups_.pop_front()) {
      for (std::size_t i = 0; i < groups_.front(); ++i, copies_.pop_front())
        complete(copies_.front());
    }
  }

 private:
  std::deque<AsyncCopy> copies_;
  std::deque<std::size_t> groups_;  ///< copies of each committed group
  std::size_t open_ = 0;
};

}  // namespace flashcore
