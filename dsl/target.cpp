#include "dsl/target.h"

#include <array>

#include <fmt/format.h>

#include "dsl/error.h"

namespace flashcore {
namespace {

constexpr int kib = 1024;

// Shared memory comes in two sizes: large (data centre, embedded) and small (workstation). Of the
// targets that run on a GPU, the last is the best.
constexpr std::array<Target, 12> targets{{
    {.name = "sm_75",
     .capability = 75,
     .shared_per_block = 64 * kib,
     .shared_per_processor = 64 * kib,
     .shared_reserved = 0,
     .threads_per_processor = 1024,
     .async_copy = false,
     .mma_m16n8k16 = false,
     .bf16 = false,
     .tf32 = false},
    {"sm_80", 80, 163 * kib, 164 * kib},
    {.name = "sm_86",
     .capability = 86,
     .shared_per_block = 99 * kib,
     .shared_per_processor = 100 * kib,
     .threads_per_processor = 1536},
    {.name = "sm_87",
     .capability = 87,
     .shared_per_block = 163 * kib,
     .shared_per_processor = 164 * kib,
     .threads_per_processor = 1536},
    {.name = "sm_89",
     .capability = 89,
     .shared_per_block = 99 * kib,
     .shared_per_processor = 100 * kib,
     .threads_per_processor = 1536},
    {.name = "sm_90",
     .capability = 90,
     .shared_per_block = 227 * kib,
     .shared_per_processor = 228 * kib,
     .dependent_launch = true},
    {.name = "sm_90a",
     .capability = 90,
     .shared_per_block = 227 * kib,
     .shared_per_processor = 228 * kib,
     .l2_bytes = 50 * kib * kib,
     .tma = true,
     .dependent_launch = true,
     .wgmma = true},
    {.name = "sm_100",
     .capability = 100,
     .shared_per_block = 227 * kib,
     .shared_per_processor = 228 * kib,
     .dependent_launch = true},
    {.name = "sm_103",
     .capability = 103,
     .shared_per_block = 227 * kib,
     .shared_per_processor = 228 * kib,
     .dependent_launch = true},
    {.name = "sm_110",
     .capability = 110,
     .shared_per_block = 227 * kib,
     .shared_per_processor = 228 * kib,
     .threads_per_processor = 1536,
     .dependent_launch = true},
    {.name = "sm_120",
     .capability = 120,
     .shared_per_block = 99 * kib,
     .shared_per_processor = 100 * kib,
     .threads_per_processor = 1536,
     .dependent_launch = true},
    {.name = "sm_121",
     .capability = 121,
     .shared_per_block = 99 * kib,
     .shared_per_processor = 100 * kib,
     .threads_per_processor = 1536,
     .dependent_launch = true},
}};

// Code runs on the same major version and no older minor. An "a" stands for what one chip has and
// its successors lack: such code runs on that chip alone.
bool runs_on(const Target& target, int major, int minor) {
  if (target.name.ends_with('a')) return target.capability == 10 * major + minor;
  return target.capability / 10 == major && target.capability % 10 <= minor;
}

std::string list_targets() {
  std::string list;
  for (const Target& target : targets)
    list += fmt::format("{}{}", list.empty() ? "" : ", ", target.name);
  return list;
}

}  // namespace

std::span<const Target> all_targets() { return targets; }

const Target& find_target(std::string_view name) {
  for (const Target& target : targets)
    if (target.name == name) return target;
  throw ScheduleError({fmt::format("target \"{}\"", name),
                       "FlashCore does not generate for it",
                       fmt::format("one of {}", list_targets()),
                       {}});
}

const Target& target_for_device(int major, int minor) {
  const Target* best = nullptr;
  for (const Target& target : targets)
    if (runs_on(target, major, minor)) best = &target;
  if (best) return *best;
  throw ScheduleError({fmt::format("a GPU of compute capability {}.{}", major, minor),
                       "FlashCore does not generate for it",
                       fmt::format("a GPU that runs one of {}", list_targets()),
                       {}});
}

}  // namespace flashcore
