// A driver library without a GPU behind it: it keeps contexts, records launches and fails on
// request. FLASHCORE_LIBCUDA names it, so that launches are tested on any machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace flashcore::test {

struct FakeLaunch {
  std::string function;
  int device = 0;
  unsigned blocks = 0, rows_of_blocks = 0, threads = 0, shared_bytes = 0;
  void* stream = nullptr;
  std::vector<std::byte> parameters;
  bool early = false;  ///< it may start beside the end of the kernel in front of it
};

/// What cuTensorMapEncodeTiled was told, in place of what it would have made of it.
struct FakeTensorMap {
  void* address = nullptr;
  std::uint64_t extents[5] = {};
  std::uint64_t strides[4] = {};
  std::uint16_t box[5] = {};
  std::uint8_t type = 0, rank = 0, interleave = 0, swizzle = 0, promotion = 0, fill = 0;
};
static_assert(sizeof(FakeTensorMap) <= 128);

struct FakeGpu {
  int major = 8, minor = 0;
  int shared_per_block = 166912;
};

/// The GPUs of a fake driver, for all tests of a process: what a GPU is like is asked once.
enum : std::uint8_t { ampere, other_ampere, hopper, ampere_with_little_shared_memory };

struct FakeCuda {
  std::vector<FakeGpu> gpus{
      {}, {}, {.major = 9, .shared_per_block = 232448}, {.shared_per_block = 101376}};
  int version = 13000;
  int capture_status = 0;
  unsigned long long streams_before = 0;  ///< numbers of streams go on where handles come back
  std::size_t tile_counters = 6;          ///< of any code
  std::size_t parameter_bytes = 0;        ///< how much of a parameter block to record
  bool recording = true;  ///< off: what a launch calls returns at once, for measurements
  std::map<std::string, int> failures;  ///< function to result
  std::map<std::string, int> calls;     ///< function to number of calls
  std::map<int, int> function_attributes;
  int clusters_at_once = 54;  ///< what cuOccupancyMaxActiveClusters says of any function
  unsigned shared_bytes_of_clusters = 0;  ///< of a block, as its last call said
  std::set<void*> modules;                ///< that are loaded
  std::vector<FakeLaunch> launches;
  struct UserObject {
    void (*destroy)(void*) = nullptr;
    void* of = nullptr;
  };
  std::vector<UserObject> held_by_graphs;
  std::vector<void*> waiting_streams;  ///< by cuStreamWaitEvent
  int device_of_pointers = 0;

  double milliseconds = 0;    ///< the GPU's clock
  std::size_t bytes_set = 0;  ///< by the last cuMemsetD8Async
  std::function<double(const std::string& function)> launch_milliseconds;

  /// Of all graphs: what they hold goes with them.
  void destroy_graphs() {
    for (const UserObject& object : std::exchange(held_by_graphs, {})) object.destroy(object.of);
  }

  /// A context of that device on top of the calling thread's, as cuCtxCreate makes one.
  std::function<void(int device)> push_new_context;
  /// Leaves the calling thread without a context.
  std::function<void()> clear_contexts;
};

/// The state inside the library, which is opened at the first call.
FakeCuda& fake_cuda();

/// The library's file.
std::string fake_cuda_file();

}  // namespace flashcore::test
