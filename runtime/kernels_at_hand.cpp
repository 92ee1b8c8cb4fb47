#include "runtime/kernels_at_hand.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>
#include <utility>

#include <unistd.h>

#include "runtime/background.h"
#include "runtime/background_builds.h"
#include "runtime/cuda/device.h"
#include "runtime/log.h"

namespace flashcore {
namespace {

/// How far one problem is from another: the sum of |log2(a / b)|.
double distance(std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  const auto log = [](std::int64_t length) {
    return std::log2(static_cast<double>(std::max<std::int64_t>(length, 1)));
  };
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::abs(log(a[i]) - log(b[i]));
  return sum;
}

}  // namespace

KernelsAtHand::List& KernelsAtHand::list_of(const std::vector<Schedule>& schedules) {
  const NoForkSection whole;
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(lists_, schedules, &List::schedules);
  if (known != lists_.end()) return *known;
  List& list = lists_.emplace_back(schedules);
  for (const Schedule& schedule : schedules) list.candidates.push_back(&candidate_of(schedule));
  return list;
}

KernelsAtHand::Candidate& KernelsAtHand::candidate_of(const Schedule& schedule) {
  const auto known = std::ranges::find(candidates_, schedule, &Candidate::schedule);
  return known != candidates_.end() ? *known : candidates_.emplace_back(schedule);
}

void KernelsAtHand::add(const Schedule& schedule, Kernel kernel) {
  const NoForkSection whole;
  const std::lock_guard lock(mutex_);
  Candidate& candidate = candidate_of(schedule);
  if (!candidate.kernel) candidate.kernel = std::move(kernel);
}

KernelsAtHand::Candidate& KernelsAtHand::first_that_fits(std::unique_lock<std::mutex>& lock,
                                                         const List& list) {
  std::exception_ptr first;
  std::vector<std::pair<Candidate*, std::exception_ptr>> misfits;
  for (std::size_t i = 0; i < list.candidates.size(); ++i) {
    Candidate& candidate = *list.candidates[i];
    changed_.wait(lock, [&] { return !candidate.building; });
    std::exception_ptr refusal = candidate.misfit;
    if (!candidate.kernel && !refusal) {
      candidate.building = true;
      lock.unlock();
      Kernel kernel;
      std::exception_ptr failure;
      bool lasts = true;
      try {
        kernel = build_(candidate.schedule, std::span(list.schedules).subspan(i + 1));
      } catch (const CacheMissError&) {  // until the cache has it
        refusal = std::current_exception();
        lasts = false;
      } catch (const CompileError&) {
        refusal = std::current_exception();
      } catch (const ScheduleError&) {
        refusal = std::current_exception();
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (refusal && lasts) misfits.emplace_back(&candidate, refusal);
      candidate.building = false;
      candidate.kernel = std::move(kernel);
      changed_.notify_all();
      if (failure) std::rethrow_exception(failure);
    }
    if (candidate.kernel) {
      for (const auto& [other, why] : misfits) other->misfit = why;
      return candidate;
    }
    if (!first) first = refusal;
  }
  // Where none fits it may be the compiler that is missing: a later launch tries again.
  if (first) std::rethrow_exception(first);
  throw ScheduleError({.what = name_ + " under no schedule",
                       .why = "the list is empty",
                       .fix = "a choice whose lists have schedules",
                       .where = {}});
}

KernelsAtHand::Candidate* KernelsAtHand::known_to_fit(const List& list) {
  for (Candidate* candidate : list.candidates) {
    if (candidate->kernel) return candidate;
    if (!candidate->misfit) return nullptr;
  }
  return nullptr;
}

void KernelsAtHand::put_in_place(List& list, Candidate& candidate) {
  candidate.loaded = true;
  list.in_place.store(candidate.kernel.get(), std::memory_order_release);
}

KernelsAtHand::Kernel KernelsAtHand::build(List& list) {
  const NoForkSection whole;
  std::unique_lock lock(mutex_);
  return first_that_fits(lock, list).kernel;
}

void KernelsAtHand::load(List& list, int device) {
  const NoForkSection whole;
  std::unique_lock lock(mutex_);
  Candidate& best = first_that_fits(lock, list);
  if (device >= 0) {
    lock.unlock();
    best.kernel->prepare(device);
    lock.lock();
    put_in_place(list, best);
  }
}

KernelsAtHand::Kernel KernelsAtHand::find_built(const List& list) {
  const NoForkSection whole;
  const std::lock_guard lock(mutex_);
  const Candidate* const best = known_to_fit(list);
  return best != nullptr ? best->kernel : nullptr;
}

bool KernelsAtHand::has_kernel() const {
  const NoForkSection whole;
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(candidates_, [](const Candidate& c) { return c.kernel != nullptr; });
}

KernelsAtHand::Candidate* KernelsAtHand::best_at_hand(const List& list, Lengths lengths,
                                                      bool loaded) {
  const auto serves = [&](const Candidate* candidate) {
    return candidate->kernel && (candidate->loaded || !loaded);
  };
  const auto own = std::ranges::find_if(list.candidates, serves);
  if (own != list.candidates.end()) return *own;
  Candidate* nearest = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const List& other : lists_) {
    Candidate* const its = known_to_fit(other);
    if (its == nullptr || !serves(its) || !other.wanted) continue;
    const double away = distance(other.lengths, lengths);
    if (away < least) nearest = its, least = away;
  }
  for (Candidate& any : candidates_) {
    if (nearest == nullptr && serves(&any)) nearest = &any;
  }
  return nearest;
}

Launchable* KernelsAtHand::serve(List& list, Lengths lengths, int device, CudaStream stream,
                                 bool for_now) {
  const NoForkSection whole;
  std::unique_lock lock(mutex_);
  if (is_being_captured(device, stream)) return capture(list, lengths);
  if (!std::exchange(list.wanted, true)) list.lengths.assign(lengths.begin(), lengths.end());
  if (Candidate* const best = known_to_fit(list)) return take_over(list, *best, device);
  Candidate* const at_hand = best_at_hand(list, lengths, /*loaded=*/false);
  if (at_hand == nullptr || waits_for_the_best()) {
    Candidate& built = first_that_fits(lock, list);
    put_in_place(list, built);
    return built.kernel.get();
  }
  if (!for_now) build_later(list, device);
  at_hand->loaded = true;
  return at_hand->kernel.get();
}

Launchable* KernelsAtHand::capture(List& list, Lengths lengths) {
  Candidate* const best = known_to_fit(list);
  if (best != nullptr && best->loaded) return best->kernel.get();
  Candidate* const at_hand = best_at_hand(list, lengths, /*loaded=*/true);
  if (at_hand == nullptr || !list.wanted) return nullptr;
  if (!std::exchange(list.warned, true))
    log_message(LogLevel::warn,
                "{}: a graph keeps a kernel for other lengths, since the one for its own is not "
                "ready; prepare() before the capture has it ready",
                name_);
  return at_hand->kernel.get();
}

// What fails here is the loading of the code: what served before serves on.
Launchable* KernelsAtHand::take_over(List& list, Candidate& best, int device) {
  Candidate* const before =
      best.loaded || device < 0 ? nullptr : best_at_hand(list, list.lengths, /*loaded=*/true);
  try {
    if (before != nullptr) best.kernel->prepare(device);
    put_in_place(list, best);
  } catch (const Error& error) {
    put_in_place(list, *before);
    log_message(LogLevel::warn, "{}: a kernel for other lengths serves on: {}", name_,
                error.what());
  }
  return list.in_place.load(std::memory_order_relaxed);
}

void KernelsAtHand::build_later(List& list, int device) {
  if (!list.waits) {
    list.waits = true;
    list.device = device;
    waiting_.push_back(&list);
    log_message(LogLevel::debug, "{}: another kernel serves until one for other lengths is built",
                name_);
  }
  start_work();
}

// What fails here is for the next launch to try again, and to tell.
void KernelsAtHand::load_beside(std::unique_lock<std::mutex>& lock, List& list, Candidate& built) {
  if (list.device < 0) return;
  bool is_loaded = false;
  lock.unlock();
  try {
    const BesideCaptures beside(Driver::get());
    built.kernel->prepare(list.device);
    is_loaded = true;
  } catch (const std::exception& error) {
    log_message(LogLevel::debug, "{} is not loaded in the background: {}", name_, error.what());
  }
  lock.lock();
  if (is_loaded) put_in_place(list, built);
}

void KernelsAtHand::start_work() {
  if (worker_ == getpid() || ended_) return;
  worker_ = getpid();
  run_in_background([self = shared_from_this()] { self->work(); });
}

void KernelsAtHand::work() {
  for (bool goes_on = true; goes_on;) {
    const NoForkSection whole;
    std::unique_lock lock(mutex_);
    if (!ended_ && !waiting_.empty()) {
      List& list = *waiting_.front();
      try {
        load_beside(lock, list, first_that_fits(lock, list));
      } catch (const std::exception& error) {
        Candidate* const at_hand = best_at_hand(list, list.lengths, /*loaded=*/false);
        if (at_hand != nullptr) put_in_place(list, *at_hand);
        log_message(LogLevel::warn, "{}: a kernel for other lengths serves on: {}", name_,
                    error.what());
      }
      waiting_.pop_front();
      list.waits = false;
    }
    goes_on = !ended_ && !waiting_.empty();
    if (!goes_on) worker_ = 0;
    changed_.notify_all();
  }
}

void KernelsAtHand::end() {
  const NoForkSection whole;
  const std::lock_guard lock(mutex_);
  ended_ = true;
}

bool KernelsAtHand::is_building() const {
  const NoForkSection whole;
  const std::lock_guard lock(mutex_);
  return !waiting_.empty();
}

// It asks now and then, since whoever waits at a lock holds a fork up, and the work with it.
void KernelsAtHand::wait_until_built() {
  while (is_building()) {
    {
      const NoForkSection whole;
      const std::lock_guard lock(mutex_);
      start_work();  // in a child of a fork
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace flashcore
