#include "runtime/emulator/shared_memory.h"

#include <algorithm>
#include <cstring>

namespace flashcore {
namespace {

constexpr int word_bytes = 4, row_bytes = 16;

[[noreturn]] void fail(FaultKind kind, const Accessor& by, std::string why, std::string fix) {
  throw Fault{kind, by.line, std::move(why), std::move(fix), by.thread};
}

}  // namespace

SharedMemory::SharedMemory(int bytes, Clocks& clocks)
    : bytes_(static_cast<std::size_t>(bytes)),
      words_((bytes_ + word_bytes - 1) / word_bytes),
      data_(words_.size() * word_bytes),
      clocks_(clocks) {
  reset();
}

void SharedMemory::reset() {
  epoch_ = first_epoch;
  clocks_.reset();
  clocked_ = false;
  agents_.clear();
  std::fill(words_.begin(), words_.end(), Word{});
  std::fill(data_.begin(), data_.end(), std::byte{0xff});  // a NaN in every float type
}

SharedMemory::Access SharedMemory::stamp(const Accessor& by) const {
  return {epoch_, static_cast<std::uint16_t>(by.thread), static_cast<std::uint16_t>(by.line)};
}

SharedMemory::Word* SharedMemory::words_at(std::uint32_t address, int bytes, const Accessor& by) {
  const std::size_t offset = address - base, size = static_cast<std::size_t>(bytes);
  if (address < base) {
    fail(FaultKind::out_of_bounds, by,
         fmt::format("address {} lies before shared memory, which begins at shared_base() = {}",
                     address, base),
         "add shared_base() to the offset");
  }
  if (offset + size > bytes_) {
    fail(FaultKind::out_of_bounds, by,
         fmt::format("bytes {} to {} of shared memory are accessed; the block has {}", offset,
                     offset + size - 1, bytes_),
         "check the offset, or raise shared_bytes");
  }
  if (offset % size != 0) {
    fail(FaultKind::misaligned, by,
         fmt::format("{} bytes are accessed at byte {} of shared memory, {} past a multiple of {}",
                     bytes, offset, offset % size, bytes),
         fmt::format("align the offset to {} bytes", bytes));
  }
  return &words_[offset / word_bytes];
}

void SharedMemory::refuse_unwritten(std::uint32_t address, const Accessor& by) {
  fail(FaultKind::uninitialized, by,
       fmt::format("nothing was written to byte {} of shared memory before", address - base),
       "write the tile first, or read where it was written (both sides use one swizzle)");
}

void SharedMemory::refuse_flying(const Word& word, std::uint32_t address, const Accessor& by,
                                 bool writes) {
  const bool box = (word.write.thread & several) != 0;
  fail(FaultKind::in_flight, by,
       fmt::format("byte {} of shared memory is the target of a {} that thread {} issued at line "
                   "{} and {}",
                   address - base, box ? "box load" : "copy", word.write.who(), word.write.line,
                   box ? "nobody has waited for" : "has not waited for"),
       writes ? "wait for the copy before its target is written again"
       : box  ? "arrive_expect_tx() with the bytes of the box, and wait_phase() of its mbarrier "
                "before "
                "the read"
              : "commit_copies(), wait_copies<n>() for its group, then barrier() before the read");
}

void SharedMemory::check_read(const Word& word, std::uint32_t address, const Accessor& by,
                              bool whole_warp) {
  const Access& write = word.write;
  // One comparison for the common case: written in an epoch before this one.
  if (write.epoch - 1 < epoch_ - 1) return;
  const std::uint32_t offset = address - base;
  if (write.epoch == unwritten) refuse_unwritten(address, by);
  if (write.epoch == flying) refuse_flying(word, address, by, false);
  if (write.thread == by.thread && !whole_warp) return;
  fail(FaultKind::race, by,
       fmt::format("byte {} of shared memory was written by thread {} at line {}, and no barrier "
                   "orders that write before this read{}",
                   offset, write.who(), write.line,
                   write.who() == by.thread ? " for the other lanes of the warp" : ""),
       "a barrier() between the write and the read");
}

void SharedMemory::check_write(const Word& word, std::uint32_t address, const Accessor& by) {
  const std::uint32_t offset = address - base;
  const Access &write = word.write, &read = word.read;
  if (write.epoch == flying) refuse_flying(word, address, by, true);
  if (write.epoch == epoch_ && write.thread != by.thread) {
    fail(FaultKind::race, by,
         fmt::format("byte {} of shared memory was written by thread {} at line {}, and no barrier "
                     "orders that write before this one",
                     offset, write.who(), write.line),
         "a barrier() between the two writes");
  }
  if (read.epoch == epoch_ && read.thread != by.thread) {
    fail(FaultKind::race, by,
         fmt::format("byte {} of shared memory was read by {} {} at line {}, and no barrier orders "
                     "that read before this write",
                     offset,
                     (read.thread & several) != 0 ? "several threads, one of them" : "thread",
                     read.who(), read.line),
         "a barrier() between the read and the write, or another stage of the ring");
  }
}

void SharedMemory::note_read(Word& word, const Accessor& by, bool whole_warp) const {
  Access now = stamp(by);
  const bool joined = word.read.epoch == epoch_ && word.read.thread != now.thread;
  if (joined || whole_warp) now.thread |= several;
  word.read = now;
}

void SharedMemory::order_threads(int first_thread, int threads) {
  clocks_.running() ? clocks_.meet(first_thread, threads) : static_cast<void>(++epoch_);
}

void SharedMemory::read(std::uint32_t address, int bytes, void* out, Accessor by) {
  Word* words = words_at(address, bytes, by);
  if (clocks_.running()) {
    clocked_read(address, bytes, by, false);
  } else {
    for (int i = 0; i < bytes / word_bytes; ++i) {
      check_read(words[i], address + static_cast<std::uint32_t>(i * word_bytes), by, false);
      note_read(words[i], by, false);
    }
  }
  std::memcpy(out, &data_[address - base], static_cast<std::size_t>(bytes));
}

void SharedMemory::read_row(std::uint32_t address, void* out, Accessor by) {
  Word* words = words_at(address, row_bytes, by);
  if (clocks_.running()) {
    clocked_read(address, row_bytes, by, true);
  } else {
    for (int i = 0; i < row_bytes / word_bytes; ++i) {
      check_read(words[i], address + static_cast<std::uint32_t>(i * word_bytes), by, true);
      note_read(words[i], by, true);
    }
  }
  std::memcpy(out, &data_[address - base], row_bytes);
}

void SharedMemory::write(std::uint32_t address, int bytes, const void* in, Accessor by) {
  Word* words = words_at(address, bytes, by);
  if (clocks_.running()) {
    clocked_write(address, bytes, by, false);
  } else {
    for (int i = 0; i < bytes / word_bytes; ++i) {
      check_write(words[i], address + static_cast<std::uint32_t>(i * word_bytes), by);
      words[i].write = stamp(by);
    }
  }
  std::memcpy(&data_[address - base], in, static_cast<std::size_t>(bytes));
}

void SharedMemory::write_row(std::uint32_t address, const void* in, Accessor by) {
  Word* words = words_at(address, row_bytes, by);
  if (clocks_.running()) {
    clocked_write(address, row_bytes, by, true);
  } else {
    for (int i = 0; i < row_bytes / word_bytes; ++i) {
      check_write(words[i], address + static_cast<std::uint32_t>(i * word_bytes), by);
      words[i].write = stamp(by);
      words[i].write.thread |= several;
    }
  }
  std::memcpy(&data_[address - base], in, row_bytes);
}

void SharedMemory::begin_copy(std::uint32_t address, Accessor by) {
  Word* words = words_at(address, row_bytes, by);
  if (clocks_.running()) clocked_write(address, row_bytes, by, false);
  for (int i = 0; i < row_bytes / word_bytes; ++i) {
    if (!clocks_.running()) {
      check_write(words[i], address + static_cast<std::uint32_t>(i * word_bytes), by);
      words[i].write = stamp(by);
    }
    words[i].write.epoch = flying;
  }
}

void SharedMemory::complete_copy(std::uint32_t address, const void* in, Accessor by) {
  Word* words = words_at(address, row_bytes, by);
  const Access now = clocks_.running() ? clocked_stamp(by, false) : stamp(by);
  for (int i = 0; i < row_bytes / word_bytes; ++i) words[i].write = now;
  std::memcpy(&data_[address - base], in, row_bytes);
}

}  // namespace flashcore
