#include "codegen/passes/shared_hazards.h"

#include <algorithm>
#include <utility>

namespace flashcore {

using namespace ir;

void BufferHazards::join(const BufferHazards& other) {
  by_warpgroup = by_warpgroup || other.by_warpgroup;
  by_all = by_all || other.by_all;
  loading = loading || other.loading;
  handed_on = std::max(handed_on, other.handed_on);
  adding = adding || other.adding;
  drained = drained || other.drained;
  multiplied = multiplied || other.multiplied;
  read = read || other.read;
  unfenced = unfenced || other.unfenced;
  given = given || other.given;
  awaited = awaited || other.awaited;
  held = std::max(held, other.held);
}

void SharedHazards::meet(OpCode meeting) {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    BufferHazards& buffer = buffers_[i];
    if (meeting == OpCode::cluster_sync) {
      buffer.given = false;
      continue;
    }
    buffer.by_warpgroup = buffer.drained = buffer.awaited = false;
    if (meeting == OpCode::meet_warpgroup) continue;
    buffer.by_all = buffer.read = false;
    buffer.multiplied = buffer.multiplied && is_multiplied(BufferId(i));
  }
}

void SharedHazards::fence() {
  for (BufferHazards& buffer : buffers_) buffer.unfenced = false;
}

bool SharedHazards::is_unfenced(BufferId ring) const {
  for (std::size_t i = 0; i < buffers_.size(); ++i)
    if (buffers_[i].unfenced && (BufferId(i) == ring || f_->buffers[i].beside == ring)) return true;
  return false;
}

void SharedHazards::hand_on(const Op& store) {
  const BufferId buffer = buffer_of(*f_, store.operands[0]);
  BufferHazards& at = (*this)[buffer];
  at.handed_on = std::min(at.handed_on + 1, (*f_)[buffer].stages);
  at.adding = at.adding || store.accumulation == Accumulation::in_order;
}

void SharedHazards::drain(const std::set<BufferId>& stored, const Op& wait) {
  for (const BufferId buffer : stored) {
    BufferHazards& at = (*this)[buffer];
    at.handed_on = std::min(at.handed_on, wait.pending);
    at.drained = true;
    if (wait.code == OpCode::complete_stores) at.adding = false;
  }
}

void SharedHazards::wait_for_copies(int pending) {
  for (BufferHazards& buffer : buffers_) {
    buffer.by_all = buffer.by_all || buffer.loading;
    if (pending == 0) buffer.loading = false;
  }
}

void SharedHazards::multiply(Reads read, bool issued) {
  if (issued)
    in_flight_.push_back(std::move(read));
  else
    end_product(read);
}

void SharedHazards::wait_for_products(int pending) {
  while (in_flight_.size() > static_cast<std::size_t>(pending)) {
    end_product(in_flight_.front());
    in_flight_.erase(in_flight_.begin());
  }
}

bool SharedHazards::is_multiplied(BufferId buffer) const {
  return std::ranges::any_of(in_flight_, [&](const Reads& read) {
    const auto at = read.find(buffer);
    return at != read.end() && at->second == 0;
  });
}

void SharedHazards::release(BufferId ring) {
  (*this)[ring].held = std::max(0, (*this)[ring].held - 1);
  for (Reads& read : in_flight_)
    if (const auto at = read.find(ring); at != read.end()) at->second = std::max(0, at->second - 1);
}

bool SharedHazards::begin_cluster() { return !std::exchange(cluster_has_begun_, true); }

void SharedHazards::join(const SharedHazards& other) {
  cluster_has_begun_ = cluster_has_begun_ && other.cluster_has_begun_;
  for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].join(other.buffers_[i]);
  if (other.in_flight_.size() > in_flight_.size()) in_flight_ = other.in_flight_;
}

/// A product is over when all warps of its warpgroup have come to it.
void SharedHazards::end_product(const Reads& read) {
  for (const auto& [buffer, ahead] : read) (*this)[buffer].awaited = false;
}

}  // namespace flashcore
