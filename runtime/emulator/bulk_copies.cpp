#include "runtime/emulator/bulk_copies.h"

#include <algorithm>
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
    for (int chunk = 0; chunk < box.line_bytes() / chunk_bytes; ++chunk)
      shared_.begin_box(box.chunk_at(index, chunk), {box.thread, box.line});
  }
}

void BulkCopies::complete(const TensorBox& box, int agent, std::int32_t time) {
  for (int index = 0; index < box.lines(); ++index) {
    std::array<std::byte, TensorBox::longest_line> data{};
    const TensorBox::Line line = box.line_at(index);
    if (line.bytes > 0)
      std::memcpy(&data[static_cast<std::size_t>(line.first)], line.address,
                  static_cast<std::size_t>(line.bytes));
    for (int chunk = 0; chunk < box.line_bytes() / chunk_bytes; ++chunk)
      shared_.complete_box(box.chunk_at(index, chunk),
                           &data[static_cast<std::size_t>(chunk * chunk_bytes)], agent, time,
                           box.line);
  }
}

void BulkCopies::store(const BoxStore& store, int coordinates) {
  const TensorBox& box = store.box;
  box.check(coordinates);
  if (const auto before = std::ranges::find_if(box.at, [](int at) { return at < 0; });
      before != box.at.end())
    throw Fault{
        FaultKind::bad_operand, box.line,
        fmt::format("a box is stored at the coordinate {}: an illegal instruction", *before),
        "boxes that begin in the tensor, or stores by threads", box.thread};
  if (store.adds && box.map.element_bytes != size_of(DType::f32))
    throw Fault{FaultKind::bad_operand, box.line,
                fmt::format("a box with elements of {} bytes is added", box.map.element_bytes),
                "sums in f32", box.thread};
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
    for (int chunk = 0; chunk < box.line_bytes() / chunk_bytes; ++chunk)
      shared_.begin_agent_read(box.chunk_at(index, chunk), clocks_.of(box.thread), stores.agent,
                               stores.time, {box.thread, box.line});
  stores.open.push_back(store);
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
    std::vector<Addition>& additions = stores.additions.emplace_back();
    for (const BoxStore& store : group.boxes) write_out(store, block, additions);
    if (stores.agent >= 0) clocks_.learn(thread, stores.agent, group.time);
  }
}

void BulkCopies::wait_stores(int pending, int thread, int block, const KnownNotes& known) {
  wait_stores_read(pending, thread, block);
  Stores& stores = stores_of(thread);
  const auto most = static_cast<std::size_t>(pending) - stores.groups.size();
  for (; stores.additions.size() > most; stores.additions.pop_front())
    add(stores.additions.front(), block, known);
}

void BulkCopies::add(const std::vector<Addition>& additions, int block, const KnownNotes& known) {
  for (const Addition& each : additions)
    memory_.add(reinterpret_cast<float*>(each.address), each.values.data(),
                static_cast<int>(each.values.size()), size_of(DType::f32), block,
                each.in_turn ? &known : nullptr, each.line);
}

void BulkCopies::write_out(const BoxStore& store, int block, std::vector<Addition>& additions) {
  const TensorBox& box = store.box;
  for (int index = 0; index < box.lines(); ++index) {
    std::array<std::byte, TensorBox::longest_line> data;
    for (int chunk = 0; chunk < box.line_bytes() / chunk_bytes; ++chunk)
      std::memcpy(&data[static_cast<std::size_t>(chunk * chunk_bytes)],
                  shared_.bytes_at(box.chunk_at(index, chunk)), chunk_bytes);
    const TensorBox::Line line = box.line_at(index);
    if (line.bytes == 0) continue;
    if (store.adds) {
      Addition& addition = additions.emplace_back(
          Addition{line.address, std::vector<float>(static_cast<std::size_t>(line.bytes) / 4),
                   store.in_turn, box.line});
      std::memcpy(addition.values.data(), &data[static_cast<std::size_t>(line.first)],
                  static_cast<std::size_t>(line.bytes));
      continue;
    }
    memory_.note_write(line.address, line.bytes, box.map.element_bytes, block, box.line);
    std::memcpy(line.address, &data[static_cast<std::size_t>(line.first)],
                static_cast<std::size_t>(line.bytes));
  }
}

void BulkCopies::leave(int thread, int block, const KnownNotes& known) {
  Stores& stores = stores_of(thread);
  const TensorBox* box = nullptr;
  for (const Group& group : stores.groups)
    if (!group.boxes.empty()) box = &group.boxes.front().box;
  if (!stores.open.empty()) box = &stores.open.front().box;
  if (box == nullptr) return wait_stores(0, thread, block, known);
  throw Fault{
      FaultKind::in_flight, box->line,
      fmt::format("thread {} leaves the kernel while its box store may still read shared memory "
                  "from byte {} on, which the next block may get",
                  thread, box->shared - SharedMemory::base),
      "commit_stores() and wait_stores_read<0>() before the end", thread};
}

}  // namespace flashcore
