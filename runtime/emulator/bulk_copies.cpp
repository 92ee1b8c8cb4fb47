#include "runtime/emulator/bulk_copies.h"

#include <array>
#include <cstring>
#include <utility>

namespace flashcore {
namespace {

constexpr int chunk_bytes = 16;

}  // namespace

BulkCopies::BulkCopies(int threads, GlobalMemory& memory, SharedMemory& shared, Clocks& clocks)
    : memory_(memory),
      shared_(shared),
      clocks_(clocks),
      stores_(static_cast<std::size_t>(threads)) {}

void BulkCopies::reset() {
  if (!std::exchange(used_, false)) return;
  for (Stores& stores : stores_) stores = {};
}

void BulkCopies::begin_load(const TensorBox& box, int coordinates, int block) {
  box.check(coordinates);
  shared_.start_clocks();
  for (int index = 0; index < box.lines(); ++index) {
    const TensorBox::Line line = box.line_at(index);
    if (line.bytes > 0)
      memory_.check_read(line.address, line.bytes, box.map.element_bytes, block, box.line);
    for (int chunk = 0; chunk < box.map.line_bytes / chunk_bytes; ++chunk)
      shared_.begin_box(box.chunk_at(index, chunk), {box.thread, box.line});
  }
}

void BulkCopies::complete(const TensorBox& box, int agent, std::int32_t time) {
  for (int index = 0; index < box.lines(); ++index) {
    std::array<std::byte, 128> data{};
    const TensorBox::Line line = box.line_at(index);
    if (line.bytes > 0)
      std::memcpy(&data[static_cast<std::size_t>(line.first)], line.address,
                  static_cast<std::size_t>(line.bytes));
    for (int chunk = 0; chunk < box.map.line_bytes / chunk_bytes; ++chunk)
      shared_.complete_box(box.chunk_at(index, chunk),
                           &data[static_cast<std::size_t>(chunk * chunk_bytes)], agent, time,
                           box.line);
  }
}

void BulkCopies::store(const TensorBox& box, int coordinates) {
  box.check(coordinates);
  shared_.start_clocks();
  used_ = true;
  Stores& stores = stores_of(box.thread);
  if (stores.agent < 0) {
    stores.agent = clocks_.add_agent();
    stores.time = clocks_.tick(stores.agent);
    shared_.name_agent(
        stores.agent, fmt::format("a box store of thread {}", box.thread),
        "commit_stores() and wait_stores_read<n>() by that thread, then a barrier, before "
        "the memory is used again");
  }
  for (int index = 0; index < box.lines(); ++index)
    for (int chunk = 0; chunk < box.map.line_bytes / chunk_bytes; ++chunk)
      shared_.begin_agent_read(box.chunk_at(index, chunk), clocks_.of(box.thread), stores.agent,
                               stores.time, {box.thread, box.line});
  stores.open.push_back(box);
}

void BulkCopies::commit_stores(int thread) {
  used_ = true;
  Stores& stores = stores_of(thread);
  stores.groups.push_back({std::exchange(stores.open, {}), stores.time});
  if (stores.agent >= 0) stores.time = clocks_.tick(stores.agent);
}

void BulkCopies::wait_stores_read(int pending, int thread, int block) {
  Stores& stores = stores_of(thread);
  for (; stores.groups.size() > static_cast<std::size_t>(pending); stores.groups.pop_front()) {
    const Group& group = stores.groups.front();
    for (const TensorBox& box : group.boxes) write_out(box, block);
    if (stores.agent >= 0) clocks_.learn(thread, stores.agent, group.time);
  }
}

void BulkCopies::write_out(const TensorBox& box, int block) {
  for (int index = 0; index < box.lines(); ++index) {
    std::array<std::byte, 128> data;
    for (int chunk = 0; chunk < box.map.line_bytes / chunk_bytes; ++chunk)
      std::memcpy(&data[static_cast<std::size_t>(chunk * chunk_bytes)],
                  shared_.bytes_at(box.chunk_at(index, chunk)), chunk_bytes);
    const TensorBox::Line line = box.line_at(index);
    if (line.bytes == 0) continue;
    memory_.note_write(line.address, line.bytes, box.map.element_bytes, block, box.line);
    std::memcpy(line.address, &data[static_cast<std::size_t>(line.first)],
                static_cast<std::size_t>(line.bytes));
  }
}

void BulkCopies::check_left(int thread) const {
  const Stores& stores = stores_[static_cast<std::size_t>(thread)];
  const TensorBox* box = nullptr;
  for (const Group& group : stores.groups)
    if (!group.boxes.empty()) box = &group.boxes.front();
  if (!stores.open.empty()) box = &stores.open.front();
  if (box == nullptr) return;
  throw Fault{
      FaultKind::in_flight, box->line,
      fmt::format("thread {} leaves the kernel while its box store may still read shared memory "
                  "from byte {} on, which the next block may get",
                  thread, box->shared - SharedMemory::base),
      "commit_stores() and wait_stores_read<0>() before the end", thread};
}

}  // namespace flashcore
