// Machine code on GPUs, loaded once for every context however many kernels it is the code of.
//
// Code that no kernel uses any more stays loaded for the next kernel that is equal, up to a bound.
// Beyond the bound the oldest is unloaded, unless a graph captured a launch of it: a graph keeps
// the function, and nothing tells whether the graph is still there.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/block_spread.h"
#include "runtime/cuda/driver.h"
#include "runtime/tile_counters.h"

namespace flashcore {

class CompiledKernel;

/// Thread-safe.
class LoadedCode {
 public:
  /// Codes without a kernel that stay loaded in a context.
  static constexpr std::size_t max_unused = 64;

  /// The code in one context. A list that only grows at its head while a kernel uses the code, so
  /// that readers need no lock.
  struct InContext {
    std::uint64_t context = 0;
    int device = 0;
    std::string kernel;  ///< for messages: of the first kernel that it was loaded for
    CudaModule module = nullptr;
    CudaFunction function = nullptr;
    std::uint32_t blocks = 0;                    ///< that run at once, as the schedule promises
    BlockSpread spread;                          ///< of launches that start early
    CudaAddress zeros = 0;                       ///< what tensor maps of empty tensors lead to
    mutable std::atomic<bool> captured = false;  ///< a graph may hold the function
    TileCounters counters;                       ///< in the memory of `module`
    std::unique_ptr<InContext> next;
  };

  LoadedCode() = default;
  LoadedCode(const LoadedCode&) = delete;
  LoadedCode& operator=(const LoadedCode&) = delete;
  ~LoadedCode();

  /// The same object for all kernels of equal machine code. Touches no GPU.
  static std::shared_ptr<LoadedCode> shared_by(const CompiledKernel& compiled);

  /// Null until the code is loaded in some context.
  [[nodiscard]] const Driver* driver() const { return driver_.load(std::memory_order_acquire); }

  /// Null where it is not loaded in that context.
  [[nodiscard]] const InContext* find(std::uint64_t context) const;

  /// `compiled` is one of the kernels that share this code, and `context` the calling thread's, on
  /// `device`. Throws DeviceError, also while `stream` is captured and the code is not loaded yet.
  const InContext& find_or_load(const CompiledKernel& compiled, std::uint64_t context, int device,
                                CudaStream stream);

 private:
  class Registry;

  static std::unique_ptr<InContext> load(const CompiledKernel& compiled, std::uint64_t context,
                                         int device);
  /// What it had in that context; null where there is nothing, or a graph may use it.
  std::unique_ptr<InContext> take(std::uint64_t context);

  std::atomic<const Driver*> driver_ = nullptr;
  std::atomic<InContext*> head_ = nullptr;
  std::mutex mutex_;
};

}  // namespace flashcore
