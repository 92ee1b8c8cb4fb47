#include "runtime/loaded_code.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "dsl/error.h"
#include "runtime/cache/digest.h"
#include "runtime/cuda/device.h"
#include "runtime/events.h"
#include "runtime/kernel.h"
#include "runtime/log.h"
#include "runtime/no_fork.h"
#include "runtime/profiler_range.h"

namespace flashcore {
namespace {

// CUfunction_attribute: dynamic shared memory beyond 48 KiB has to be asked for.
constexpr int attribute_dynamic_shared_bytes = 8;
constexpr int shared_bytes_without_asking = 48 * 1024;

// codegen/prelude/tile_counter.cuh
constexpr const char* tile_counters = "flashcore_tile_counters";

// All that `LoadedCode::load` makes of a kernel.
std::string identity_of(const CompiledKernel& compiled) {
  const KernelSource& source = *compiled.source();
  return fmt::format("{} {} {} {} {} {}", digest_of(compiled.cubin()), compiled.architecture(),
                     source.entry, source.shared_bytes, source.min_blocks,
                     source.tensor_maps.empty());
}

// The driver waits by itself for launches that are under way. What it complains about here are
// errors of earlier launches, which the next call that asks about them is told as well.
void unload(const Driver& driver, const LoadedCode::InContext& code) {
  (void)driver.cuModuleUnload(code.module);
  tell({.kind = KernelEventKind::unloaded, .kernel = code.kernel});
  if (code.zeros != 0) (void)driver.cuMemFree_v2(code.zeros);
}

// Loading is not allowed while a stream captures, and the driver would say so only in a code that
// ends the capture.
void refuse_capture(const KernelSource& source, CudaStream stream) {
  int status = 0;
  const int result = Driver::get().cuStreamIsCapturing(stream, &status);
  if (result == 0 && status == 0) return;
  throw DeviceError(
      {.what = fmt::format("{} is not loaded and the stream is being captured", source.name),
       .why = "loading code is not allowed during the capture of a graph",
       .fix = "call prepare(), or launch it once, before the capture begins",
       .where = {}});
}

}  // namespace

// The codes of this process. Never destroyed: kernels may outlive static objects.
class LoadedCode::Registry {
 public:
  static Registry& shared() {
    static auto* const registry = new Registry;
    return *registry;
  }

  std::shared_ptr<LoadedCode> find_or_add(const std::string& identity) {
    const NoFork whole;
    const std::lock_guard lock(mutex_);
    Entry& entry = codes_[identity];
    if (!entry.code) entry.code = std::make_shared<LoadedCode>();
    entry.last_use = ++uses_;
    return entry.code;
  }

  // Takes out of `context` what is unused and beyond the bound, the oldest first.
  std::vector<std::unique_ptr<InContext>> take_unused(std::uint64_t context) {
    const std::lock_guard lock(mutex_);
    std::erase_if(codes_, [](const auto& entry) {  // what could not be loaded
      const std::shared_ptr<LoadedCode>& code = entry.second.code;
      return code.use_count() == 1 && code->head_.load() == nullptr;
    });
    std::vector<std::pair<std::uint64_t, const std::string*>> unused;
    for (const auto& [identity, entry] : codes_) {
      // Nobody else can make it more than one: only this registry hands it out.
      if (entry.code.use_count() == 1) unused.emplace_back(entry.last_use, &identity);
    }
    std::atomic_thread_fence(std::memory_order_acquire);  // behind the last user's release
    std::erase_if(unused, [&](const auto& candidate) {
      const InContext* loaded = codes_.at(*candidate.second).code->find(context);
      return loaded == nullptr || loaded->captured.load(std::memory_order_relaxed);
    });
    std::vector<std::unique_ptr<InContext>> taken;
    if (unused.size() <= max_unused) return taken;
    std::sort(unused.begin(), unused.end());
    unused.resize(unused.size() - max_unused);
    for (const auto& [last_use, identity] : unused) {
      const auto entry = codes_.find(*identity);
      taken.push_back(entry->second.code->take(context));
      if (entry->second.code->head_.load() == nullptr) codes_.erase(entry);
    }
    return taken;
  }

 private:
  struct Entry {
    std::shared_ptr<LoadedCode> code;
    std::uint64_t last_use = 0;
  };

