#include "runtime/tile_counters.h"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace flashcore {
namespace {

constexpr int capture_is_active = 1;              // CUstreamCaptureStatus
constexpr unsigned destructor_is_not_waited = 1;  // CU_USER_OBJECT_NO_DESTRUCTOR_SYNC
constexpr unsigned reference_moves = 1;           // CU_GRAPH_USER_OBJECT_MOVE

}  // namespace

class TileCounters::Pool {
 public:
  explicit Pool(int count) : count_(count) {}

  [[nodiscard]] int of_default_stream() const {
    return of_default_stream_.load(std::memory_order_relaxed);
  }
  void keep_of_default_stream(int counter) {
    of_default_stream_.store(counter, std::memory_order_relaxed);
  }

  int of_stream(std::uint64_t stream) {
    const std::lock_guard lock(mutex_);
    const auto known = by_stream_.find(stream);
    if (known != by_stream_.end()) return known->second;
    const int counter = take_one();
    if (counter != 0) by_stream_.emplace(stream, counter);
    return counter;
  }

  int take() {
    const std::lock_guard lock(mutex_);
    return take_one();
  }

  void give_back(int counter) {
    const std::lock_guard lock(mutex_);
    given_back_.push_back(counter);
  }

 private:
  int take_one() {
    if (given_back_.empty()) return used_ < count_ ? ++used_ : 0;
    const int counter = given_back_.back();
    given_back_.pop_back();
    return counter;
  }

  const int count_;
  std::atomic<int> of_default_stream_ = 0;  ///< 0: nobody asked yet, or it has none
  std::mutex mutex_;
  /// By the stream's number, since CUDA gives the handle of a destroyed stream to new ones.
  std::unordered_map<std::uint64_t, int> by_stream_;
  std::vector<int> given_back_;
  int used_ = 0;
};

/// The counter of a captured launch, in a CUDA user object: the driver destroys it when no graph can
/// run the launch any more.
struct TileCounters::HeldByGraph {
  std::shared_ptr<Pool> pool;
  int counter;

  // Called on a thread of the driver, where no function of CUDA may be called.
  static void give_back(void* object) {
    const std::unique_ptr<HeldByGraph> held(static_cast<HeldByGraph*>(object));
    held->pool->give_back(held->counter);
  }
};

TileCounters::TileCounters(int count) : pool_(std::make_shared<Pool>(count)) {}

int TileCounters::of_stream(const Driver& driver, CudaStream stream) const {
  // A context has one default stream as long as it lives.
  if (stream == nullptr) {
    if (const int known = pool_->of_default_stream(); known != 0) return known;
  }
  unsigned long long number = 0;
  // If the stream is invalid, the launch that follows reports it.
  if (driver.cuStreamGetId(stream, &number) != 0) return 0;
  const int counter = pool_->of_stream(number);
  if (stream == nullptr) pool_->keep_of_default_stream(counter);
  return counter;
}

// Not by the stream's number: during a capture cuStreamGetId fails and invalidates the capture.
int TileCounters::of_captured_launch(const Driver& driver, CudaStream stream) const {
  int status = 0;
  CudaGraph graph = nullptr;
  if (driver.cuStreamGetCaptureInfo_v2(stream, &status, nullptr, &graph, nullptr, nullptr) != 0 ||
      status != capture_is_active)
    return 0;
  const int counter = pool_->take();
  if (counter == 0) return 0;
  auto held = std::make_unique<HeldByGraph>(HeldByGraph{pool_, counter});
  CudaUserObject object = nullptr;
  if (driver.cuUserObjectCreate(&object, held.get(), HeldByGraph::give_back, 1,
                                destructor_is_not_waited) != 0) {
    pool_->give_back(counter);
    return 0;
  }
  (void)held.release();  // the user object owns it
  if (driver.cuGraphRetainUserObject(graph, object, 1, reference_moves) != 0) {
    (void)driver.cuUserObjectRelease(object, 1);
    return 0;
  }
  return counter;
}

}  // namespace flashcore
