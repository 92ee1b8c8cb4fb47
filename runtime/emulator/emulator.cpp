#include "runtime/emulator/emulator.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "codegen/layout/register_split.h"
#include "runtime/emulator/cluster.h"

namespace flashcore {
namespace {

std::string line_of(const std::string& text, int wanted) {
  std::istringstream lines(text);
  std::string line;
  for (int i = 0; i < wanted; ++i)
    if (!std::getline(lines, line)) return {};
  const std::size_t begin = line.find_first_not_of(' ');
  return begin == std::string::npos ? "" : line.substr(begin);
}

/// `cluster` counts clusters.
EmulatorError explain(const Fault& fault, const KernelSource& source, int cluster) {
  const int lanes = Scheduler::warp_size;
  const int block = cluster * source.cluster + fault.thread / source.threads,
            thread = fault.thread % source.threads;
  return {
      fault.kind, block, thread,
      Complaint{.what = fmt::format("{} in kernel {}, block {}, thread {} (warp {}, lane {})",
                                    name_of(fault.kind), source.name, block, thread, thread / lanes,
                                    thread % lanes),
                .why = fmt::format("{}\n  code: {}", fault.why, line_of(source.body, fault.line)),
                .fix = fault.fix,
                .where = {source.entry + ".cu", fault.line}}};
}

void check(const KernelSource& source, std::size_t parameter_bytes, std::size_t tensors,
           const GridSize& grid) {
  if (parameter_bytes != static_cast<std::size_t>(source.parameter_bytes) ||
      tensors != source.tensors.size()) {
    throw InternalError(fmt::format(
        "kernel {} is run with {} bytes of parameters and {} tensors; it takes {} and {}",
        source.name, parameter_bytes, tensors, source.parameter_bytes, source.tensors.size()));
  }
  if (source.cluster < 1 || grid.x % static_cast<std::uint32_t>(source.cluster) != 0) {
    throw InternalError(
        fmt::format("kernel {} has clusters of {} blocks and is run with {} along x", source.name,
                    source.cluster, grid.x));
  }
  if (source.threads <= 0 || source.threads % Scheduler::warp_size != 0) {
    throw InternalError(fmt::format("kernel {} has blocks of {} threads, not of whole warps",
                                    source.name, source.threads));
  }
}

constexpr std::chrono::milliseconds watch_interval{50};

/// What the workers share. Clusters are handed out in order, and a worker always finishes the one
/// it has: so the failure of the lowest is found whatever the timing.
struct Progress {
  std::atomic<int> next{0};
  std::mutex mutex;
  int failed = std::numeric_limits<int>::max();
  std::exception_ptr error;
  BankReport banks;

  std::atomic<bool> stop{false};
  std::atomic<int> done{0};  ///< clusters
  int working = 0;           ///< workers
  std::condition_variable idle;
};

}  // namespace

EmulatedKernel::EmulatedKernel(KernelSource source, std::shared_ptr<const HostKernel> kernel)
    : source_(std::make_shared<const KernelSource>(std::move(source))),
      kernel_(std::move(kernel)) {}

EmulatedKernel EmulatedKernel::build(const KernelSource& source,
                                     const HostCompileOptions& options) {
  return {source, compile_for_host(source, options)};
}

EmulationReport EmulatedKernel::run(std::span<const std::byte> parameters, GridSize grid,
                                    std::span<const TensorView> tensors,
                                    const EmulationOptions& options) const {
  check(*source_, parameters.size(), tensors.size(), grid);
  const int clusters = static_cast<int>(grid.count()) / source_->cluster;
  const auto start = std::chrono::steady_clock::now();
  GlobalMemory memory(source_->tensors, tensors, source_->waits_for_kernels);
  // The caller's bytes may lie anywhere; a parameter block is aligned like its widest member, a
  // tensor map.
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> aligned(parameters.size() / sizeof(Line) + 1);
  std::memcpy(aligned.data(), parameters.data(), parameters.size());

  Progress progress;
  const auto work = [&] {
    int index = 0;
    memory.turns().enter();
    try {
      const int registers = registers_at_start(source_->threads, source_->min_blocks);
      Cluster cluster(
          source_->cluster, source_->threads, registers, source_->shared_bytes, memory,
          [&] { kernel_->enter(aligned.data()); }, &progress.stop);
      while ((index = progress.next.fetch_add(1)) < clusters) {
        cluster.run(index * cluster.size(), grid);
        ++progress.done;
      }
      const std::lock_guard lock(progress.mutex);
      progress.banks.merge(cluster.banks());
    } catch (...) {
      progress.next = clusters;
      const std::lock_guard lock(progress.mutex);
      if (index < progress.failed) {
        progress.failed = index;
        progress.error = std::current_exception();
      }
    }
    memory.turns().leave();
  };
  const int cpus = static_cast<int>(std::thread::hardware_concurrency());
  const int workers = std::min(clusters, options.workers > 0 ? options.workers : std::max(cpus, 1));
  {
    std::vector<std::jthread> others;
    progress.working = workers;
    const auto work_to_the_end = [&] {
      work();
      const std::lock_guard lock(progress.mutex);
      if (--progress.working == 0) progress.idle.notify_all();
    };
    for (int i = options.watch ? 0 : 1; i < workers; ++i) others.emplace_back(work_to_the_end);
    if (!options.watch) work_to_the_end();
    const auto seconds = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    try {
      std::unique_lock lock(progress.mutex);
      while (options.watch &&
             !progress.idle.wait_for(lock, watch_interval, [&] { return progress.working == 0; })) {
        lock.unlock();
        options.watch(progress.done, clusters, seconds());
        lock.lock();
      }
    } catch (...) {
      progress.stop = true;
      progress.next = clusters;
      throw;
    }
  }
  if (progress.error) {
    try {
      std::rethrow_exception(progress.error);
    } catch (const Fault& fault) {
      throw explain(fault, *source_, progress.failed);
    }
  }
  if (memory.tiles_drawn() != 0) {
    throw InternalError(
        fmt::format("kernel {} leaves {} in its tile counter, where the next launch needs 0",
                    source_->name, memory.tiles_drawn()));
  }
  EmulationReport report{.banks = std::move(progress.banks), .outputs = memory.coverage()};
  report.run_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace flashcore
