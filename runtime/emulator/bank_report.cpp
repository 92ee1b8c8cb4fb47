#include "runtime/emulator/bank_report.h"

#include <algorithm>
#include <bit>
#include <tuple>

namespace flashcore {
namespace {

constexpr int phase_bytes = 128, banks = 32;

/// Transactions of one phase: `count` addresses, each of `bytes`.
int transactions_of(const std::uint32_t* address, int count, int bytes) {
  // Units of the access size; two different ones in the same column meet in a bank.
  const std::uint32_t unit = static_cast<std::uint32_t>(bytes), columns = phase_bytes / unit;
  std::uint32_t taken = 0;
  for (int i = 0; i < count; ++i) taken |= 1u << (address[i] / unit % columns);
  if (std::popcount(taken) == count) return 1;
  std::array<int, banks> distinct{};
  int most = 0;
  for (int i = 0; i < count; ++i) {
    const bool repeated = std::find(address, address + i, address[i]) != address + i;
    if (!repeated) most = std::max(most, ++distinct[address[i] / unit % columns]);
  }
  return most;
}

}  // namespace

std::int64_t BankReport::transactions() const {
  std::int64_t sum = 0;
  for (const BankLine& line : lines) sum += line.transactions;
  return sum;
}

std::int64_t BankReport::conflicts() const {
  std::int64_t sum = 0;
  for (const BankLine& line : lines) sum += line.conflicts;
  return sum;
}

void BankReport::merge(const BankReport& other) {
  for (const BankLine& line : other.lines) {
    const auto same = std::find_if(lines.begin(), lines.end(), [&](const BankLine& mine) {
      return mine.line == line.line && mine.primitive == line.primitive;
    });
    if (same == lines.end()) {
      lines.push_back(line);
    } else {
      same->instructions += line.instructions;
      same->transactions += line.transactions;
      same->conflicts += line.conflicts;
    }
  }
  std::sort(lines.begin(), lines.end(), [](const BankLine& a, const BankLine& b) {
    return std::tie(a.line, a.primitive) < std::tie(b.line, b.primitive);
  });
}

BankCounter::Site& BankCounter::site(Primitive primitive, int line) {
  const std::size_t key =
      static_cast<std::size_t>(line) * primitive_count + static_cast<std::size_t>(primitive);
  if (key >= index_.size()) index_.resize(key + 1, -1);
  if (index_[key] < 0) {
    index_[key] = static_cast<int>(sites_.size());
    sites_.push_back({.total = {.line = line, .primitive = primitive}});
    sites_.back().warps.resize(warps_);
  }
  return sites_[static_cast<std::size_t>(index_[key])];
}

void BankCounter::add(Site& site, const Instruction& instruction) {
  const int phase_lanes = phase_bytes / site.bytes;
  ++site.total.instructions;
  for (int first = 0; first < lanes; first += phase_lanes) {
    std::array<std::uint32_t, lanes> address;
    int count = 0;
    for (int lane = first; lane < first + phase_lanes; ++lane) {
      if ((instruction.present >> lane & 1u) != 0)
        address[static_cast<std::size_t>(count++)] =
            instruction.address[static_cast<std::size_t>(lane)];
    }
    if (count == 0) continue;
    const int transactions = transactions_of(address.data(), count, site.bytes);
    site.total.transactions += transactions;
    site.total.conflicts += transactions - 1;
  }
}

void BankCounter::gather(Primitive primitive, int line, int thread, std::uint32_t address,
                         int bytes) {
  Site& here = site(primitive, line);
  here.bytes = bytes;
  Warp& warp = here.warps[static_cast<std::size_t>(thread / lanes)];
  const std::size_t lane = static_cast<std::size_t>(thread % lanes), which = warp.done[lane]++;
  if (which >= warp.instructions.size()) warp.instructions.resize(which + 1);
  warp.instructions[which].present |= 1u << lane;
  warp.instructions[which].address[lane] = address;
}

void BankCounter::count(Primitive primitive, int line,
                        const std::array<std::uint32_t, lanes>& addresses) {
  Site& here = site(primitive, line);
  here.bytes = 16;
  add(here, {.present = ~0u, .address = addresses});
}

void BankCounter::flush() {
  for (Site& here : sites_) {
    for (Warp& warp : here.warps) {
      if (warp.instructions.empty()) continue;
      for (const Instruction& instruction : warp.instructions) add(here, instruction);
      warp.instructions.clear();
      warp.done.fill(0);
    }
  }
}

BankReport BankCounter::report() const {
  BankReport result;
  for (const Site& here : sites_) result.lines.push_back(here.total);
  std::sort(result.lines.begin(), result.lines.end(), [](const BankLine& a, const BankLine& b) {
    return std::tie(a.line, a.primitive) < std::tie(b.line, b.primitive);
  });
  return result;
}

}  // namespace flashcore
