#include "runtime/emulator/register_pool.h"

#include <fmt/format.h>

namespace flashcore {

void RegisterPool::reset() {
  free_ = 0;
  for (Share& share : shares_) share.held = start_, share.wanted = 0;
}

std::uint32_t RegisterPool::set(std::size_t group, int registers) {
  shares_[group].wanted = registers;
  const std::uint32_t before = shares_[group].grants;
  hand_out();
  return before;
}

void RegisterPool::hand_out() {
  // What one gives back, another may have waited for.
  for (bool changed = true; changed;) {
    changed = false;
    for (Share& share : shares_) {
      if (share.wanted == 0 || share.wanted - share.held > free_) continue;
      free_ -= share.wanted - share.held;
      share.held = share.wanted;
      share.wanted = 0;
      ++share.grants;
      changed = true;
    }
  }
}

std::string RegisterPool::describe() const {
  std::string text;
  for (std::size_t group = 0; group < shares_.size(); ++group) {
    const Share& share = shares_[group];
    if (share.wanted == 0) continue;
    text += fmt::format("; warpgroup {} has {} registers a thread and waits for {}, {} are free",
                        group, share.held, share.wanted, free_);
  }
  return text;
}

}  // namespace flashcore
