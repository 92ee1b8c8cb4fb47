// What one thread's accumulators go through around the products of its warpgroup.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace flashcore {

/// What an accumulator holds while it is the product's: a signalling NaN, which arithmetic changes,
/// and which prelude/unwritten.h knows.
constexpr std::uint32_t poison_bits = 0x7fa0fc00u;
bool is_poison(float x);

/// The compiler knows nothing of products in flight: it may move what is done with an accumulator
/// over the start of a product, or over the wait for it, unless a pin() stands there. So here
/// accumulators have to be pinned before fence_products() and left alone until their product
/// starts; and what a product has made appears in them only with the first pin() behind the wait.
class Accumulators {
 public:
  void reset();
  void open();
  /// `d` of a product that begins. Throws a Fault for registers that are not ready for it.
  void begin(std::span<float> d, int line, int thread);
  /// The product of `line` has been waited for; `values` are for `d`.
  void complete(std::span<float> d, std::vector<float> values, int line);
  /// Throws a Fault for registers of a pending product, or written since they completed.
  void pin(std::span<float> d, int line, int thread);
  /// Throws a Fault for what completed and was never pinned.
  void check_left(int thread) const;

 private:
  struct Completed {
    std::span<float> d;
    std::vector<float> values;
    int line = 0;
  };
  struct Pinned {
    std::span<float> d;
    std::vector<float> values;
    bool opened = false;
  };

  std::vector<Completed> completed_;
  std::vector<Pinned> pinned_;
};

}  // namespace flashcore
