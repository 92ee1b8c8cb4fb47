#include "runtime/emulator/accumulators.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "runtime/emulator/emulator_error.h"

namespace flashcore {
namespace {

constexpr const char* how_to_start = "pin(d), then open_products(), then the product";
constexpr const char* how_to_land = "pin(d) behind await_products<n>(), before any use of d";

bool overlap(std::span<const float> a, std::span<const float> b) {
  return a.data() < b.data() + b.size() && b.data() < a.data() + a.size();
}

bool holds(std::span<const float> outer, std::span<const float> inner) {
  return outer.data() <= inner.data() && inner.data() + inner.size() <= outer.data() + outer.size();
}

[[noreturn]] void refuse(int line, int thread, std::string why, const char* fix) {
  throw Fault{FaultKind::misused_product, line, std::move(why), fix, thread};
}

}  // namespace

bool is_poison(float x) { return std::bit_cast<std::uint32_t>(x) == poison_bits; }

void Accumulators::reset() {
  landed_.clear();
  pinned_.clear();
}

void Accumulators::open() {
  for (Pinned& pinned : pinned_) pinned.opened = true;
}

void Accumulators::begin(std::span<float> d, int line, int thread) {
  for (const Landed& landed : landed_) {
    if (!overlap(landed.d, d)) continue;
    refuse(line, thread,
           fmt::format("accumulators of the product at line {} have landed and were not pinned "
                       "since: the compiler may move their uses to before the wait",
                       landed.line),
           how_to_land);
  }
  if (const auto at = std::ranges::find_if(d, is_poison); at != d.end()) {
    refuse(line, thread,
           fmt::format("accumulator [{0}][{1}] belongs to another product that is pending",
                       (at - d.begin()) / 4, (at - d.begin()) % 4),
           "the same tile of accumulators, or await_products<n>() in between");
  }
  const auto pinned =
      std::ranges::find_if(pinned_, [&](const Pinned& each) { return holds(each.d, d); });
  if (pinned == pinned_.end()) {
    refuse(line, thread,
           "the product's accumulators were not pinned for it: the compiler may move what was done "
           "with them to behind its start",
           "pin(d) behind the wait for the product before, and again before open_products()");
  }
  if (!pinned->opened) {
    refuse(line, thread, "the product's accumulators were pinned after open_products()",
           how_to_start);
  }
  const float* then = pinned->values.data() + (d.data() - pinned->d.data());
  for (std::size_t i = 0; i < d.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(d[i]) == std::bit_cast<std::uint32_t>(then[i])) continue;
    refuse(
        line, thread,
        fmt::format("accumulator [{}][{}] was written between pin() and the product", i / 4, i % 4),
        how_to_start);
  }
}

void Accumulators::land(std::span<float> d, std::vector<float> values, int line) {
  std::erase_if(pinned_, [&](const Pinned& pinned) { return overlap(pinned.d, d); });
  landed_.push_back({d, std::move(values), line});
}

void Accumulators::pin(std::span<float> d, int line, int thread) {
  bool lands = false;
  std::erase_if(landed_, [&](const Landed& landed) {
    if (!overlap(landed.d, d)) return false;
    for (std::size_t i = 0; i < landed.d.size(); ++i) {
      if (!is_poison(landed.d[i])) {
        refuse(line, thread,
               fmt::format("accumulator [{}][{}] of the product at line {} was written before it "
                           "was pinned",
                           i / 4, i % 4, landed.line),
               how_to_land);
      }
      landed.d[i] = landed.values[i];
    }
    return lands = true;
  });
  if (const auto at = std::ranges::find_if(d, is_poison); at != d.end()) {
    refuse(line, thread,
           fmt::format("accumulator [{}][{}] is pinned while its product is pending",
                       (at - d.begin()) / 4, (at - d.begin()) % 4),
           "await_products<n>() for its group before the accumulators are used");
  }
  std::erase_if(pinned_, [&](const Pinned& pinned) { return overlap(pinned.d, d); });
  // The pin that lets a product land is not the one that the next product needs.
  if (!lands) pinned_.push_back({d, {d.begin(), d.end()}});
}

void Accumulators::check_left(int thread) const {
  if (landed_.empty()) return;
  refuse(landed_.front().line, thread,
         fmt::format("thread {} leaves the kernel, and the accumulators of this product were never "
                     "pinned: the compiler may move their uses to before the wait",
                     thread),
         how_to_land);
}

}  // namespace flashcore
