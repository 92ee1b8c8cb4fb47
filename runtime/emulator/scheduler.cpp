#include "runtime/emulator/scheduler.h"

#include <map>
#include <new>
#include <utility>

#include <boost/context/fiber.hpp>
#include <fmt/format.h>
#include <sys/mman.h>

#include "runtime/emulator/lanes.h"

namespace flashcore {
namespace {

namespace context = boost::context;

constexpr std::size_t page = 4096;
// A kernel's frame is its registers and little more. Pages never touched cost nothing.
constexpr std::size_t usable = 32 * page;
// Stacks that begin at the same offset in a page would compete for the same lines of the
// first-level cache; the fiber library keeps to multiples of 256 bytes.
constexpr std::size_t color_step = 256, colors = 16;

/// Hands a fiber its place in the block's slab; the slab outlives the fiber.
struct SlabStack {
  std::byte* top;
  std::size_t size;
  context::stack_context allocate() const {
    context::stack_context stack;
    stack.size = size;
    stack.sp = top;
    return stack;
  }
  void deallocate(context::stack_context& /*stack*/) const noexcept {}
};

}  // namespace

struct Scheduler::Fiber {
  context::fiber self;    ///< to continue the thread
  context::fiber caller;  ///< to return to run()
  Wait wait;
  bool finished = true;
};

Scheduler::Scheduler(int threads, const std::atomic<bool>* stop)
    : threads_(threads),
      stop_(stop),
      stack_bytes_(page + usable + page),
      fibers_(std::make_unique<Fiber[]>(static_cast<std::size_t>(threads))) {
  const std::size_t bytes = stack_bytes_ * static_cast<std::size_t>(threads);
  void* slab = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (slab == MAP_FAILED) throw std::bad_alloc();
  stacks_ = static_cast<std::byte*>(slab);
  for (int i = 0; i < threads; ++i)  // an overflow faults instead of writing into the next stack
    mprotect(stacks_ + stack_bytes_ * static_cast<std::size_t>(i), page, PROT_NONE);
}

Scheduler::~Scheduler() {
  fibers_.reset();
  munmap(stacks_, stack_bytes_ * static_cast<std::size_t>(threads_));
}

bool Scheduler::finished(int thread) const { return fibers_[thread].finished; }
const Wait& Scheduler::wait_of(int thread) const { return fibers_[thread].wait; }

void Scheduler::start(int thread, const std::function<void()>& body) {
  const std::size_t index = static_cast<std::size_t>(thread);
  std::byte* top = stacks_ + stack_bytes_ * (index + 1) - index % colors * color_step;
  Fiber& fiber = fibers_[thread];
  fiber.wait = {};
  fiber.finished = false;
  fiber.self = context::fiber(std::allocator_arg, SlabStack{top, usable},
                              [this, &fiber, &body](context::fiber&& caller) {
                                fiber.caller = std::move(caller);
                                try {
                                  body();
                                } catch (const context::detail::forced_unwind&) {
                                  throw;  // how the library ends a fiber that still waits
                                } catch (...) {
                                  error_ = std::current_exception();
                                }
                                fiber.finished = true;
                                --left_;
                                return std::move(fiber.caller);
                              });
}

bool Scheduler::run_warp(int first) {
  bool moved = false;
  const int end = std::min(first + warp_size, threads_);
  for (bool again = true; again;) {
    again = false;
    for (int thread = first; thread < end; ++thread) {
      Fiber& fiber = fibers_[thread];
      if (fiber.finished || !fiber.wait.over()) continue;
      current_ = thread;
      fiber.self = std::move(fiber.self).resume();
      if (error_) return true;
      again = moved = true;
    }
  }
  return moved;
}

void Scheduler::run(const std::function<void()>& body,
                    const std::function<std::exception_ptr()>& stuck, int slow_warp) {
  const int warps = (threads_ + warp_size - 1) / warp_size, slow = slow_warp % warps * warp_size;
  left_ = threads_;
  error_ = nullptr;
  for (int thread = 0; thread < threads_; ++thread) start(thread, body);
  while (left_ > 0 && !error_) {
    bool moved = false;
    for (int first = 0; first < threads_ && !error_; first += warp_size)
      if (first != slow) moved |= run_warp(first);
    if (!moved && !error_) moved = run_warp(slow);
    current_ = -1;
    if (stop_ != nullptr && stop_->load(std::memory_order_relaxed))
      error_ = std::make_exception_ptr(Stopped{});
    else if (!moved)
      error_ = stuck();
  }
  if (!error_) return;
  for (int thread = 0; thread < threads_; ++thread) {
    fibers_[thread].self = {};  // unwinds it
    fibers_[thread].finished = true;
  }
  std::rethrow_exception(std::exchange(error_, nullptr));
}

void Scheduler::block(const Wait& wait) {
  Fiber& fiber = fibers_[current_];
  fiber.wait = wait;
  fiber.caller = std::move(fiber.caller).resume();
  fiber.wait = {};
}

std::string describe_waits(const Scheduler& scheduler, int begin, int end) {
  std::map<std::string, std::vector<int>> places;
  for (int thread = begin; thread < end; ++thread) {
    const Wait& wait = scheduler.wait_of(thread);
    if (thread == scheduler.current()) continue;
    const std::string place =
        scheduler.finished(thread) ? "have left the kernel"
        : wait.place == nullptr
            ? "are on their way"
            : fmt::format("{} {}, line {}", wait.over() ? "are on their way from" : "wait at",
                          wait.place, wait.line);
    places[place].push_back(thread);
  }
  std::string text;
  for (const auto& [place, threads] : places)
    text += fmt::format("{}threads {} {}", text.empty() ? "" : "; ", ranges(threads), place);
  return text;
}

}  // namespace flashcore