  std::mutex mutex_;
  std::unordered_map<std::string, Entry> codes_;
  std::uint64_t uses_ = 0;
};

LoadedCode::~LoadedCode() { delete head_.load(); }

std::shared_ptr<LoadedCode> LoadedCode::shared_by(const CompiledKernel& compiled) {
  return Registry::shared().find_or_add(identity_of(compiled));
}

const LoadedCode::InContext* LoadedCode::find(std::uint64_t context) const {
  const InContext* at = head_.load(std::memory_order_acquire);
  while (at != nullptr && at->context != context) at = at->next.get();
  return at;
}

std::unique_ptr<LoadedCode::InContext> LoadedCode::take(std::uint64_t context) {
  std::unique_ptr<InContext> rest(head_.exchange(nullptr));
  std::unique_ptr<InContext>* at = &rest;
  while ((*at)->context != context) at = &(*at)->next;
  std::unique_ptr<InContext> taken = std::move(*at);
  *at = std::move(taken->next);
  head_.store(rest.release());
  return taken;
}

const LoadedCode::InContext& LoadedCode::find_or_load(const CompiledKernel& compiled,
                                                      std::uint64_t context, int device,
                                                      CudaStream stream) {
  if (const InContext* known = find(context)) return *known;
  const HookDeferral messages_after_the_lock;
  const NoFork whole;
  const Driver& driver = Driver::get();
  const std::lock_guard lock(mutex_);
  if (const InContext* known = find(context)) return *known;
  refuse_capture(*compiled.source(), stream);
  std::unique_ptr<InContext> loaded = load(compiled, context, device);
  loaded->next.reset(head_.load());
  head_.store(loaded.release(), std::memory_order_release);
  driver_.store(&driver, std::memory_order_release);
  // Here and not with a kernel's end, which may come at any time: while a graph is captured, which
  // unloading would break, or when the context is gone.
  for (const auto& old : Registry::shared().take_unused(context)) unload(driver, *old);
  return *head_.load();
}

std::unique_ptr<LoadedCode::InContext> LoadedCode::load(const CompiledKernel& compiled,
                                                        std::uint64_t context, int device) {
  const Driver& driver = Driver::get();
  const KernelSource& source = *compiled.source();
  const DeviceInfo info = device_info(driver, device);
  const std::string where = fmt::format("GPU {} ({}, {})", device, info.name, info.architecture());
  const auto refuse = [&](std::string why, std::string fix) {
    throw DeviceError({.what = fmt::format("{} cannot run on {}", source.name, where),
                       .why = std::move(why),
                       .fix = std::move(fix),
                       .where = {}});
  };
  if (!runs_on(compiled.architecture(), info)) {
    refuse(fmt::format("it was compiled for {}", compiled.architecture()),
           fmt::format("compile it for {} as well", info.architecture()));
  }
  if (source.shared_bytes > info.shared_per_block) {
    refuse(fmt::format("it needs {} bytes of shared memory a block, the GPU allows {}",
                       source.shared_bytes, info.shared_per_block),
           "a schedule with smaller tiles or fewer stages");
  }
  const std::string what =
      fmt::format("{} cannot be loaded on {} by a driver for CUDA {}.{}", source.name, where,
                  driver.version() / 1000, driver.version() % 1000 / 10);
  const auto start = std::chrono::steady_clock::now();
  const ProfilerRange range("load a kernel");
  auto into = std::make_unique<InContext>();
  into->context = context;
  into->device = device;
  into->kernel = fmt::format("{} for {}", source.name, compiled.architecture());
  driver.check(driver.cuModuleLoadData(&into->module, compiled.cubin().data()), what);
  try {
    driver.check(driver.cuModuleGetFunction(&into->function, into->module, source.entry.c_str()),
                 what);
    // A launch that starts early may ask for more shared memory than its blocks use (LoadedKernel::run).
    const int most = source.waits_for_kernels ? info.shared_per_block : source.shared_bytes;
    if (most > shared_bytes_without_asking) {
      driver.check(driver.cuFuncSetAttribute(into->function, attribute_dynamic_shared_bytes, most),
                   what);
    }
    into->spread =
        BlockSpread::of(driver, into->function, source, info.multiprocessors, most, what);
    const int at_once = info.multiprocessors * source.min_blocks;
    into->blocks = static_cast<std::uint32_t>(at_once / source.cluster * source.cluster);
    if (source.claims_tiles()) {
      // A kernel stored by an earlier version has no array of this name, and keeps to the static tile
      // scheduler.
      CudaAddress address = 0;
      std::size_t bytes = 0;
      if (driver.cuModuleGetGlobal_v2(&address, &bytes, into->module, tile_counters) == 0)
        into->counters = TileCounters(static_cast<int>(bytes / sizeof(int)));
    }
    if (!source.tensor_maps.empty()) {
      // Here, because a capture would not allow it at a launch; kept like the code itself.
      const std::array<std::byte, TensorMaps::tensor_alignment> zeros{};
      driver.check(driver.cuMemAlloc_v2(&into->zeros, zeros.size()), what);
      driver.check(driver.cuMemcpyHtoD_v2(into->zeros, zeros.data(), zeros.size()), what);
    }
  } catch (...) {
    unload(driver, *into);
    throw;
  }
  log_message(LogLevel::debug, "loaded {} on {}", source.name, where);
  const auto took = std::chrono::steady_clock::now() - start;
  tell({.kind = KernelEventKind::loaded,
        .kernel = into->kernel,
        .ms = std::chrono::duration<double, std::milli>(took).count(),
        .bytes = compiled.cubin().size()});
  return into;
}

}  // namespace flashcore
