// What was chosen for lengths that were asked for before: a choice that takes a microsecond takes some
// nanoseconds then. Without a lock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace flashcore {

class RememberedChoices {
 public:
  /// What `choose()` gives, or gave for these lengths: a small number. Of two lists of lengths with
  /// one hash, the second gets the number of the first.
  template <class Choose>
  std::size_t find(std::span<const std::int64_t> lengths, const Choose& choose) const {
    constexpr std::uint64_t number_bits = 8, odd = 0x9e3779b97f4a7c15;
    std::uint64_t hash = odd;
    for (const std::int64_t length : lengths) {
      hash = (hash ^ static_cast<std::uint64_t>(length)) * odd;
      hash ^= hash >> 32;
    }
    std::atomic<std::uint64_t>& slot = found_[hash % found_.size()];
    const std::uint64_t tag = hash >> number_bits << number_bits;
    const std::uint64_t known = slot.load(std::memory_order_relaxed);
    // A number is kept as one more than it is: 0 is an empty slot.
    const std::uint64_t kept = known & ((1 << number_bits) - 1);
    if (kept != 0 && known - kept == tag) return kept - 1;
    const std::size_t number = choose();
    if (number + 1 < 1 << number_bits) slot.store(tag | (number + 1), std::memory_order_relaxed);
    return number;
  }

 private:
  /// Numbers with the upper bits of a hash of their lengths.
  mutable std::array<std::atomic<std::uint64_t>, 512> found_{};
};

}  // namespace flashcore
