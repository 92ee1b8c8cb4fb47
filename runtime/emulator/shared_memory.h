// The shared memory of a block, with what is known about every word of it.
//
// Race detection is by vector clocks. The only thing that orders the threads of a block is a
// barrier of the whole block (shuffles, ldmatrix and mma make lanes meet, but order no memory), so
// the clocks of two threads never differ but in their own entries, and one number, the epoch,
// stands for all of them: accesses of an earlier epoch come before everything now, accesses of this
// epoch only before those of the same thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/emulator/emulator_error.h"

namespace flashcore {

/// Who asks, for the check and for the message.
struct Accessor {
  int thread = 0;
  int line = 0;
};

class SharedMemory {
 public:
  /// Where shared memory begins for the kernel (the prelude's shared_base()).
  static constexpr std::uint32_t base = 1024;

  explicit SharedMemory(int bytes);

  /// A new block: every byte is unwritten and holds a NaN pattern.
  void reset();

  /// All threads of the block have met: what was done is ordered before what follows.
  void order_all() { ++epoch_; }

  /// 4 or 16 bytes.
  void read(std::uint32_t address, int bytes, void* out, Accessor by);
  void write(std::uint32_t address, int bytes, const void* in, Accessor by);

  /// A row of ldmatrix: one lane gives the address, the whole warp gets the 16 bytes. So every lane
  /// has to be ordered behind the write, not only the one that gives the address.
  void read_row(std::uint32_t address, void* out, Accessor by);

  /// A part of a block that a whole warp writes: nobody knows which lane writes it, so that every thread
  /// has to be ordered behind it.
  void write_row(std::uint32_t address, const void* in, Accessor by);

  /// An asynchronous copy of 16 bytes: in flight from `begin_copy` to `land_copy`, then as if
  /// written by the issuing thread at its wait.
  void begin_copy(std::uint32_t address, Accessor by);
  void land_copy(std::uint32_t address, const void* in, Accessor by);

 private:
  static constexpr std::uint32_t unwritten = 0, flying = 0xffffffffu, first_epoch = 1;
  static constexpr std::uint16_t several = 0x8000;  ///< a flag beside the last thread of an epoch

  struct Access {
    std::uint32_t epoch = unwritten;
    std::uint16_t thread = 0;
    std::uint16_t line = 0;
    [[nodiscard]] int who() const { return thread & ~several; }
  };
  struct Word {
    Access write;
    Access read;
  };

  Word* words_at(std::uint32_t address, int bytes, const Accessor& by);
  void check_read(const Word& word, std::uint32_t address, const Accessor& by, bool whole_warp);
  void check_write(const Word& word, std::uint32_t address, const Accessor& by);
  void note_read(Word& word, const Accessor& by, bool whole_warp) const;
  [[nodiscard]] Access stamp(const Accessor& by) const;

  std::size_t bytes_;
  std::uint32_t epoch_ = first_epoch;
  std::vector<Word> words_;
  std::vector<std::byte> data_;
};

}  // namespace flashcore
