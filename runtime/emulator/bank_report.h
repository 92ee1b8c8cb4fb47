// Conflicts on the banks of shared memory, counted by the line of the emitted body.
//
// Shared memory has 32 banks of 4 bytes. An instruction of a warp is served 128 bytes at a time:
// all 32 lanes for 4-byte accesses, 8 lanes (a phase) for 16-byte ones. A phase takes as many
// transactions as the busiest bank has different words to give; one is free of conflicts.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/emulator/primitive.h"

namespace flashcore {

struct BankLine {
  int line = 0;
  Primitive primitive = Primitive::load_shared;
  std::int64_t instructions = 0;  ///< of a warp
  std::int64_t transactions = 0;
  std::int64_t conflicts = 0;  ///< transactions beyond one a phase
};

struct BankReport {
  std::vector<BankLine> lines;  ///< ascending

  [[nodiscard]] std::int64_t transactions() const;
  [[nodiscard]] std::int64_t conflicts() const;
  void merge(const BankReport& other);
};

/// Counts for one block. Lanes run one after the other, so the accesses that one instruction of a
/// warp makes arrive apart: the k-th access of a lane at a line belongs to the k-th of the other
/// lanes.
class BankCounter {
 public:
  static constexpr int lanes = 32;

  explicit BankCounter(int warps) : warps_(static_cast<std::size_t>(warps)) {}

  /// One lane's access of `bytes`, 4 or 16.
  void gather(Primitive primitive, int line, int thread, std::uint32_t address, int bytes);
  /// A whole warp's access of 16 bytes a lane.
  void count(Primitive primitive, int line, const std::array<std::uint32_t, lanes>& addresses);

  /// Counts what was gathered: at a barrier and at the end, when no lane is under way in a
  /// statement.
  void flush();
  /// After flush().
  [[nodiscard]] BankReport report() const;

 private:
  struct Instruction {
    std::uint32_t present = 0;  ///< a bit a lane
    std::array<std::uint32_t, lanes> address;
  };
  struct Warp {
    std::array<std::uint32_t, lanes> done{};  ///< accesses of each lane so far
    std::vector<Instruction> instructions;
  };
  struct Site {
    BankLine total;
    int bytes = 4;
    std::vector<Warp> warps;
  };

  Site& site(Primitive primitive, int line);
  static void add(Site& site, const Instruction& instruction);

  std::size_t warps_;
  std::vector<int> index_;  ///< of a site, by line and primitive; -1 for none
  std::vector<Site> sites_;
};

}  // namespace flashcore
