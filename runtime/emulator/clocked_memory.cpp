// What SharedMemory knows of its words once the clocks run.
#include <cstring>
#include <utility>

#include "runtime/emulator/shared_memory.h"

namespace flashcore {
namespace {

constexpr int word_bytes = 4, row_bytes = 16, lanes = 32;

[[noreturn]] void fail(FaultKind kind, const Accessor& by, std::string why, std::string fix) {
  throw Fault{kind, by.line, std::move(why), std::move(fix), by.thread};
}

std::uint32_t word_address(std::uint32_t address, int word) {
  return address + static_cast<std::uint32_t>(word * word_bytes);
}

}  // namespace

void SharedMemory::start_clocks() {
  if (std::exchange(clocked_, true)) return;
  clocks_.start(epoch_);
  more_.assign(words_.size(), 0);
  readers_.assign(1, {});
  free_reader_ = 0;
  // Who the others were that read in this epoch was not noted.
  for (Word& word : words_)
    if (word.read.epoch == epoch_ && (word.read.thread & several) != 0)
      word.read.thread |= everyone;
}

void SharedMemory::name_agent(int agent, std::string name, std::string fix) {
  agents_[agent] = {std::move(name), std::move(fix)};
}

std::string SharedMemory::describe(const Access& access) const {
  const int who = access.who();
  if ((access.thread & everyone) != 0) return fmt::format("several threads, one of them {}", who);
  if (clocks_.is_thread(who)) {
    return (access.thread & several) != 0 ? fmt::format("the warp of thread {}", who)
                                          : fmt::format("thread {}", who);
  }
  return agents_.at(who).name;
}

std::string SharedMemory::how_to_order(const Access& access, const char* otherwise) const {
  const auto agent = agents_.find(access.who());
  return agent == agents_.end() ? otherwise : agent->second.fix;
}

SharedMemory::Access SharedMemory::clocked_stamp(const Accessor& by, bool whole_warp) {
  const std::int32_t time =
      whole_warp ? clocks_.level_warp(by.thread / lanes * lanes) : clocks_.now(by.thread);
  const int flags = whole_warp ? several : 0;
  return {static_cast<std::uint32_t>(time), static_cast<std::uint16_t>(by.thread | flags),
          static_cast<std::uint16_t>(by.line)};
}

template <class Test>
bool SharedMemory::holds_for_all(const Access& access, Test test) const {
  if ((access.thread & (several | everyone)) == 0) return test(access.who());
  const bool all = (access.thread & everyone) != 0;
  const int first = all ? 0 : access.who() / lanes * lanes,
            end = all ? clocks_.threads() : first + lanes;
  for (int thread = first; thread < end; ++thread)
    if (!test(thread)) return false;
  return true;
}

bool SharedMemory::ordered(const Access& access, const Clock& view) const {
  const auto time = static_cast<std::int32_t>(access.epoch);
  return holds_for_all(access, [&](int agent) { return view[agent] >= time; });
}

bool SharedMemory::fenced(const Access& access, const Clock& view) const {
  const auto time = static_cast<std::int32_t>(access.epoch);
  return holds_for_all(access, [&](int thread) { return clocks_.fenced(thread, time, view); });
}

void SharedMemory::check_clocked_read(const Word& word, std::uint32_t address, const Clock& view,
                                      const Accessor& by) const {
  const Access& write = word.write;
  if (write.epoch == unwritten) refuse_unwritten(address, by);
  if (write.epoch == flying) refuse_flying(word, address, by, false);
  if (write.epoch == claimed) {
    fail(FaultKind::misused_mbarrier, by,
         fmt::format(
             "byte {} of shared memory belongs to the mbarrier that thread {} initialised at "
             "line {}",
             address - base, write.who(), write.line),
         "touch mbarriers by their own operations only");
  }
  if (ordered(write, view)) return;
  fail(FaultKind::race, by,
       fmt::format(
           "byte {} of shared memory was written by {} at line {}, and no barrier orders that "
           "write before this read",
           address - base, describe(write), write.line),
       how_to_order(write,
                    "barrier(), or arrive() behind the write and wait_phase() before the read"));
}

void SharedMemory::check_clocked_write(std::size_t index, std::uint32_t address, const Clock& view,
                                       const Accessor& by) const {
  const Word& word = words_[index];
  const Access& write = word.write;
  if (write.epoch == flying) refuse_flying(word, address, by, true);
  if (write.epoch == claimed) check_clocked_read(word, address, view, by);
  if (write.epoch != unwritten && !ordered(write, view)) {
    fail(FaultKind::race, by,
         fmt::format(
             "byte {} of shared memory was written by {} at line {}, and no barrier orders that "
             "write before this one",
             address - base, describe(write), write.line),
         how_to_order(write, "a barrier between the two writes"));
  }
  const auto check = [&](const Access& read) {
    if (read.epoch == unwritten || ordered(read, view)) return;
    fail(FaultKind::race, by,
         fmt::format(
             "byte {} of shared memory was read by {} at line {}, and no barrier orders that "
             "read before this write",
             address - base, describe(read), read.line),
         how_to_order(read,
                      "barrier(), or arrive() behind the read and wait_phase() before the write"));
  };
  check(word.read);
  for (std::uint32_t at = more_[index]; at != 0; at = readers_[at].next) check(readers_[at].access);
}

void SharedMemory::check_fence(const Access& earlier, AccessKind earlier_kind,
                               std::uint32_t address, const Clock& view, const Accessor& by,
                               AccessKind kind) const {
  if (earlier.epoch == unwritten || !clocks_.is_thread(earlier.who()) || fenced(earlier, view))
    return;
  const bool wrote = earlier_kind == AccessKind::write;
  fail(FaultKind::unfenced, by,
       fmt::format("byte {} of shared memory, which this {} asynchronously, was {} by {} at line "
                   "{}, and that thread has not called fence_async() between its {} and the "
                   "barrier behind it",
                   address - base, kind == AccessKind::write ? "overwrites" : "reads",
                   wrote ? "written" : "read", describe(earlier), earlier.line,
                   wrote ? "write" : "read"),
       fmt::format("fence_async() in every thread that {}, before the barrier",
                   wrote ? "writes" : "reads"));
}

void SharedMemory::check_fences(std::size_t index, std::uint32_t address, const Clock& view,
                                const Accessor& by) const {
  check_fence(words_[index].write, AccessKind::write, address, view, by, AccessKind::write);
  check_fence(words_[index].read, AccessKind::read, address, view, by, AccessKind::write);
  for (std::uint32_t at = more_[index]; at != 0; at = readers_[at].next)
    check_fence(readers_[at].access, AccessKind::read, address, view, by, AccessKind::write);
}

// Keeps the last reader at hand, and beside it those whose reads came at the same time.
void SharedMemory::note_clocked_read(std::size_t index, const Access& now, const Clock& view) {
  Access& last = words_[index].read;
  if (last.epoch != unwritten && last.thread != now.thread && !ordered(last, view)) {
    for (std::uint32_t* at = &more_[index]; *at != 0;) {
      Reader& reader = readers_[*at];
      if (reader.access.thread == now.thread || ordered(reader.access, view)) {
        const std::uint32_t gone = std::exchange(*at, reader.next);
        reader.next = std::exchange(free_reader_, gone);
      } else {
        at = &reader.next;
      }
    }
    if (free_reader_ == 0) {
      readers_.push_back({});
      free_reader_ = static_cast<std::uint32_t>(readers_.size() - 1);
    }
    const std::uint32_t fresh = free_reader_;
    free_reader_ = readers_[fresh].next;
    readers_[fresh] = {last, more_[index]};
    more_[index] = fresh;
  }
  last = now;
}

void SharedMemory::note_clocked_write(std::size_t index, const Access& now) {
  words_[index] = {now, {}};
  while (more_[index] != 0) {  // they are ordered before the write
    const std::uint32_t gone = std::exchange(more_[index], readers_[more_[index]].next);
    readers_[gone].next = std::exchange(free_reader_, gone);
  }
}

void SharedMemory::clocked_read(std::uint32_t address, int bytes, const Accessor& by,
                                bool whole_warp) {
  const std::size_t index = (address - base) / word_bytes;
  const Clock& view = clocks_.of(by.thread);
  const Access now = clocked_stamp(by, whole_warp);
  for (int i = 0; i < bytes / word_bytes; ++i) {
    const std::size_t word = index + static_cast<std::size_t>(i);
    check_clocked_read(words_[word], word_address(address, i), view, by);
    const int first = by.thread / lanes * lanes;
    for (int lane = first; whole_warp && lane < first + lanes; ++lane)
      check_clocked_read(words_[word], word_address(address, i), clocks_.of(lane), {lane, by.line});
    note_clocked_read(word, now, view);
  }
}

void SharedMemory::clocked_write(std::uint32_t address, int bytes, const Accessor& by,
                                 bool whole_warp) {
  const std::size_t index = (address - base) / word_bytes;
  const Access now = clocked_stamp(by, whole_warp);
  for (int i = 0; i < bytes / word_bytes; ++i) {
    const std::size_t word = index + static_cast<std::size_t>(i);
    check_clocked_write(word, word_address(address, i), clocks_.of(by.thread), by);
    note_clocked_write(word, now);
  }
}

void SharedMemory::begin_box(std::uint32_t address, Accessor by) {
  words_at(address, row_bytes, by);
  const std::size_t index = (address - base) / word_bytes;
  const Clock& view = clocks_.of(by.thread);
  for (int i = 0; i < row_bytes / word_bytes; ++i) {
    const std::size_t word = index + static_cast<std::size_t>(i);
    check_clocked_write(word, word_address(address, i), view, by);
    check_fences(word, word_address(address, i), view, by);
    note_clocked_write(word, {flying, static_cast<std::uint16_t>(by.thread | several),
                              static_cast<std::uint16_t>(by.line)});
  }
}

void SharedMemory::complete_box(std::uint32_t address, const void* in, int agent, std::int32_t time,
                                int line) {
  const std::size_t index = (address - base) / word_bytes;
  for (std::size_t i = 0; i < row_bytes / word_bytes; ++i) {
    words_[index + i].write = {static_cast<std::uint32_t>(time), static_cast<std::uint16_t>(agent),
                               static_cast<std::uint16_t>(line)};
  }
  std::memcpy(&data_[address - base], in, row_bytes);
}

void SharedMemory::begin_agent_read(std::uint32_t address, const Clock& view, int agent,
                                    std::int32_t time, Accessor by) {
  words_at(address, row_bytes, by);
  const std::size_t index = (address - base) / word_bytes;
  const Access now{static_cast<std::uint32_t>(time), static_cast<std::uint16_t>(agent),
                   static_cast<std::uint16_t>(by.line)};
  for (int i = 0; i < row_bytes / word_bytes; ++i) {
    const std::size_t word = index + static_cast<std::size_t>(i);
    check_clocked_read(words_[word], word_address(address, i), view, by);
    check_fence(words_[word].write, AccessKind::write, word_address(address, i), view, by,
                AccessKind::read);
    note_clocked_read(word, now, view);
  }
}

void SharedMemory::claim_mbarrier(std::uint32_t address, Accessor by) {
  constexpr int mbarrier_bytes = 8;
  words_at(address, mbarrier_bytes, by);
  const std::size_t index = (address - base) / word_bytes;
  for (int i = 0; i < mbarrier_bytes / word_bytes; ++i) {
    const std::size_t word = index + static_cast<std::size_t>(i);
    check_clocked_write(word, word_address(address, i), clocks_.of(by.thread), by);
    note_clocked_write(word, {claimed, static_cast<std::uint16_t>(by.thread),
                              static_cast<std::uint16_t>(by.line)});
  }
}

}  // namespace flashcore
