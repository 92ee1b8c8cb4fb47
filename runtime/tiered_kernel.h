// A kernel that can serve before its optimised code is there.
//
// Where the mode of compiling is `tiered` and no cache has the kernel, it is compiled twice: fast,
// for the first launches, and beside that as ever, for all that follow. Both are of one text, in
// which every operation that iterations is spelled out, so they compute the same numbers. Hopper's
// kernels whose warps hand registers on are not compiled fast: they would wait for registers.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "codegen/kernel_source.h"
#include "runtime/kernel.h"
#include "runtime/launchable.h"

namespace flashcore {

/// Thread-safe.
class TieredKernel final : public Launchable {
 public:
  /// Text that is generated if it should be wanted.
  using Generate = std::function<KernelSource()>;

  /// From the cache, else compiled as the mode says. Where the optimised code breaks its schedule's
  /// promises while the fast one serves, the first of `safer` whose code does not takes its place:
  /// the same program under other schedules. Throws CompileError.
  static std::unique_ptr<TieredKernel> build(KernelSource source, std::string architecture,
                                             std::vector<Generate> safer = {});
  /// There is nothing to wait for.
  explicit TieredKernel(std::shared_ptr<const CompiledKernel> compiled);

  /// What launches run now.
  [[nodiscard]] std::shared_ptr<const CompiledKernel> compiled() const;
  [[nodiscard]] bool is_optimised() const;
  /// Waits for the optimised code and puts it in place; nothing to do where it is. Throws what
  /// compiling it threw, and the fast code serves on.
  void wait_until_optimised();

  [[nodiscard]] std::shared_ptr<const KernelSource> shared_source() const override {
    return compiled()->source();
  }
  void prepare(int device) override { in_place().prepare(device); }
  /// As LoadedKernel::launch. Optimised code that has become ready takes its place here, unless the
  /// stream is captured: that is no time to load code.
  void launch(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
              CudaStream stream = nullptr) override;

 private:
  class Upgrade;

  LoadedKernel& in_place() const { return *in_place_.load(std::memory_order_acquire); }
  void upgrade_if_ready(int device, CudaStream stream);
  void replace(std::shared_ptr<const CompiledKernel> optimised, int device);

  mutable std::mutex mutex_;
  /// The last is in place. Those before stay: a launch may be under way, or a graph hold them.
  std::vector<std::unique_ptr<LoadedKernel>> codes_;
  std::atomic<LoadedKernel*> in_place_ = nullptr;
  std::shared_ptr<Upgrade> upgrade_;  ///< until it is in place, or has failed
  std::atomic<bool> waits_ = false;   ///< whether there is one
};

}  // namespace flashcore
