#include "runtime/alternatives_at_hand.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "dsl/error.h"
#include "runtime/background.h"
#include "runtime/background_builds.h"
#include "runtime/cuda/device.h"
#include "runtime/first_fitting.h"
#include "runtime/log.h"

namespace flashcore {
namespace {

// Whoever waits at a lock holds a fork up, and the work with it: so it asks now and then.
template <class Condition>
void wait_until(const Condition& condition) {
  while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

bool AlternativesAtHand::is_queued(const Entry& entry) { return entry.queued_by == getpid(); }

std::unique_ptr<AlternativeModule> AlternativesAtHand::make(const Alternative& alternative) const {
  std::vector<LaunchableModule::Kernel> kernels;
  for (std::size_t i = 0; i < alternative.schedules.size(); ++i)
    kernels.push_back(build_under_first_fitting(alternative.schedules[i],
                                                builds_(alternative.module.kernels()[i])));
  return std::make_unique<AlternativeModule>(
      LaunchableModule(alternative.module, std::move(kernels)), program_);
}

AlternativeModule& AlternativesAtHand::build(std::unique_lock<std::mutex>& lock,
                                             const Choice& choice, std::size_t number) {
  Entry& entry = entries_[number];
  while (entry.is_building) {  // by another thread; no fork takes it away meanwhile (NoForkSection)
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.lock();
  }
  if (entry.module) return *entry.module;
  entry.is_building = true;
  lock.unlock();
  std::unique_ptr<AlternativeModule> made;
  std::exception_ptr failure;
  try {
    made = make(choice->alternative(number));
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  entry.is_building = false;
  if (failure) std::rethrow_exception(failure);
  entry.module = std::move(made);
  return *entry.module;
}

AlternativeModule& AlternativesAtHand::prepare(const Choice& choice, std::size_t number,
                                               int device) {
  const NoForkSection whole;
  std::unique_lock lock(mutex_);
  AlternativeModule& module = build(lock, choice, number);
  if (device >= 0) {
    lock.unlock();
    module.prepare(device);
  }
  entries_[number].in_place.store(&module, std::memory_order_release);
  return module;
}

AlternativesAtHand::Served AlternativesAtHand::serve(const Choice& choice, std::size_t number,
                                                     int device, CudaStream stream,
                                                     bool another_serves) {
  if (is_being_captured(device, stream)) return {capture(number)};
  const NoForkSection whole;
  std::unique_lock lock(mutex_);
  Entry& entry = entries_[number];
  if (entry.is_refused) return {};
  if (another_serves && !waits_for_the_best()) {
    if (entry.module && !is_queued(entry)) return {take_over(entry, device)};
    build_later(choice, number, device);
    return {.is_coming = is_queued(entry)};
  }
  try {
    AlternativeModule& module = build(lock, choice, number);
    entry.in_place.store(&module, std::memory_order_release);
    return {&module};
  } catch (const CompileError&) {
    entry.is_refused = true;
  } catch (const ScheduleError&) {
    entry.is_refused = true;
  }
  return {};
}

// Nothing is launched where it cannot be loaded, as where memory is short: what served before serves on.
AlternativeModule* AlternativesAtHand::take_over(Entry& entry, int device) const {
  try {
    entry.module->prepare(device);
    entry.in_place.store(entry.module.get(), std::memory_order_release);
    return entry.module.get();
  } catch (const Error& error) {
    entry.is_refused = true;
    log_message(LogLevel::warn,
                "{}: calls that several kernels would compute go on being computed by one kernel "
                "alone: {}",
                program_.name(), error.what());
    return nullptr;
  }
}

// There is no time to compile, but a graph lasts: it is worth a wait for what is being built.
AlternativeModule* AlternativesAtHand::capture(std::size_t number) const {
  wait_until([&] {
    const NoForkSection whole;
    const std::lock_guard lock(mutex_);
    return !is_queued(entries_[number]);
  });
  return find(number);
}

void AlternativesAtHand::build_later(const Choice& choice, std::size_t number, int device) {
  Entry& entry = entries_[number];
  if (is_queued(entry) || ended_) return;
  entry.queued_by = getpid();
  run_in_background([self = shared_from_this(), choice, number, device] {
    self->build_beside(choice, number, device);
  });
}

// Loaded before any launch finds it. What fails here is for the next launch to try again, and to tell.
void AlternativesAtHand::build_beside(const Choice& choice, std::size_t number, int device) {
  const NoForkSection whole;
  std::unique_lock lock(mutex_);
  Entry& entry = entries_[number];
  try {
    AlternativeModule* const module = ended_ ? nullptr : &build(lock, choice, number);
    if (module != nullptr) {
      lock.unlock();
      const BesideCaptures beside(Driver::get());
      module->prepare(device);
      entry.in_place.store(module, std::memory_order_release);
    }
  } catch (const std::exception& error) {
    log_message(LogLevel::debug, "{}: an alternative was not built or loaded in the background: {}",
                program_.name(), error.what());
  }
  if (!lock.owns_lock()) lock.lock();
  entry.is_refused = entry.module == nullptr;
  entry.queued_by = 0;
}

void AlternativesAtHand::end() {
  const NoForkSection whole;
  const std::lock_guard lock(mutex_);
  ended_ = true;
}

bool AlternativesAtHand::is_building() const {
  const NoForkSection whole;
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(entries_, is_queued);
}

void AlternativesAtHand::wait_until_built() const {
  wait_until([&] { return !is_building(); });
}

}  // namespace flashcore
