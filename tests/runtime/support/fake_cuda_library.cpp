#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>

#include "runtime/cuda/driver.h"
#include "tests/runtime/support/fake_cuda.h"

using flashcore::test::FakeCuda;
using flashcore::test::FakeGpu;

namespace {

struct Context {
  int device;
  unsigned long long id;
};
struct Function {
  std::string name;
};

thread_local std::vector<Context*> current;
thread_local int capture_mode = 0;
std::recursive_mutex mutex;  // of everything else

Context* new_context(int device) {
  const std::lock_guard lock(mutex);
  static unsigned long long count = 0;
  static std::vector<std::unique_ptr<Context>> all;
  all.push_back(std::make_unique<Context>(Context{device, ++count}));
  return all.back().get();
}

FakeCuda& state() {
  static FakeCuda instance;
  return instance;
}

int enter(const char* function) {
  const std::lock_guard lock(mutex);
  ++state().calls[function];
  const auto failure = state().failures.find(function);
  return failure == state().failures.end() ? 0 : failure->second;
}

constexpr int invalid_value = 1;
constexpr int invalid_context = 201;
constexpr int capture_unsupported = 900;

}  // namespace

#define FAKE(name, ...) extern "C" __attribute__((visibility("default"))) int name(__VA_ARGS__)
#define ENTER(name)                                     \
  if (const int failure = enter(#name); failure != 0) { \
    return failure;                                     \
  }

extern "C" __attribute__((visibility("default"))) FakeCuda* flashcore_fake_cuda() {
  state().push_new_context = [](int device) { current.push_back(new_context(device)); };
  state().clear_contexts = [] { current.clear(); };
  return &state();
}

// For tests in Python: the grid of the last launch.
FAKE(flashcore_fake_cuda_grid, unsigned* blocks, unsigned* rows_of_blocks) {
  const std::lock_guard lock(mutex);
  if (state().launches.empty()) return invalid_value;
  *blocks = state().launches.back().blocks;
  *rows_of_blocks = state().launches.back().rows_of_blocks;
  return 0;
}
// And what the driver says of captures.
FAKE(flashcore_fake_cuda_capture, int status) {
  const std::lock_guard lock(mutex);
  state().capture_status = status;
  return 0;
}
FAKE(cuInit, unsigned) {
  ENTER(cuInit)
  return 0;
}
FAKE(cuDriverGetVersion, int* version) {
  *version = state().version;
  return 0;
}
FAKE(cuGetErrorName, int, const char** name) {
  *name = "CUDA_ERROR_FAKE";
  return 0;
}
FAKE(cuGetErrorString, int, const char** text) {
  *text = "as the test asked";
  return 0;
}
FAKE(cuDeviceGet, int* device, int ordinal) {
  *device = ordinal;
  return 0;
}
FAKE(cuDeviceGetCount, int* count) {
  *count = static_cast<int>(state().gpus.size());
  return 0;
}
FAKE(cuDeviceGetName, char* name, int length, int) {
  std::strncpy(name, "Fake GPU", static_cast<std::size_t>(length));
  return 0;
}
FAKE(cuDeviceGetAttribute, int* value, int attribute, int device) {
  const FakeGpu& gpu = state().gpus.at(static_cast<std::size_t>(device));
  const std::map<int, int> values{
      {16, 108}, {38, 40 << 20}, {75, gpu.major}, {76, gpu.minor}, {97, gpu.shared_per_block}};
  *value = values.at(attribute);
  return 0;
}
FAKE(cuDevicePrimaryCtxRetain, void** context, int device) {
  const std::lock_guard lock(mutex);
  ENTER(cuDevicePrimaryCtxRetain)
  static std::map<int, Context*> primary;
  if (primary[device] == nullptr) primary[device] = new_context(device);
  *context = primary[device];
  return 0;
}
FAKE(cuCtxGetCurrent, void** context) {
  *context = current.empty() ? nullptr : current.back();
  return 0;
}
FAKE(cuCtxGetId, void*, unsigned long long* id) {
  if (current.empty()) return invalid_context;
  *id = current.back()->id;
  return 0;
}
FAKE(cuCtxGetDevice, int* device) {
  if (current.empty()) return invalid_context;
  *device = current.back()->device;
  return 0;
}
FAKE(cuCtxPushCurrent_v2, void* context) {
  ENTER(cuCtxPushCurrent_v2)
  current.push_back(static_cast<Context*>(context));
  return 0;
}
FAKE(cuCtxPopCurrent_v2, void** context) {
  if (current.empty()) return invalid_context;
  *context = current.back();
  current.pop_back();
  return 0;
}
FAKE(cuModuleLoadData, void** module, const void*) {
  const std::lock_guard lock(mutex);
  ENTER(cuModuleLoadData)
  static std::uintptr_t count = 0;
  *module = reinterpret_cast<void*>(++count);
  state().modules.insert(*module);
  return 0;
}
FAKE(cuModuleUnload, void* module) {
  const std::lock_guard lock(mutex);
  ENTER(cuModuleUnload)
  return state().modules.erase(module) == 1 ? 0 : invalid_value;
}
FAKE(cuModuleGetFunction, void** function, void*, const char* name) {
  const std::lock_guard lock(mutex);
  ENTER(cuModuleGetFunction)
  static std::map<std::string, std::unique_ptr<Function>> functions;
  auto& slot = functions[name];
  if (slot == nullptr) slot = std::make_unique<Function>(Function{name});
  *function = slot.get();
  return 0;
}
FAKE(cuModuleGetGlobal_v2, unsigned long long* address, std::size_t* bytes, void*, const char*) {
  ENTER(cuModuleGetGlobal_v2)
  *address = 0x5000;
  *bytes = state().tile_counters * sizeof(int);
  return 0;
}
FAKE(cuFuncSetAttribute, void*, int attribute, int value) {
  const std::lock_guard lock(mutex);
  ENTER(cuFuncSetAttribute)
  state().function_attributes[attribute] = value;
  return 0;
}
FAKE(cuOccupancyMaxActiveClusters, int* clusters, void*,
     const flashcore::LaunchConfiguration* configuration) {
  ENTER(cuOccupancyMaxActiveClusters)
  state().shared_bytes_of_clusters = configuration->shared_bytes;
  *clusters = state().clusters_at_once;
  return 0;
}
FAKE(cuLaunchKernel, void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned,
     unsigned, unsigned shared_bytes, void* stream, void** parameters, void**) {
  if (!state().recording) return 0;
  const std::lock_guard lock(mutex);
  ENTER(cuLaunchKernel)
  if (state().launch_milliseconds)
    state().milliseconds += state().launch_milliseconds(static_cast<Function*>(function)->name);
  const auto* bytes = static_cast<const std::byte*>(parameters[0]);
  state().launches.push_back({.function = static_cast<Function*>(function)->name,
                              .device = current.back()->device,
                              .blocks = x * y * z,
                              .rows_of_blocks = y * z,
                              .threads = threads,
                              .shared_bytes = shared_bytes,
                              .stream = stream,
                              .parameters = {bytes, bytes + state().parameter_bytes}});
  return 0;
}
FAKE(cuLaunchKernelEx, const flashcore::LaunchConfiguration* c, void* function, void** parameters,
     void** extra) {
  const std::size_t before = state().launches.size();
  const int result =
      cuLaunchKernel(function, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1],
                     c->block[2], c->shared_bytes, c->stream, parameters, extra);
  for (unsigned i = 0; i < c->attribute_count; ++i)
    if (c->attributes[i].id == flashcore::LaunchAttribute::programmatic_stream_serialization &&
        state().launches.size() > before)
      state().launches.back().early = c->attributes[i].value.allowed != 0;
  return result;
}
FAKE(cuTensorMapEncodeTiled, void* map, int type, unsigned rank, void* address,
     const std::uint64_t* extents, const std::uint64_t* strides, const std::uint32_t* box,
     const std::uint32_t* steps, int interleave, int swizzle, int promotion, int fill) {
  ENTER(cuTensorMapEncodeTiled)
  if (current.empty()) return invalid_context;
  const auto byte = [](auto value) { return static_cast<std::uint8_t>(value); };
  flashcore::test::FakeTensorMap told{.address = address,
                                      .type = byte(type),
                                      .rank = byte(rank),
                                      .interleave = byte(interleave),
                                      .swizzle = byte(swizzle),
                                      .promotion = byte(promotion),
                                      .fill = byte(fill)};
  for (unsigned i = 0; i < rank; ++i) {
    told.extents[i] = extents[i];
    told.box[i] = static_cast<std::uint16_t>(box[i]);
    if (i + 1 < rank) told.strides[i] = strides[i];
    if (steps[i] != 1) return invalid_value;
  }
  std::memcpy(map, &told, sizeof told);
  return 0;
}
FAKE(cuTensorMapReplaceAddress, void* map, void* address) {
  ENTER(cuTensorMapReplaceAddress)
  flashcore::test::FakeTensorMap told;
  std::memcpy(&told, map, sizeof told);
  told.address = address;
  std::memcpy(map, &told, sizeof told);
  return 0;
}
FAKE(cuStreamIsCapturing, void* stream, int* status) {
  if (!state().recording) return 0;
  ENTER(cuStreamIsCapturing)
  // A thread that works beside captures finds that the default stream is none of theirs.
  constexpr int relaxed = 2;
  *status = stream == nullptr && capture_mode == relaxed ? 0 : state().capture_status;
  return 0;
}
FAKE(cuStreamGetCaptureInfo_v2, void*, int* status, unsigned long long*, void** graph, const void**,
     std::size_t*) {
  ENTER(cuStreamGetCaptureInfo_v2)
  *status = state().capture_status;
  *graph = &state();
  return 0;
}
FAKE(cuUserObjectCreate, void** object, void* of, void (*destroy)(void*), unsigned, unsigned) {
  ENTER(cuUserObjectCreate)
  *object = new FakeCuda::UserObject{destroy, of};
  return 0;
}
FAKE(cuUserObjectRelease, void* object, unsigned) {
  const std::unique_ptr<FakeCuda::UserObject> released(static_cast<FakeCuda::UserObject*>(object));
  ENTER(cuUserObjectRelease)
  released->destroy(released->of);
  return 0;
}
FAKE(cuGraphRetainUserObject, void*, void* object, unsigned, unsigned) {
  ENTER(cuGraphRetainUserObject)  // the caller keeps what it does not move
  const std::unique_ptr<FakeCuda::UserObject> moved(static_cast<FakeCuda::UserObject*>(object));
  state().held_by_graphs.push_back(*moved);
  return 0;
}
FAKE(cuThreadExchangeStreamCaptureMode, int* mode) {
  ENTER(cuThreadExchangeStreamCaptureMode)
  std::swap(capture_mode, *mode);
  return 0;
}
FAKE(cuStreamWaitEvent, void* stream, void*, unsigned) {
  ENTER(cuStreamWaitEvent)
  state().waiting_streams.push_back(stream);
  return 0;
}
FAKE(cuPointerGetAttribute, void* value, int, unsigned long long) {
  ENTER(cuPointerGetAttribute)
  *static_cast<int*>(value) = state().device_of_pointers;
  return 0;
}
FAKE(cuStreamGetId, void* stream, unsigned long long* id) {
  ENTER(cuStreamGetId)
  if (state().capture_status != 0) return capture_unsupported;
  *id = reinterpret_cast<unsigned long long>(stream) + state().streams_before;
  return 0;
}
// Time passes at launches, and at nothing else.
FAKE(cuEventCreate, void** event, unsigned) {
  ENTER(cuEventCreate)
  *event = new double(-1);
  return 0;
}
FAKE(cuEventRecord, void* event, void*) {
  ENTER(cuEventRecord)
  *static_cast<double*>(event) = state().milliseconds;
  return 0;
}
FAKE(cuEventSynchronize, void*) {
  ENTER(cuEventSynchronize)
  return 0;
}
FAKE(cuEventElapsedTime, float* milliseconds, void* start, void* stop) {
  ENTER(cuEventElapsedTime)
  *milliseconds = static_cast<float>(*static_cast<double*>(stop) - *static_cast<double*>(start));
  return 0;
}
FAKE(cuEventDestroy_v2, void* event) {
  ENTER(cuEventDestroy_v2)
  delete static_cast<double*>(event);
  return 0;
}
FAKE(cuMemsetD8Async, unsigned long long, unsigned char, std::size_t bytes, void*) {
  ENTER(cuMemsetD8Async)
  state().bytes_set = bytes;
  return 0;
}
FAKE(cuMemAlloc_v2, unsigned long long* address, std::size_t bytes) {
  ENTER(cuMemAlloc_v2)
  *address = reinterpret_cast<unsigned long long>(::operator new(bytes));
  return 0;
}
FAKE(cuMemPoolCreate, void** pool, const void* /*properties*/) {
  ENTER(cuMemPoolCreate)
  static char one;
  *pool = &one;
  return 0;
}
FAKE(cuMemPoolSetAttribute, void*, int, void*) {
  ENTER(cuMemPoolSetAttribute)
  return 0;
}
FAKE(cuMemAllocFromPoolAsync, unsigned long long* address, std::size_t bytes, void*, void*) {
  ENTER(cuMemAllocFromPoolAsync)
  *address = reinterpret_cast<unsigned long long>(::operator new (bytes, std::align_val_t{512}));
  return 0;
}
FAKE(cuMemFreeAsync, unsigned long long address, void*) {
  ENTER(cuMemFreeAsync)
  ::operator delete (reinterpret_cast<void*>(address), std::align_val_t{512});
  return 0;
}
FAKE(cuMemFree_v2, unsigned long long address) {
  ENTER(cuMemFree_v2)
  ::operator delete(reinterpret_cast<void*>(address));
  return 0;
}
FAKE(cuMemcpyHtoD_v2, unsigned long long target, const void* source, std::size_t bytes) {
  ENTER(cuMemcpyHtoD_v2)
  std::memcpy(reinterpret_cast<void*>(target), source, bytes);
  return 0;
}
FAKE(cuMemcpyDtoH_v2, void* target, unsigned long long source, std::size_t bytes) {
  ENTER(cuMemcpyDtoH_v2)
  std::memcpy(target, reinterpret_cast<void*>(source), bytes);
  return 0;
}
