#include "runtime/emulator/clocks.h"

namespace flashcore {

void Clock::raise(int agent, std::int32_t time) {
  const auto index = static_cast<std::size_t>(agent);
  if (index >= times_.size()) times_.resize(index + 1);
  times_[index] = std::max(times_[index], time);
}

void Clock::join(const Clock& other) {
  if (other.times_.size() > times_.size()) times_.resize(other.times_.size());
  for (std::size_t i = 0; i < other.times_.size(); ++i)
    times_[i] = std::max(times_[i], other.times_[i]);
}

void Clock::intersect(const Clock& other) {
  if (times_.size() > other.times_.size()) times_.resize(other.times_.size());
  for (std::size_t i = 0; i < times_.size(); ++i) times_[i] = std::min(times_[i], other.times_[i]);
}

Clocks::Clocks(int threads)
    : threads_(threads),
      clocks_(static_cast<std::size_t>(threads)),
      common_(static_cast<std::size_t>((threads + warpgroup - 1) / warpgroup)),
      common_known_(common_.size()),
      fences_(clocks_.size()),
      published_(clocks_.size()) {}

void Clocks::reset() {
  if (!running_) return;
  running_ = false;
  beside_.clear();
  for (Marks& marks : fences_) marks.clear();
  for (Marks& marks : published_) marks.clear();
}

void Clocks::start(std::uint32_t epoch) {
  if (running_) return;
  running_ = true;
  const auto now = static_cast<std::int32_t>(epoch);
  for (int thread = 0; thread < threads_; ++thread) {
    Clock& mine = clocks_[static_cast<std::size_t>(thread)];
    mine.assign(static_cast<std::size_t>(threads_), now - 1);
    mine.raise(thread, now);
    changed(thread);
  }
}

int Clocks::add_agent() {
  beside_.push_back(0);
  return threads_ + static_cast<int>(beside_.size()) - 1;
}

const Clock& Clocks::common(int group) {
  const auto index = static_cast<std::size_t>(group);
  Clock& known = common_[index];
  if (!common_known_[index]) {
    known = of(group * warpgroup);
    for (int i = 1; i < warpgroup; ++i) known.intersect(of(group * warpgroup + i));
    common_known_[index] = true;
  }
  return known;
}

void Clocks::release(int thread, Clock& into) {
  Clock& mine = clocks_[static_cast<std::size_t>(thread)];
  into.join(mine);
  mine.raise(thread, mine[thread] + 1);
}

void Clocks::acquire(int thread, const Clock& from) {
  clocks_[static_cast<std::size_t>(thread)].join(from);
  changed(thread);
}

void Clocks::learn(int thread, int agent, std::int32_t time) {
  clocks_[static_cast<std::size_t>(thread)].raise(agent, time);
  changed(thread);
}

void Clocks::meet(int first, int count) {
  Clock all;
  for (int thread = first; thread < first + count; ++thread) all.join(of(thread));
  for (int thread = first; thread < first + count; ++thread) {
    Clock& mine = clocks_[static_cast<std::size_t>(thread)];
    mine = all;
    mine.raise(thread, all[thread] + 1);
    changed(thread);
  }
}

std::int32_t Clocks::level_warp(int first) {
  constexpr int lanes = 32;
  std::int32_t latest = 0;
  for (int thread = first; thread < first + lanes; ++thread) latest = std::max(latest, now(thread));
  for (int thread = first; thread < first + lanes; ++thread)
    clocks_[static_cast<std::size_t>(thread)].raise(thread, latest);
  return latest;
}

// The time goes on behind a mark: whoever knows the thread up to a later time knows of the mark.
void Clocks::mark(Marks& marks, int thread) {
  Clock& mine = clocks_[static_cast<std::size_t>(thread)];
  marks.push_back(mine[thread]);
  mine.raise(thread, mine[thread] + 1);
}

bool Clocks::marked(const Marks& marks, int thread, std::int32_t time, const Clock& view) {
  const auto first = std::lower_bound(marks.begin(), marks.end(), time);
  return first != marks.end() && *first < view[thread];
}

}  // namespace flashcore
