// The shared memory of a block, with what is known about every word of it.
//
// Race detection is by vector clocks (clocks.h). As long as the only thing that orders the threads
// of a block is a barrier of the whole block (shuffles, ldmatrix and mma make lanes meet, but order
// no memory), the clocks of two threads never differ but in their own entries, and one number, the
// epoch, stands for all of them: accesses of an earlier epoch come before everything now, accesses
// of this epoch only before those of the same thread. Once the clocks run, an access carries its
// agent's time in place of the epoch; those of before keep their meaning (clocked_memory.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/emulator/clocks.h"
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

  /// `clocks` are the block's.
  SharedMemory(int bytes, Clocks& clocks);

  /// A new block: every byte is unwritten and holds a NaN pattern.
  void reset();

  /// These threads have met: what they did is ordered before what follows. Until the clocks run they
  /// are all threads of the block.
  void order_threads(int first_thread, int threads);
  /// From here on something orders some threads and not others.
  void start_clocks();

  /// 4 or 16 bytes.
  void read(std::uint32_t address, int bytes, void* out, Accessor by);
  void write(std::uint32_t address, int bytes, const void* in, Accessor by);

  /// A row of ldmatrix: one lane gives the address, the whole warp gets the 16 bytes. So every lane
  /// has to be ordered behind the write, not only the one that gives the address.
  void read_row(std::uint32_t address, void* out, Accessor by);

  /// A part of a block that a whole warp writes: nobody knows which lane writes it, so that every
  /// thread has to be ordered behind it.
  void write_row(std::uint32_t address, const void* in, Accessor by);

  /// An asynchronous copy of 16 bytes: in flight from `begin_copy` to `complete_copy`, then as if
  /// written by the issuing thread at its wait.
  void begin_copy(std::uint32_t address, Accessor by);
  void complete_copy(std::uint32_t address, const void* in, Accessor by);

  // What the copy engine and warpgroup products do, 16 bytes at a time; the clocks run.

  /// Bytes that the copy engine may write from now on, for the thread.
  void begin_box(std::uint32_t address, Accessor by);
  /// They have come. From here on they are written by an agent, at its time.
  void complete_box(std::uint32_t address, const void* in, int agent, std::int32_t time, int line);
  /// Bytes that an agent reads from now on until its time is known to be over. `view` is what those
  /// know for whom it reads.
  void begin_agent_read(std::uint32_t address, const Clock& view, int agent, std::int32_t time,
                        Accessor by);
  /// What an agent reads, later.
  [[nodiscard]] const std::byte* bytes_at(std::uint32_t address) const {
    return &data_[address - base];
  }

  /// Gives the 8 bytes to an mbarrier, for good.
  void claim_mbarrier(std::uint32_t address, Accessor by);
  /// What an agent that is no thread does, for messages: "a product of warpgroup 1".
  void name_agent(int agent, std::string name, std::string fix);

 private:
  static constexpr std::uint32_t unwritten = 0, claimed = 0xfffffffeu, flying = 0xffffffffu,
                                 first_epoch = 1;
  /// Flags beside a thread. `several`: in an epoch, others read too; by the clocks, the whole warp.
  /// Of bytes in flight: a box. `everyone`: nobody knows which threads.
  static constexpr std::uint16_t several = 0x8000, everyone = 0x4000;

  struct Access {
    std::uint32_t epoch = unwritten;  ///< or the agent's time
    std::uint16_t thread = 0;         ///< or another agent
    std::uint16_t line = 0;
    [[nodiscard]] int who() const { return thread & ~(several | everyone); }
  };
  struct Word {
    Access write;
    Access read;
  };
  /// Readers of a word that are not ordered behind each other, but for the last.
  struct Reader {
    Access access;
    std::uint32_t next = 0;
  };
  struct AgentName {
    std::string name, fix;
  };

  Word* words_at(std::uint32_t address, int bytes, const Accessor& by);
  void check_read(const Word& word, std::uint32_t address, const Accessor& by, bool whole_warp);
  void check_write(const Word& word, std::uint32_t address, const Accessor& by);
  void note_read(Word& word, const Accessor& by, bool whole_warp) const;
  [[nodiscard]] Access stamp(const Accessor& by) const;
  [[noreturn]] static void refuse_unwritten(std::uint32_t address, const Accessor& by);
  [[noreturn]] static void refuse_flying(const Word& word, std::uint32_t address,
                                         const Accessor& by, bool writes);

  // By the clocks, in clocked_memory.cpp.
  [[nodiscard]] Access clocked_stamp(const Accessor& by, bool whole_warp);
  /// Whether it holds for each agent whose access this was.
  template <class Test>
  [[nodiscard]] bool holds_for_all(const Access& access, Test test) const;
  [[nodiscard]] bool ordered(const Access& access, const Clock& view) const;
  [[nodiscard]] bool fenced(const Access& access, const Clock& view) const;
  void check_clocked_read(const Word& word, std::uint32_t address, const Clock& view,
                          const Accessor& by) const;
  void check_clocked_write(std::size_t index, std::uint32_t address, const Clock& view,
                           const Accessor& by) const;
  enum class AccessKind : std::uint8_t { read, write };
  /// That a thread has fenced an earlier access of its own, before a product or the copy engine
  /// reads or writes the word.
  void check_fence(const Access& earlier, AccessKind earlier_kind, std::uint32_t address,
                   const Clock& view, const Accessor& by, AccessKind kind) const;
  /// The same for all accesses of threads to a word that the copy engine is to write.
  void check_fences(std::size_t index, std::uint32_t address, const Clock& view,
                    const Accessor& by) const;
  void note_clocked_read(std::size_t index, const Access& now, const Clock& view);
  void note_clocked_write(std::size_t index, const Access& now);
  void clocked_read(std::uint32_t address, int bytes, const Accessor& by, bool whole_warp);
  void clocked_write(std::uint32_t address, int bytes, const Accessor& by, bool whole_warp);
  [[nodiscard]] std::string describe(const Access& access) const;
  [[nodiscard]] std::string how_to_order(const Access& access, const char* otherwise) const;

  std::size_t bytes_;
  std::uint32_t epoch_ = first_epoch;
  std::vector<Word> words_;
  std::vector<std::byte> data_;

  Clocks& clocks_;
  bool clocked_ = false;
  std::vector<std::uint32_t> more_;  ///< of each word: the first of `readers_`, or 0
  std::vector<Reader> readers_;
  std::uint32_t free_reader_ = 0;
  std::map<int, AgentName> agents_;
};

}  // namespace flashcore
