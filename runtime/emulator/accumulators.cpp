#include "runtime/emulator/accumulators.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "runtime/emulator/emulator_error.h"

namespace flashcore {
namespace {

constexpr const char* how_to_start = "pin(d), then fence_products(), then the product";
constexpr const char* how_to_complete = "pin(d) behind wait_products<n>(), before any use of d";

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
  completed_.clear();
  pinned_.clear();
}

void Accumulators::open() {
  for (Pinned& pinned : pinned_) pinned.opened = true;
}

void Accumulators::begin(std::span<float> d, int line, int thread) {
  for (const Completed& completed : completed_) {
    if (!overlap(completed.d, d)) continue;
    refuse(line, thread,
           fmt::format("accumulators of the product at line {} have completed and were not pinned "
                       "since: the compiler may move their uses to before the wait",
                       completed.line),
           how_to_complete);
  }
  if (const auto at = std::ranges::find_if(d, is_poison); at != d.end()) {
    refuse(line, thread,
           fmt::format("accumulator [{0}][{1}] belongs to another product that is pending",
                       (at - d.begin()) / 4, (at - d.begin()) % 4),
           "the same tile of accumulators, or wait_products<n>() in between");
  }
  const auto pinned =
      std::ranges::find_if(pinned_, [&](const Pinned& each) { return holds(each.d, d); });
  if (pinned == pinned_.end()) {
    refuse(line, thread,
           "the product's accumulators were not pinned for it: the compiler may move what was done "
           "with them to behind its start",
           "pin(d) behind the wait for the product before, and again before fence_products()");
  }
  if (!pinned->opened) {
    refuse(line, thread, "the product's accumulators were pinned after fence_products()",
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

void Accumulators::complete(std::span<float> d, std::vector<float> values, int line) {
  std::erase_if(pinned_, [&](const Pinned& pinned) { return overlap(pinned.d, d); });
  completed_.push_back({d, std::move(values), line});
}

void Accumulators::pin(std::span<float> d, int line, int thread) {
  bool completes = false;
  std::erase_if(completed_, [&](const Completed& completed) {
    if (!overlap(completed.d, d)) return false;
    for (std::size_t i = 0; i < completed.d.size(); ++i) {
      if (!is_poison(completed.d[i])) {
        refuse(line, thread,
               fmt::format("accumulator [{}][{}] of the product at line {} was written before it "
                           "was pinned",
                           i / 4, i % 4, completed.line),
               how_to_complete);
      }
      completed.d[i] = completed.values[i];
    }
    return completes = true;
  });
  if (const auto at = std::ranges::find_if(d, is_poison); at != d.end()) {
    refuse(line, thread,
           fmt::format("accumulator [{}][{}] is pinned while its product is pending",
                       (at - d.begin()) / 4, (at - d.begin()) % 4),
           "wait_products<n>() for its group before the accumulators are used");
  }
  std::erase_if(pinned_, [&](const Pinned& pinned) { return overlap(pinned.d, d); });
  // The pin that lets a product complete is not the one that the next product needs.
  if (!completes) pinned_.push_back({d, {d.begin(), d.end()}});
}

void Accumulators::check_left(int thread) const {
  if (completed_.empty()) return;
  refuse(completed_.front().line, thread,
         fmt::format("thread {} leaves the kernel, and the accumulators of this product were never "
                     "pinned: the compiler may move their uses to before the wait",
                     thread),
         how_to_complete);
}

}  // namespace flashcore
