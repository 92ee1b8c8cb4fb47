#include "runtime/tiered_kernel.h"

#include <condition_variable>
#include <exception>
#include <optional>
#include <utility>

#include <unistd.h>

#include "dsl/error.h"
#include "runtime/background.h"
#include "runtime/compile_mode.h"
#include "runtime/cuda/device.h"
#include "runtime/log.h"
#include "runtime/no_fork.h"

namespace flashcore {

/// The optimised compile, shared by the kernel that waits for it and the thread that carries it
/// out: either may be gone first.
class TieredKernel::Upgrade {
 public:
  Upgrade(KernelSource source, std::string architecture, std::vector<Generate> safer)
      : source_(std::move(source)),
        architecture_(std::move(architecture)),
        safer_(std::move(safer)) {}

  void compile() {
    std::shared_ptr<const CompiledKernel> made;
    std::exception_ptr failure;
    try {
      made = first_that_fits();
    } catch (...) {
      failure = std::current_exception();
    }
    if (made != nullptr) load(made);
    const std::lock_guard lock(mutex_);
    made_ = std::move(made);
    failure_ = failure;
    done_ = true;
    changed_.notify_all();
  }

  /// Where launches run, so that none has to load the code.
  void set_device(int device) { device_.store(device, std::memory_order_relaxed); }

  [[nodiscard]] bool is_done() const {
    const std::lock_guard lock(mutex_);
    return done_;
  }

  /// Throws what compiling threw.
  std::shared_ptr<const CompiledKernel> result() {
    // The thread that would compile does not survive a fork.
    if (process_ != getpid() && !is_done()) compile();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
    if (failure_) std::rethrow_exception(failure_);
    return made_;
  }

 private:
  // Kernels of equal code share what is loaded. What fails here fails again, and is told, where the
  // code takes over.
  void load(const std::shared_ptr<const CompiledKernel>& made) {
    const int device = device_.load(std::memory_order_relaxed);
    if (device < 0) return;
    try {
      const BesideCaptures beside(Driver::get());
      loaded_ = std::make_unique<LoadedKernel>(made);
      loaded_->prepare(device);
    } catch (const Error& error) {
      log_message(LogLevel::debug, "{} is not loaded in the background: {}", made->source()->name,
                  error.what());
    }
  }

  [[nodiscard]] std::shared_ptr<const CompiledKernel> first_that_fits() const {
    std::exception_ptr first;
    try {
      return CompiledKernel::build(source_, architecture_);
    } catch (const CompileError&) {
      first = std::current_exception();
    }
    for (const Generate& generate : safer_) {
      try {
        return CompiledKernel::build(generate(), architecture_);
      } catch (const ScheduleError&) {
      } catch (const CompileError&) {
      }
    }
    std::rethrow_exception(first);
  }

  const KernelSource source_;
  const std::string architecture_;
  const std::vector<Generate> safer_;
  const pid_t process_ = getpid();
  std::atomic<int> device_ = cpu_device;
  std::unique_ptr<LoadedKernel> loaded_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::shared_ptr<const CompiledKernel> made_;
  std::exception_ptr failure_;
};

std::unique_ptr<TieredKernel> TieredKernel::build(KernelSource source, std::string architecture,
                                                  std::vector<Generate> safer) {
  // Warps that hand registers on need as many from the start as the optimised code takes.
  if (compile_mode() != CompileMode::tiered || source.split_registers > 0)
    return std::make_unique<TieredKernel>(
        CompiledKernel::build(std::move(source), std::move(architecture)));
  if (auto known = CompiledKernel::find(source, architecture))
    return std::make_unique<TieredKernel>(std::move(known));
  auto upgrade = std::make_shared<Upgrade>(source, architecture, std::move(safer));
  std::shared_ptr<const CompiledKernel> fast;
  try {
    fast = CompiledKernel::build_fast(std::move(source), std::move(architecture));
  } catch (const CompileError& error) {
    log_message(LogLevel::info, "not compiled fast: {}", error.what());
    upgrade->compile();
    return std::make_unique<TieredKernel>(upgrade->result());
  }
  auto kernel = std::make_unique<TieredKernel>(std::move(fast));
  kernel->upgrade_ = upgrade;
  kernel->waits_ = true;
  run_in_background([upgrade] { upgrade->compile(); });
  return kernel;
}

TieredKernel::TieredKernel(std::shared_ptr<const CompiledKernel> compiled) {
  codes_.push_back(std::make_unique<LoadedKernel>(std::move(compiled)));
  in_place_ = codes_.back().get();
}

std::shared_ptr<const CompiledKernel> TieredKernel::compiled() const {
  return in_place().shared_compiled();
}

bool TieredKernel::is_optimised() const { return !waits_ && compiled()->is_optimised(); }

void TieredKernel::wait_until_optimised() {
  std::shared_ptr<Upgrade> upgrade;
  {
    const std::lock_guard lock(mutex_);
    upgrade = upgrade_;
  }
  if (upgrade == nullptr) return;
  std::shared_ptr<const CompiledKernel> made = upgrade->result();
  const NoFork whole;
  const std::lock_guard lock(mutex_);
  if (upgrade_ != nullptr) replace(std::move(made), -1);
}

void TieredKernel::launch(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
                          CudaStream stream) {
  if (waits_.load(std::memory_order_acquire) && !tensors.empty())
    upgrade_if_ready(tensors[0].device, stream);
  in_place().launch(tensors, scalars, stream);
}

void TieredKernel::upgrade_if_ready(int device, CudaStream stream) {
  if (device < 0) return;
  const HookDeferral messages_after_the_lock;
  const NoFork whole;
  const std::lock_guard lock(mutex_);
  if (upgrade_ != nullptr) upgrade_->set_device(device);
  if (upgrade_ == nullptr || !upgrade_->is_done() || is_captured(Driver::get(), stream)) return;
  try {
    replace(upgrade_->result(), device);
  } catch (const Error& error) {
    log_message(LogLevel::warn, "{} stays as it was compiled fast: {}",
                in_place().compiled().source()->name, error.what());
    upgrade_ = nullptr;
    waits_ = false;
  }
}

// Under the lock.
void TieredKernel::replace(std::shared_ptr<const CompiledKernel> optimised, int device) {
  auto loaded = std::make_unique<LoadedKernel>(std::move(optimised));
  if (device >= 0) loaded->prepare(device);
  codes_.push_back(std::move(loaded));
  in_place_.store(codes_.back().get(), std::memory_order_release);
  upgrade_ = nullptr;
  waits_.store(false, std::memory_order_release);
}

}  // namespace flashcore
