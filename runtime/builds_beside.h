// What those share who build code while other code serves: kernels_at_hand.h, alternatives_at_hand.h.
#pragma once

#include "runtime/cuda/driver.h"
#include "runtime/hooks.h"
#include "runtime/no_fork.h"

namespace flashcore {

/// Unlike is_captured, not where the driver has a complaint about the stream: a launch tells it.
bool is_being_captured(int device, CudaStream stream);

/// By the mode of compiling: launches wait for what they want.
bool waits_for_the_best();

/// No fork happens between the two ends of this, so a child finds no lock that is held and nothing
/// that is being built.
struct WholeWork {
  const HookDeferral messages_after_the_lock;
  const NoFork whole;
};

}  // namespace flashcore
