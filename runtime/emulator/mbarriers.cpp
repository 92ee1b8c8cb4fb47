#include "runtime/emulator/mbarriers.h"

#include <algorithm>
#include <utility>

#include "runtime/emulator/primitive.h"

namespace flashcore {
namespace {

constexpr int most_arrivals = (1 << 20) - 1;
constexpr std::int64_t never = -2;  // a thread has waited

[[noreturn]] void fail(FaultKind kind, const Accessor& by, std::string why, std::string fix) {
  throw Fault{kind, by.line, std::move(why), std::move(fix), by.thread};
}

[[noreturn]] void fail_behind(std::int64_t phase, std::uint32_t address, const Accessor& by) {
  fail(FaultKind::deadlock, by,
       fmt::format("phase {} of the mbarrier at byte {} was over, and so was the next one before "
                   "this thread looked: on a GPU it may wait for that parity for ever",
                   phase, address - SharedMemory::base),
       "let nobody end the next phase before all who wait for this one have gone on");
}

}  // namespace

Mbarriers::Mbarriers(Scheduler& scheduler, SharedMemory& shared, Clocks& clocks, Complete complete)
    : scheduler_(scheduler), shared_(shared), clocks_(clocks), complete_(std::move(complete)) {}

std::string Mbarriers::Mbarrier::describe() const {
  const std::uint64_t under_way = bytes_under_way();
  std::string text =
      fmt::format("mbarrier at byte {}: phase {} (parity {}) lacks {} of {} arrivals",
                  address - SharedMemory::base, phase, phase % 2, pending, count);
  if (expected > under_way)
    text += fmt::format(" and {} of {} bytes, which no box brings", expected - under_way, expected);
  return text;
}

void Mbarriers::init(std::uint32_t address, int arrivals, Accessor by) {
  if (arrivals < 1 || arrivals > most_arrivals) {
    fail(FaultKind::bad_operand, by, fmt::format("an mbarrier for {} arrivals", arrivals),
         fmt::format("1 to {} arrivals", most_arrivals));
  }
  if (const auto found = mbarriers_.find(address); found != mbarriers_.end()) {
    fail(FaultKind::misused_mbarrier, by,
         fmt::format(
             "the mbarrier at byte {} was initialised by thread {} at line {}; {} threads wait "
             "at it",
             address - SharedMemory::base, found->second.init_thread, found->second.init_line,
             found->second.waiting),
         "initialise it once, by one thread; its phases go on by themselves");
  }
  shared_.start_clocks();
  shared_.claim_mbarrier(address, by);
  Mbarrier& mbarrier = mbarriers_[address];
  mbarrier.address = address;
  mbarrier.count = mbarrier.pending = arrivals;
  mbarrier.agent = clocks_.add_agent();
  mbarrier.awaited.assign(static_cast<std::size_t>(scheduler_.threads()), never);
  mbarrier.init_thread = by.thread;
  mbarrier.init_line = by.line;
  mbarrier.init_time = clocks_.now(by.thread);
  shared_.name_agent(
      mbarrier.agent,
      fmt::format("a box load of the mbarrier at byte {}", address - SharedMemory::base),
      "wait_phase() of that mbarrier by the thread itself, with the parity of the phase");
}

Mbarriers::Mbarrier& Mbarriers::at(std::uint32_t address, const Accessor& by, bool by_copy_engine) {
  const auto found = mbarriers_.find(address);
  if (found == mbarriers_.end()) {
    fail(FaultKind::misused_mbarrier, by,
         fmt::format("no mbarrier was initialised at byte {} of shared memory",
                     static_cast<std::int64_t>(address) - SharedMemory::base),
         "init_mbarrier(), publish_mbarriers() and barrier() before its first use");
  }
  Mbarrier& mbarrier = found->second;
  const Clock& view = clocks_.of(by.thread);
  if (view[mbarrier.init_thread] < mbarrier.init_time) {
    fail(FaultKind::race, by,
         fmt::format(
             "the mbarrier at byte {} was initialised by thread {} at line {}, and no barrier "
             "orders that before this use",
             address - SharedMemory::base, mbarrier.init_thread, mbarrier.init_line),
         "a barrier() between init_mbarrier() and the first use");
  }
  const bool other = by_copy_engine || by.thread != mbarrier.init_thread;
  if (other && !clocks_.published(mbarrier.init_thread, mbarrier.init_time, view)) {
    fail(FaultKind::misused_mbarrier, by,
         fmt::format("thread {} initialised the mbarrier at byte {} at line {} and has not called "
                     "publish_mbarriers() before the barrier behind it",
                     mbarrier.init_thread, address - SharedMemory::base, mbarrier.init_line),
         "publish_mbarriers() after init_mbarrier(), by the same thread");
  }
  return mbarrier;
}

void Mbarriers::arrive(std::uint32_t address, std::uint32_t expected_bytes, Accessor by) {
  Mbarrier& mbarrier = at(address, by, false);
  if (mbarrier.pending == 0) {
    fail(FaultKind::misused_mbarrier, by,
         fmt::format(
             "this is one arrival more than the {} of a phase: the mbarrier at byte {} waits for "
             "bytes only ({} in phase {})",
             mbarrier.count, address - SharedMemory::base, mbarrier.expected, mbarrier.phase),
         "as many arrivals in a phase as init_mbarrier() says, and between two phases a wait until "
         "all have "
         "read what the last one brought (with the right parity)");
  }
  check_awaited(mbarrier, by);
  clocks_.release(by.thread, mbarrier.gathered);
  mbarrier.expected += expected_bytes;
  --mbarrier.pending;
  settle(mbarrier, by);
}

void Mbarriers::add_box(std::uint32_t address, const TensorBox& box) {
  const Accessor by{box.thread, box.line};
  Mbarrier& mbarrier = at(address, by, true);
  mbarrier.boxes.push_back(box);
  settle(mbarrier, by);
}

void Mbarriers::settle(Mbarrier& mbarrier, const Accessor& by) {
  if (mbarrier.pending > 0) return;
  const std::uint64_t under_way = mbarrier.bytes_under_way();
  if (under_way > mbarrier.expected) {
    const TensorBox& box = mbarrier.boxes.back();
    fail(FaultKind::misused_mbarrier, by,
         fmt::format(
             "all arrivals of phase {} of the mbarrier at byte {} expect {} bytes, and its boxes "
             "bring {}, the last one that thread {} loads at line {}",
             mbarrier.phase, mbarrier.address - SharedMemory::base, mbarrier.expected, under_way,
             box.thread, box.line),
         "arrive_expect_tx() with the bytes of all boxes of the phase, zeros outside of the tensor "
         "included");
  }
  if (under_way < mbarrier.expected || (under_way > 0 && mbarrier.waiting == 0)) return;
  if (under_way > 0) {
    const std::int32_t time = clocks_.tick(mbarrier.agent);
    for (const TensorBox& box : mbarrier.boxes) complete_(box, mbarrier.agent, time);
    mbarrier.gathered.raise(mbarrier.agent, time);
    mbarrier.boxes.clear();
  }
  mbarrier.over = mbarrier.gathered;
  if (mbarrier.waiting > 0) mbarrier.last_awaited = mbarrier.phase;
  mbarrier.pending = mbarrier.count;
  mbarrier.expected = 0;
  ++mbarrier.phase;
}

void Mbarriers::await(std::uint32_t address, int parity, Accessor by) {
  Mbarrier& mbarrier = at(address, by, false);
  if (parity != 0 && parity != 1) {
    fail(FaultKind::bad_operand, by, fmt::format("a phase has no parity {}", parity),
         "the number of the phase modulo 2");
  }
  check_pace(mbarrier, parity, by);
  const auto is_over = [&] { return mbarrier.phase % 2 != static_cast<std::uint32_t>(parity); };
  if (!is_over()) {
    const std::uint32_t phase = mbarrier.phase;
    ++mbarrier.waiting;
    settle(mbarrier, by);
    if (!is_over()) {
      scheduler_.block({name_of(Primitive::wait_phase), by.line, &mbarrier.phase, phase});
      if (mbarrier.phase != phase + 1) fail_behind(phase, address, by);
    }
    --mbarrier.waiting;
  }
  const std::int64_t awaited = static_cast<std::int64_t>(mbarrier.phase) - 1;
  mbarrier.awaited[static_cast<std::size_t>(by.thread)] = awaited;
  mbarrier.last_awaited = std::max(mbarrier.last_awaited, awaited);
  clocks_.acquire(by.thread, mbarrier.over);
}

void Mbarriers::check_pace(const Mbarrier& mbarrier, int parity, const Accessor& by) {
  const std::int64_t last = mbarrier.awaited[static_cast<std::size_t>(by.thread)];
  // Before the first phase lies one of parity 1, which is always over.
  const std::int64_t next = last == never ? -parity : last + 1;
  const bool waits_for_it = (next & 1) == parity;
  if (waits_for_it && mbarrier.phase >= next + 2) fail_behind(next, mbarrier.address, by);
}

void Mbarriers::check_awaited(const Mbarrier& mbarrier, const Accessor& by) {
  const std::int64_t over = static_cast<std::int64_t>(mbarrier.phase) - 1;
  if (mbarrier.last_awaited >= over) return;
  fail(FaultKind::misused_mbarrier, by,
       fmt::format("phase {} of the mbarrier at byte {} is over, and no thread has waited for it",
                   over, mbarrier.address - SharedMemory::base),
       "a wait_phase() for each phase, or no arrival at an mbarrier for which no thread waits");
}

void Mbarriers::check_end() const {
  for (const auto& [address, mbarrier] : mbarriers_) {
    if (mbarrier.boxes.empty()) continue;
    const TensorBox& box = mbarrier.boxes.front();
    fail(FaultKind::in_flight, {box.thread, box.line},
         fmt::format(
             "the block ends while a box is on its way to byte {} of shared memory; nobody waits "
             "for phase {} of the mbarrier at byte {}",
             box.shared - SharedMemory::base, mbarrier.phase, address - SharedMemory::base),
         "wait_phase() for every box before the end, or do not load it");
  }
}

std::string Mbarriers::describe_waits() const {
  std::string text;
  for (const auto& [address, mbarrier] : mbarriers_)
    if (mbarrier.waiting > 0) text += "; " + mbarrier.describe();
  return text;
}

}  // namespace flashcore
