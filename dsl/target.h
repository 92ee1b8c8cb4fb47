// What a GPU architecture can do: facts, and nothing but facts. Limits are those of NVIDIA's
// programming guide, table "Technical Specifications per Compute Capability".
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace flashcore {

struct Target {
  std::string_view name;         ///< "sm_90a": what the compiler is asked for
  int capability = 0;            ///< 90 for 9.0
  int shared_per_block = 0;      ///< bytes a block can opt in to
  int shared_per_processor = 0;  ///< bytes a multiprocessor shares among its blocks
  int l2_bytes = 0;              ///< of L2; 0 where blocks are never persistent
  int shared_reserved = 1024;    ///< bytes the system takes of each block
  int registers_per_thread = 255;
  int threads_per_block = 1024;
  int threads_per_processor = 2048;
  bool async_copy = true;         ///< cp.async
  bool mma_m16n8k16 = true;       ///< mma.sync on f16 and bf16 with ldmatrix
  bool bf16 = true;               ///< on tensor cores, and conversions from f32
  bool tf32 = true;               ///< the same: mma.sync on f32 rounded to tf32
  bool tma = false;               ///< tensor maps, boxes moved by the copy engine, mbarriers
  bool dependent_launch = false;  ///< a kernel starts beside the end of the one launched before it
  bool wgmma = false;             ///< products of a warpgroup, registers handed from warp to warp
};

/// Every target FlashCore generates for.
std::span<const Target> all_targets();

/// The target of a name such as "sm_90". Throws ScheduleError that lists the known ones.
const Target& find_target(std::string_view name);

/// The best target for a GPU of compute capability major.minor: its own, with an "a" if there is
/// one, or the nearest older minor of the same major. Throws ScheduleError where there is none.
const Target& target_for_device(int major, int minor);

}  // namespace flashcore
