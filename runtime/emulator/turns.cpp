#include "runtime/emulator/turns.h"

#include <algorithm>
#include <chrono>

namespace flashcore {
namespace {

void merge(KnownNotes& into, const KnownNotes& from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

}  // namespace

void Turns::enter() {
  const std::lock_guard lock(mutex_);
  ++workers_;
}

void Turns::leave() {
  const std::lock_guard lock(mutex_);
  --workers_;
  changed_.notify_all();
}

void Turns::pass(std::int32_t* turn, int position, int block, KnownNotes& known) {
  const std::lock_guard lock(mutex_);
  const auto self = static_cast<std::size_t>(block);
  if (known.size() <= self) known.resize(self + 1);
  ++known[self];
  merge(told_[turn], known);
  *turn = position;
  ++notes_;
  stuck_ = 0;
  changed_.notify_all();
}

bool Turns::reached(const std::int32_t* turn, int position, KnownNotes& known) {
  const std::lock_guard lock(mutex_);
  if (*turn < position) return false;
  if (const auto told = told_.find(turn); told != told_.end()) merge(known, told->second);
  return true;
}

bool Turns::await(std::uint32_t seen, const std::atomic<bool>* stop) {
  constexpr std::chrono::milliseconds look_again{50};
  std::unique_lock lock(mutex_);
  if (notes_ != seen) return true;
  ++stuck_;
  const auto stopped = [&] { return stop && stop->load(); };
  while (notes_ == seen && stuck_ < workers_ && !stopped()) changed_.wait_for(lock, look_again);
  if (notes_ != seen) return true;
  --stuck_;
  return stopped();
}

}  // namespace flashcore
