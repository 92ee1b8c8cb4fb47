// The primitives of sm_90: mbarriers, the copy engine, named barriers and warpgroups.
#include <algorithm>
#include <cstring>

#include "runtime/emulator/block.h"
#include "runtime/emulator/block_meeting.h"
#include "runtime/emulator/cluster.h"

namespace flashcore {
namespace {

TensorBox box_of(const void* map, std::uint32_t shared, const int* at, int coordinates,
                 const Accessor& by) {
  TensorBox box{.map = {}, .at = {}, .shared = shared, .thread = by.thread, .line = by.line};
  std::memcpy(&box.map, map, sizeof box.map);
  std::copy_n(at, coordinates, box.at.begin());
  return box;
}

}  // namespace

void Block::init_mbarrier(std::uint32_t mbarrier, int arrivals, int line) {
  mbarriers_.init(mbarrier, arrivals, accessor(line));
}

void Block::publish_mbarriers() {
  shared_.start_clocks();
  clocks_.publish(agent());
}

void Block::wait_phase(std::uint32_t mbarrier, int parity, int line) {
  mbarriers_.await(mbarrier, parity, accessor(line));
}

void Block::load_box(std::uint32_t target, const void* map, std::uint32_t mbarrier, const int* at,
                     int coordinates, bool multicast, int line) {
  check_waited(line);
  const TensorBox box = box_of(map, target, at, coordinates, accessor(line));
  for (int rank = 0; rank < cluster_.size(); ++rank) {
    Block& block = cluster_[rank];
    if (&block != this && !multicast) continue;
    if (&block != this) block.check_reachable(accessor(line));
    block.bulk_.begin_load(box, coordinates, index_);
    block.mbarriers_.add_box(mbarrier, box);
  }
}

void Block::store_box(const void* map, std::uint32_t source, const int* at, int coordinates,
                      int line) {
  check_waited(line);
  bulk_.store({box_of(map, source, at, coordinates, accessor(line))}, coordinates);
}

void Block::add_box(const void* map, std::uint32_t source, const int* at, int coordinates,
                    bool in_turn, int line) {
  check_waited(line);
  bulk_.store({.box = box_of(map, source, at, coordinates, accessor(line)),
               .adds = true,
               .in_turn = in_turn},
              coordinates);
}

void Block::commit_stores() { bulk_.commit_stores(agent()); }

void Block::wait_stores_read(int pending) { bulk_.wait_stores_read(pending, agent(), index_); }

void Block::wait_stores(int pending) { bulk_.wait_stores(pending, agent(), index_, known_); }

void Block::fence_async() {
  shared_.start_clocks();
  clocks_.fence(agent());
}

std::uint32_t Block::arrive_at_barrier(Primitive primitive, int barrier, int threads, int line) {
  Warp& mine = warp();
  const std::size_t me = lane();
  mine.address[me] = static_cast<std::uint32_t>(barrier);
  mine.pitch[me] = static_cast<std::uint32_t>(threads);
  meet_in_warp(primitive, line, [&](Warp& all) {
    for (std::size_t l = 1; l < lanes; ++l)
      if (all.address[l] != all.address[0] || all.pitch[l] != all.pitch[0])
        throw Fault{
            FaultKind::bad_operand, line,
            fmt::format("lane 0 comes to barrier {} of {} threads, lane {} to barrier {} of {}",
                        all.address[0], all.pitch[0], l, all.address[l], all.pitch[l]),
            "one barrier for all lanes of a warp"};
    all.seen = named_.arrive(barrier, threads, {agent() / lanes * lanes, line});
  });
  return mine.seen;
}

void Block::meet(int barrier, int threads, int line) {
  const std::uint32_t seen = arrive_at_barrier(Primitive::meet, barrier, threads, line);
  const std::uint32_t* completions = named_.completions(barrier);
  if (*completions == seen) scheduler_.block({name_of(Primitive::meet), line, completions, seen});
  named_.acquire(barrier, agent());
}

void Block::signal(int barrier, int threads, int line) {
  arrive_at_barrier(Primitive::signal, barrier, threads, line);
}

Block::Group& Block::group(int line) {
  const auto index = static_cast<std::size_t>(thread_index() / ProductRequest::threads);
  if (index >= groups_.size()) {
    throw Fault{FaultKind::bad_operand, line,
                fmt::format("thread {} belongs to no whole warpgroup: the block has {} threads",
                            thread_index(), threads_),
                "blocks of a multiple of 128 threads"};
  }
  return *groups_[index];
}

void Block::set_registers(bool grow, int registers, int line) {
  if (registers < 24 || registers > 256 || registers % 8 != 0) {
    throw Fault{FaultKind::bad_operand, line, fmt::format("{} registers a thread", registers),
                "a multiple of 8 from 24 to 256"};
  }
  const Primitive primitive = grow ? Primitive::grow_registers : Primitive::shrink_registers;
  const auto index = static_cast<std::size_t>(thread_index() / ProductRequest::threads);
  Group& mine = group(line);
  meet_in_group(primitive, line,
                [&](Group& all) { all.grants = registers_.set(index, registers); });
  if (const std::uint32_t* grants = registers_.grants(index); *grants == mine.grants)
    scheduler_.block({name_of(primitive), line, grants, mine.grants});
}

void Block::fence_products(int line) {
  meet_in_group(Primitive::fence_products, line, [](Group& all) { all.products.open(); });
}

void Block::multiply_warpgroup(float* d, const std::uint32_t* a_registers,
                               const ProductRequest::Same& what, int line) {
  ProductRequest& request = group(line).request;
  const auto me = static_cast<std::size_t>(thread_index() % ProductRequest::threads);
  request.same[me] = what;
  request.d[me] = d;
  request.a[me] = a_registers;
  meet_in_group(Primitive::multiply_warpgroup, line,
                [line](Group& all) { all.products.multiply(all.request, line); });
}

void Block::commit_products(int line) {
  meet_in_group(Primitive::commit_products, line, [](Group& all) { all.products.commit(); });
}

void Block::wait_products(int pending, int line) {
  meet_in_group(Primitive::wait_products, line,
                [=](Group& all) { all.products.await(pending, line); });
}

void Block::pin(float* d, int count, int line) {
  group(line).products.pin(agent(), {d, static_cast<std::size_t>(count)}, line);
}

}  // namespace flashcore
