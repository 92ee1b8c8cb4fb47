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
    const Place place = place_of(lengths);
    const std::uint64_t known = place.slot->load(std::memory_order_relaxed);
    // A number is kept as one more than it is: 0 is an empty slot.
    const std::uint64_t kept = known & (most_numbers - 1);
    if (kept != 0 && known - kept == place.tag) return kept - 1;
    const std::size_t number = choose();
    keep(place, number);
    return number;
  }

  /// What `find` is to give for these lengths.
  void keep(std::span<const std::int64_t> lengths, std::size_t number) const {
    keep(place_of(lengths), number);
  }

 private:
  using Slot = std::atomic<std::uint64_t>;
  struct Place {
    Slot* slot;
    std::uint64_t tag;  ///< the upper bits of the hash
  };
  static constexpr std::uint64_t most_numbers = 1 << 8;

  Place place_of(std::span<const std::int64_t> lengths) const {
    constexpr std::uint64_t odd = 0x9e3779b97f4a7c15;
    std::uint64_t hash = odd;
    for (const std::int64_t length : lengths) {
      hash = (hash ^ static_cast<std::uint64_t>(length)) * odd;
      hash ^= hash >> 32;
    }
    return {&found_[hash % found_.size()], hash / most_numbers * most_numbers};
  }

  static void keep(const Place& place, std::size_t number) {
    if (number + 1 < most_numbers)
      place.slot->store(place.tag | (number + 1), std::memory_order_relaxed);
  }

  /// Numbers with the upper bits of a hash of their lengths.
  mutable std::array<Slot, 512> found_{};
};

}  // namespace flashcore
